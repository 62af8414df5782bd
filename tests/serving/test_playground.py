"""The playground in a real browser: typed into, ranked by keyboard, looked at on a phone's width."""

import json
import shlex
from pathlib import Path

import pytest

from tests.serving.browser import CHROMIUM, DRIVER, Browser
from tests.serving.operated import KEY, Operated
from tests.serving.processes import GatewayProcess

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed: the playground was not opened"
)

TAB, ENTER, CONTROL = "\ue004", "\ue007", "\ue009"
RANKED = "return [...document.querySelectorAll('#results .what')].map(cell => cell.textContent)"
STATUS = "return document.getElementById('status').textContent"


def test_the_sample_is_ranked_by_keyboard_alone(shop: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(f"{shop.address}/")
        assert browser.run("return document.activeElement.dataset.name") == "query"
        browser.press(ENTER)
        ranked = browser.wait_for(f"{RANKED}.length && ({RANKED[7:]})")
        assert ranked == ["Blue sofa bed <script>alert(1)</script> & more", "Velvet sofa, navy", "Oak table"]
        widths = browser.run("return [...document.querySelectorAll('.bar')].map(bar => bar.style.width)")
        # logits 1, 0 and -1
        assert [round(float(width.removesuffix("%")), 1) for width in widths] == [73.1, 50.0, 26.9]
        assert browser.run(STATUS).startswith("3 items in ")
        assert browser.console() == []


def test_typed_lines_are_ranked_and_told_as_a_command(shop: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(f"{shop.address}/")
        browser.run("for (const box of document.querySelectorAll('input, textarea')) box.value = ''")
        browser.press("blue sofa")
        browser.press(TAB)
        browser.press("oak 'n' <b>" + ENTER + '{"title": "blue sofa", "id": "p7"}')
        browser.chord(CONTROL, ENTER)
        assert browser.wait_for(f"{RANKED}.length && ({RANKED[7:]})") == ["blue sofa", "oak 'n' <b>"]
        command = shlex.split(browser.run("return document.getElementById('curl').textContent"))
        assert command[:2] == ["curl", "-s"]
        assert command[2] == f"{shop.address}/v1/rank"
        sent = json.loads(command[command.index("-d") + 1])
        assert sent == {"query": "blue sofa", "items": ["oak 'n' <b>", {"title": "blue sofa", "id": "p7"}]}
        assert [result["id"] for result in shop.post(sent).json()["results"]] == ["p7", "0"]
        assert browser.console() == []


def test_a_refusal_is_shown_in_words(shop: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(f"{shop.address}/")
        browser.run('document.getElementById(\'items\').value = \'{"title": "oak", "click": 1}\'')
        browser.press(ENTER)
        said = browser.wait_for(f"{STATUS}.includes('privileged') && ({STATUS[7:]})")
        assert "feature 'click' is privileged" in said
        browser.run("document.getElementById('items').value = '{oops'")
        browser.press(ENTER)
        assert browser.wait_for(f"{STATUS}.includes('line 1 is not JSON')")


def test_a_phone_needs_no_sideways_scrolling(shop: GatewayProcess, rich: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path, width=500, height=900) as browser:  # the narrowest window that Chromium opens
        for gateway, path in ((shop, "/"), (rich, "/"), (shop, "/docs"), (rich, "/docs")):
            browser.open(gateway.address + path)
            if path == "/":
                browser.press(ENTER)
                browser.wait_for(f"{RANKED}.length")
            assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")


def test_where_keys_are_needed_the_page_asks_for_one_and_keeps_it_out_of_the_command(
    operated: Operated, tmp_path: Path
) -> None:
    with Browser(tmp_path) as browser:
        browser.open(f"{operated.gateway.address}/")
        browser.press(ENTER)
        assert "no API key was sent" in browser.wait_for(f"{STATUS}.includes('key') && ({STATUS[7:]})")
        browser.run("document.getElementById('key').focus()")
        browser.press(KEY + ENTER)
        browser.wait_for(f"{RANKED}.length")
        assert KEY not in browser.run("return document.body.innerText")
        assert '-H "Authorization: Bearer $KEY"' in browser.run("return document.getElementById('curl').textContent")
