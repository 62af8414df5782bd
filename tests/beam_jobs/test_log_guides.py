"""The guides of logs: their tables are those of the code, and their examples are what the readers take."""

import ast
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from beam_jobs.joins.dataset_options import DatasetOptions
from beam_jobs.sources.log_readers import READERS
from beam_jobs.sources.native_log import Event
from beam_jobs.sources.products import ProductRow, read_product
from docs.list_settings import DATASET_PAGE, list_settings
from features.spec import load_spec
from features.task import load_task, merged, parse_section
from tests.beam_jobs import log_reasons

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDES = ("logs.md", "log-fields.md", "log-troubleshooting.md")


def section(guide: str, title: str) -> str:
    """The text below a heading of level 2."""
    return (DOCS / guide).read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(text: str) -> list[str]:
    """The names in the first cells of all tables."""
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def examples(kind: str) -> list[bytes]:
    """The lines of all code blocks marked with `json KIND`."""
    texts = [(DOCS / guide).read_text() for guide in GUIDES]
    blocks = [block for text in texts for block in re.findall(rf"```json {kind}\n(.*?)```", text, re.DOTALL)]
    return [line.strip().encode() for block in blocks for line in block.splitlines() if line.strip()]


def test_the_settings_are_those_of_the_models() -> None:
    page = DATASET_PAGE.read_text()
    assert page.count("<!-- settings: ") == page.count("<!-- end -->") == 2
    assert list_settings(page) == page, "docs/log-fields.md is not what the models are: run make settings"
    assert "| `splits.train` | number | `0.8` | share | ≥ 0, ≤ 1 |" in page
    assert "| `max_groups_per_query` | integer or null | `null` | groups | ≥ 1 |" in page


@pytest.mark.parametrize(("title", "skipping"), [("Refused", False), ("Skipped", True)])
def test_the_reasons_are_those_of_the_code(title: str, skipping: bool) -> None:
    named = first_cells(section("log-troubleshooting.md", title))
    assert len(set(named)) == len(named)
    assert set(named) == log_reasons.reasons(skipping)


def test_a_reason_is_collected_with_each_value_of_its_parts() -> None:
    assigned = ast.parse("""f"{name}_{'missing' if absent else 'invalid'}" """.strip(), mode="eval").body
    assert log_reasons.values_of(assigned, {"name": {"{feature}"}}) == {"{feature}_missing", "{feature}_invalid"}
    with pytest.raises(KeyError, match="reasons_of_tomorrow"):
        log_reasons.values_of(ast.parse("reasons_of_tomorrow", mode="eval").body, {})


@pytest.mark.parametrize(
    ("title", "messages"), [("Warnings", log_reasons.warnings()), ("Errors", log_reasons.errors())]
)
def test_each_message_of_the_code_has_a_row_and_each_row_a_message(title: str, messages: set[str]) -> None:
    rows = first_cells(section("log-troubleshooting.md", title))
    assert {row: sum(row in message for message in messages) for row in rows} == dict.fromkeys(rows, 1)
    assert {message for message in messages if not any(row in message for row in rows)} == set()


@pytest.mark.parametrize("kind", READERS)
def test_the_examples_of_events_are_read_whole(kind: str) -> None:
    lines = examples(kind)
    assert lines
    for line in lines:
        found = list(READERS[kind].read(line))
        assert found
        assert all(isinstance(event, Event) and not event.ignored for event in found), line


def test_the_examples_of_products_are_read() -> None:
    spec = load_spec(load_task(str(ROOT / "configs/product_search.yaml")))
    assert examples("product")
    assert all(isinstance(read_product(line, spec), ProductRow) for line in examples("product"))


def test_the_dead_letters_have_reasons_of_the_code() -> None:
    letters: list[dict[str, Any]] = [orjson.loads(line) for line in examples("letters")]
    assert {letter["reason"] for letter in letters} <= log_reasons.reasons(skipping=False)


def test_the_task_files_of_the_how_to_are_task_files() -> None:
    demo = load_task(str(ROOT / "configs/product_search.yaml"))
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "logs.md").read_text(), re.DOTALL)
    tasks = [merged(demo, yaml.safe_load(block)) for block in blocks]
    assert len(tasks) == 5
    for task in tasks:
        assert load_spec(task).label.name == "purchase"
        parse_section(task, "dataset", DatasetOptions)


def test_the_links_between_the_guides_lead_to_headings() -> None:
    anchors = {
        guide: {
            re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", (DOCS / guide).read_text(), re.MULTILINE)
        }
        for guide in (*GUIDES, "engines.md")
    }
    for guide in GUIDES:
        for target, anchor in re.findall(r"\]\(([\w-]+\.md)?#([\w-]+)\)", (DOCS / guide).read_text()):
            assert anchor in anchors[target or guide], f"{guide}: {target}#{anchor}"
