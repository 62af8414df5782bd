"""The playground in a real browser: typed into, ranked by keyboard, looked at on a phone and in the dark."""

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving.exports.store import PIN
from tests.serving.browser import CHROMIUM, DRIVER, Browser
from tests.serving.operated import KEY, Operated
from tests.serving.processes import GatewayProcess

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed: the playground was not opened"
)

TAB, SHIFT, ENTER, CONTROL = "\ue004", "\ue008", "\ue007", "\ue009"
RANKED = "[...document.querySelectorAll('#results .what')].map(cell => cell.textContent)"
STATUS = "document.getElementById('status').textContent"
CURL = "return document.getElementById('curl').textContent"
BLUE, NAVY, OAK = "Blue sofa bed <script>alert(1)</script> & more", "Velvet sofa, navy", "Oak table"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with two versions in memory: 4, which serves, has the order of 3 turned round."""
    from tests.serving import exported_models

    folder = tmp_path_factory.mktemp("two")
    exported_models.export(folder, exported_models.SHOP, version=3, warm_up=exported_models.WARM_UP)
    turned = exported_models.Overlap(exported_models.SHOP)
    turned.weight.assign(-2.0)
    exported_models.export(folder, exported_models.SHOP, version=4, module=turned, warm_up=exported_models.WARM_UP)
    (folder / PIN).write_text("3")
    settings = tmp_path_factory.mktemp("settings") / "gateway.yaml"
    settings.write_text(yaml.safe_dump({"reloading": {"every_seconds": 0.2}}))
    with GatewayProcess(folder, settings) as gateway:
        gateway.wait_until_ready()
        (folder / PIN).unlink()
        while gateway.http.get("/readyz").json()["model"]["version"] != 4:
            time.sleep(0.05)
        yield gateway


def ranked(browser: Browser, first: str) -> Any:
    """The titles in their order, once this one stands first."""
    return browser.wait_for(f"const ranked = {RANKED}; return ranked[0] === {json.dumps(first)} && ranked")


def write(browser: Browser, **written: str) -> None:
    """Into the form's fields, as if typed in one go: the page ranks a moment later, without a button."""
    for name, text in written.items():
        browser.run(f"""const field = document.getElementById({json.dumps(name.replace("_", "-"))});
            field.value = {json.dumps(text)}; field.dispatchEvent(new Event("input", {{bubbles: true}}))""")


