"""The rendered comparison: hostile log text stays text in a terminal and in a browser."""

import base64
import hashlib
import html
import re
from html.parser import HTMLParser

import pytest

from beam_jobs.drift.comparison import compare, feature_pairs
from beam_jobs.drift.page import POLICY, STYLE, render_page
from beam_jobs.drift.report import format_number, format_percent, printable_value, report_of, terminal_table, verdict
from beam_jobs.drift.thresholds import ComparisonOptions
from tests.beam_jobs.drift.samples import draw, side
from tests.serving.browser import CHROMIUM, DRIVER, Browser

HOSTILE = [
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "</title></style></svg><svg onload=alert(1)>",
    "{{ 7 * 7 }}",
    "\x1b[31mred\x1b[0m\r\nDRIFT",
    "\u202egnirts\u202c",
    "$\\frac{1}{0}$",
    "\ud7ff emoji 🛋️ 漢字",
]


def hostile_report() -> dict:
    groups = draw(1, 60)
    changed = draw(2, 60, price_factor=3)
    for place, item in enumerate(item for group in (*groups, *changed) for item in group.items):
        item["brand"] = HOSTILE[place % len(HOSTILE)]
    for group in changed:
        group.items[0]["brand"] = HOSTILE[0]
    pairs = feature_pairs(side(groups), side(changed))
    options = ComparisonOptions.model_validate({"share_change": 0.0, "false_alarms": 0.9})
    described = {"dataset": "<b>build</b>", "view": "training", "groups": 60, "items": 300, "sampled_groups": 60}
    return report_of({"a": described, "b": described}, None, compare(pairs, options), pairs, options)


@pytest.fixture(scope="module")
def report() -> dict:
    return hostile_report()


class Elements(HTMLParser):
    """All tags with their attributes, and the text outside of the style."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_only_the_elements_of_its_template(report):
    elements = Elements(render_page(report))
    assert {tag for tag, _ in elements.found} <= {
        "html", "meta", "title", "style", "h1", "h2", "p", "b", "br", "table", "tr", "th", "td",
        "section", "figure", "figcaption", "svg", "rect", "text",
    }  # fmt: skip
    names = {name for _, attributes in elements.found for name in attributes}
    assert not {name for name in names if name.startswith("on") or name in ("style", "src", "href", "xlink:href")}


def test_hostile_values_are_escaped_text(report):
    text = Elements(render_page(report)).text
    for value in HOSTILE:
        assert printable_value(value) in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_content_security_policy_allows_only_the_pages_style(report):
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', render_page(report))
    assert html.unescape(policy) == POLICY
    (style,) = re.findall(r"<style>(.*?)</style>", render_page(report), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert POLICY.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_no_text_feature_shows_a_value(report):
    shown = render_page(report) + terminal_table(report)
    for group in draw(1, 60):
        assert str(group.context["query"]).strip() not in shown
        assert str(group.items[0]["title"]) not in shown


def test_the_terminal_table_has_no_control_character_and_one_line_per_finding(report):
    text = terminal_table(report)
    assert all(c.isprintable() or c == "\n" for c in text)
    rows = [line for line in text.splitlines() if line.startswith(("DRIFT", "ok"))]
    assert len(rows) == len(set(rows))
    assert rows[0].startswith("DRIFT")
    assert [line.startswith("DRIFT") for line in rows] == sorted((r.startswith("DRIFT") for r in rows), reverse=True)


def test_every_feature_has_its_row_and_the_verdict_names_those_that_drift(report):
    named = {line.split()[1] for line in terminal_table(report).splitlines() if line.startswith(("DRIFT", "ok"))}
    judged = {finding["feature"] for finding in report["findings"]}
    assert named == judged
    assert verdict(report).startswith("drift in ")
    assert "price" in verdict(report)


def test_long_values_are_cut_and_figures_are_rounded():
    assert printable_value("x" * 100) == "x" * 37 + "..."
    assert printable_value("a\tb\u200bc") == "a\\tb\\u200bc"
    assert (format_number(0.0123456), format_number(12345.6), format_number(-0.5), format_percent(0.00341)) == (
        "0.0123",
        "12,346",
        "-0.5",
        "0.341%",
    )


@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver on PATH")
def test_a_browser_shows_the_page_and_runs_no_script(report, tmp_path):
    path = tmp_path / "comparison.html"
    path.write_text(render_page(report))
    with Browser(tmp_path / "profile") as browser:
        browser.open(path.as_uri())
        title = browser.run("return document.title")
        widths = browser.run("return [...document.querySelectorAll('rect')].map(r => r.getBoundingClientRect().width)")
        colour = browser.run("return getComputedStyle(document.querySelector('rect.a')).fill")
        complaints = browser.console()
    assert title.startswith("Drift report: drift in ")
    assert max(widths) > 5
    assert colour == "rgb(47, 111, 179)"  # the style was taken: the policy knows it
    assert not complaints