def test_the_sample_is_ranked_as_the_page_opens(shop: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(f"{shop.address}/")
        assert ranked(browser, BLUE) == [BLUE, NAVY, OAK]
        widths = browser.run("return [...document.querySelectorAll('.bar span')].map(bar => bar.style.width)")
        # logits 1, 0 and -1
        assert [round(float(width.removesuffix("%")), 1) for width in widths] == [73.1, 50.0, 26.9]
        assert browser.run(f"return {STATUS}").startswith("3 items in ")
        assert browser.run("return document.activeElement.dataset.name") == "query"
        hosts = "return performance.getEntries().filter(e => 'initiatorType' in e).map(e => new URL(e.name).origin)"
        assert set(browser.run(hosts)) == {shop.address}
        assert browser.console() == []


def test_typed_lines_are_ranked_and_shown_as_a_command(shop: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(f"{shop.address}/")
        browser.run("for (const box of document.querySelectorAll('input, textarea')) box.value = ''")
        browser.press("blue sofa")
        browser.press(TAB)
        browser.press("oak 'n' <b>" + ENTER + '{"title": "blue sofa", "id": "p7"}')
        browser.chord(CONTROL, ENTER)
        assert ranked(browser, "blue sofa") == ["blue sofa", "oak 'n' <b>"]
        command = shlex.split(browser.run(CURL))
        assert command[:2] == ["curl", "-s"]
        assert command[2] == f"{shop.address}/v1/rank"
        sent = json.loads(command[command.index("-d") + 1])
        assert sent == {"query": "blue sofa", "items": ["oak 'n' <b>", {"title": "blue sofa", "id": "p7"}]}
        assert [result["id"] for result in shop.post(sent).json()["results"]] == ["p7", "0"]
        assert browser.console() == []


def test_another_sample_is_picked_by_keyboard(shop: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(f"{shop.address}/")
        ranked(browser, BLUE)
        browser.chord(SHIFT, TAB)
        browser.press("oak")
        assert ranked(browser, "Oak table, navy") == ["Oak table, navy", "Red table"]
        assert browser.run("return document.querySelector('[data-name=query]').value") == "oak table"


def test_matched_words_are_marked_and_missing_words_are_listed(shop: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(f"{shop.address}/")
        # the manifest says that the model reads 6 tokens of a title
        write(browser, context_query="blue sofa", items="Sofa, red <i>\nSOFA oak oak oak oak oak blue")
        ranked(browser, "SOFA oak oak oak oak oak blue")
        rows = browser.run("""return [...document.querySelectorAll('#results li')].map(row => [
            [...row.querySelectorAll('mark.all')].map(mark => mark.textContent),
            row.querySelector('.unread')?.textContent ?? '', row.querySelector('.missing').textContent])""")
        assert rows == [[["SOFA"], "blue", "without blue "], [["Sofa"], "", "without blue "]]


def test_an_item_is_moved_by_keyboard_and_the_order_told_from_the_models(shop: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(f"{shop.address}/")
        ranked(browser, BLUE)
        browser.run("document.querySelectorAll('#results li')[2].querySelector('button').focus()")
        browser.press(ENTER + ENTER)
        assert ranked(browser, OAK) == [OAK, BLUE, NAVY]
        said = "Place 1. Your order against the model's: 2 of 3 pairs the other way round."
        assert browser.run(f"return {STATUS}") == said
        places = "return [...document.querySelectorAll('#results .place')].map(place => place.textContent)"
        assert browser.run(places) == [
            "1▲ 2, place 3 by the model",
            "2▼ 1, place 1 by the model",
            "3▼ 1, place 2 by the model",
        ]
        browser.run("document.getElementById('back').focus()")
        browser.press(ENTER)
        assert ranked(browser, BLUE) == [BLUE, NAVY, OAK]
        assert browser.run(places) == ["1", "2", "3"]


def test_two_versions_stand_side_by_side_with_what_moved(two: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path, width=1400) as browser:
        browser.open(f"{two.address}/")
        assert ranked(browser, OAK) == [OAK, NAVY, BLUE]
        write(browser, beside="3")
        rows = "[...document.querySelectorAll('#results-beside li')]"
        browser.wait_for(f"return {rows}.length")
        beside = browser.run(f"return {rows}.map(row => row.querySelector('.what').textContent)")
        assert beside == [BLUE, NAVY, OAK]
        moved = browser.run(f"return {rows}.map(row => row.querySelector('.move').firstChild.textContent)")
        assert moved == ["▲ 2", "=", "▼ 2"]
        assert "3 of 3 pairs the other way round between versions 4 and 3" in browser.run(f"return {STATUS}")
        lines = browser.run("return [...document.querySelectorAll('#moves path')].map(line => line.className.baseVal)")
        assert lines == ["down", "", "up"]
        write(browser, version="3", beside="")
        assert ranked(browser, BLUE) == [BLUE, NAVY, OAK]
        command = shlex.split(browser.run(CURL))
        assert json.loads(command[command.index("-d") + 1])["model_version"] == 3
        assert browser.run(f"return {rows}.length") == 0
        assert browser.console() == []


def test_a_link_carries_the_form_and_tells_it_to_nobody(two: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        browser.open(f"{two.address}/")
        write(browser, context_query="red “sofa” & 100%", items="red sofa\nblue sofa", version="3")
        ranked(browser, "red sofa")
        browser.run("document.getElementById('share').click()")
        browser.wait_for("return document.getElementById('share').textContent === 'Copied'")
        link = browser.run("return navigator.clipboard.readText()")
        assert link.startswith(f"{two.address}/#")
        browser.open("about:blank")
        browser.open(link)
        assert ranked(browser, "red sofa") == ["red sofa", "blue sofa"]
        assert browser.run("return document.querySelector('[data-name=query]').value") == "red “sofa” & 100%"
        assert browser.run("return document.getElementById('version').value") == "3"
        for broken in ("#%", "#null", '#{"context":null,"lines":5,"version":{}}', "#[]"):
            browser.open("about:blank")
            browser.open(f"{two.address}/{broken}")
            assert browser.wait_for(f"return {STATUS} !== 'Press Rank.'")
        assert all("422" in line for line in browser.console())  # nothing but the gateway's refusals


def test_a_refusal_is_shown_in_words(shop: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(f"{shop.address}/")
        write(browser, items='{"title": "oak", "click": 1}')
        said = browser.wait_for(f"return {STATUS}.includes('privileged') && {STATUS}")
        assert "feature 'click' is privileged" in said
        write(browser, items="{oops")
        assert browser.wait_for(f"return {STATUS}.includes('line 1 is not JSON')")
        assert browser.run("return document.querySelector('#lists').classList.contains('stale')")


def test_a_phone_needs_no_sideways_scrolling(shop: GatewayProcess, rich: GatewayProcess, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.be_phone()
        for gateway, path in ((shop, "/"), (rich, "/"), (shop, "/docs"), (rich, "/docs")):
            browser.open(gateway.address + path)
            if path == "/":
                browser.wait_for(f"return {RANKED}.length")
                if gateway is rich:
                    write(browser, items=json.dumps({"title": "w" * 300, "brand": "b" * 300}))
                    ranked(browser, "w" * 300 + 'brand "' + "b" * 300 + '"')
            assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
            assert browser.run("return window.innerWidth") == 375


# The WCAG 2 contrast of every text against what lies behind it; what is faded on purpose is left out.
FAINTEST = """
const part = (v) => v <= 10.31 ? v / 3295 : ((v / 255 + .055) / 1.055) ** 2.4;
const light = ([r, g, b]) => .2126 * part(r) + .7152 * part(g) + .0722 * part(b) + .05;
const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
const behind = (at) => {
  const found = numbers(getComputedStyle(at).backgroundColor);
  return found.length === 3 ? found : behind(at.parentElement);
};
const saysSomething = (at) => [...at.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
const contrast = (at) => {
  const [a, b] = [light(numbers(getComputedStyle(at).color)), light(behind(at))];
  return [Math.max(a, b) / Math.min(a, b), at.outerHTML.slice(0, 80)];
};
const texts = [...document.querySelectorAll("body *")].filter((at) => at.checkVisibility() && saysSomething(at));
const kept = texts.filter((at) => !at.closest(".unread, [disabled]"));
return kept.map(contrast).sort((a, b) => a[0] - b[0])[0];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_is_readable_in_the_light_and_in_the_dark(two: GatewayProcess, tmp_path: Path, scheme: str) -> None:
    with Browser(tmp_path) as browser:
        browser.prefer(scheme)
        browser.open(f"{two.address}/")
        ranked(browser, OAK)
        write(browser, beside="3")
        browser.wait_for("return document.querySelectorAll('#results-beside li').length")
        ground = browser.run("return getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(246, 247, 250)", "dark": "rgb(17, 20, 27)"}[scheme]
        contrast, where = browser.run(FAINTEST)
        assert contrast >= 4.5, where


def test_where_keys_are_needed_the_page_asks_for_one_and_keeps_it_out_of_the_command(
    operated: Operated, tmp_path: Path
) -> None:
    with Browser(tmp_path) as browser:
        browser.open(f"{operated.gateway.address}/")
        assert browser.run(f"return {STATUS}") == "Press Rank."
        browser.press(ENTER)
        assert "no API key was sent" in browser.wait_for(f"return {STATUS}.includes('key') && {STATUS}")
        browser.run("document.getElementById('key').focus()")
        browser.press(KEY + ENTER)
        browser.wait_for(f"return {RANKED}.length")
        assert KEY not in browser.run("return document.body.innerText")
        assert '-H "Authorization: Bearer $KEY"' in browser.run(CURL)
