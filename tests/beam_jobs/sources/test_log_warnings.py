"""What the summary says of the logs: fields that are ignored, features that stand in the wrong place, no positions."""

from collections import Counter
from typing import Any

import orjson
import pytest

from beam_jobs.joins.log_names import MIN_RECORDS, without_rare_names
from beam_jobs.sources.native_log import Event, read_event
from tests.beam_jobs.datasets import build, groups, write_task
from tests.beam_jobs.log_lines import act, impression, write_jsonl
from tests.beam_jobs.without_runner import join
from tests.features.specs import DEMO

DEFAULTED = {**DEMO, "title": {"type": "text", "level": "item", "default": "no title"}}


def lines(*rows: Any) -> list[bytes]:
    return [orjson.dumps(row) for row in rows]


def test_a_title_beside_item_id_and_unknown_fields_are_counted_and_named(tmp_path, capsys):
    rows = [impression(f"r{n}", f"q {n}", {"item_id": "a", "title": "x"}, {"item_id": "b"}) for n in range(12)]
    rows = [{**row, "session": "s", f"jane{row['request_id']}": 1} for row in rows]
    rows += [{**act("click", f"r{n}", "a"), "click": {"item_id": "a", "page": 3}} for n in range(10)]
    manifest = build(write_task(tmp_path, DEFAULTED), write_jsonl(tmp_path / "e.jsonl", *rows), tmp_path / "dataset")
    assert manifest.ignored == {"click.page": 10, "items.title": 12, "other": 12, "session": 12}
    misplaced = "12 impressions have 'title' beside 'item_id', where it is ignored: put it into the item's 'features'"
    assert misplaced in manifest.warnings
    named = "fields that no event has are ignored (other 12, session 12, click.page 10; field, events)"
    assert any(text.startswith(named) for text in manifest.warnings)
    printed = capsys.readouterr().out
    assert f"warning: {misplaced}" in printed
    assert "ignored: click.page 10, items.title 12, other 12, session 12" in printed


def test_fields_of_native_events_are_not_ignored():
    row = impression("r1", "sofa", "p1", features={"shop": "app"}, locale="en-GB")
    for event in map(read_event, lines(row, act("click", "r1", "p1"))):
        assert isinstance(event, Event)
        assert event.ignored == ()


def test_many_fields_of_one_event_are_bounded():
    event = read_event(orjson.dumps({**act("click", "r1", "p1"), **{f"f{n}": n for n in range(10_000)}}))
    assert isinstance(event, Event)
    assert len(event.ignored) == 20


def test_names_that_few_records_use_are_counted_together():
    tally = Counter(
        {"ignored/rare": MIN_RECORDS - 1, "ignored/common": MIN_RECORDS, "skipped/action_hover": 1, "read/click": 1}
    )
    assert without_rare_names(tally) == {
        "ignored/other": MIN_RECORDS - 1, "ignored/common": MIN_RECORDS, "skipped/other": 1, "read/click": 1,
    }  # fmt: skip


# --- positions


def items(*positions: int | None) -> list[dict[str, Any]]:
    shown = [{"item_id": f"p{n}", "features": {"title": "t"}} for n in range(len(positions))]
    return [{**item, **({} if at is None else {"position": at})} for item, at in zip(shown, positions, strict=True)]


def positions_of(*positions: int | None) -> tuple[dict[str, int], dict[str, int], int]:
    """Item -> position in the dataset; reasons of refusals; impressions without positions."""
    row = impression("r1", "sofa")
    row["impression"]["items"] = items(*positions)
    joined = join(lines(row), min_items=1)
    shown = joined.labels().get("sofa", {})
    return (
        {item: entry[0] for item, entry in shown.items()},
        joined.named("refused"),
        joined.tally["noted/lists_without_positions"],
    )


def test_items_without_positions_are_in_the_order_of_the_list_and_counted():
    assert positions_of(None, None, None) == ({"p0": 0, "p1": 1, "p2": 2}, {}, 1)


def test_the_one_position_that_is_left_out_is_the_top():
    # protobuf's JSON omits a field that is 0
    assert positions_of(None, 1, 2) == ({"p0": 0, "p1": 1, "p2": 2}, {}, 0)


@pytest.mark.parametrize("positions", [(None, None, 2), (0, None, 2)])
def test_other_positions_that_are_left_out_are_missing(positions):
    found, refused, _ = positions_of(*positions)
    missing = positions.count(None)
    assert found == {f"p{n}": at for n, at in enumerate(positions) if at is not None}
    assert refused == {"position_missing": missing}


def test_the_summary_says_where_positions_come_from(tmp_path):
    row = impression("r1", "sofa")
    row["impression"]["items"] = items(None, None)
    manifest = build(write_task(tmp_path), write_jsonl(tmp_path / "e.jsonl", row), tmp_path / "dataset")
    assert [
        item["position"] for item in sorted(groups(tmp_path / "dataset")["r1"].items, key=lambda i: i["item_id"])
    ] == [0, 1]
    assert any("1 impressions have items without positions" in text for text in manifest.warnings)


@pytest.mark.parametrize(
    ("positions", "says"),
    [
        ([(0, 0), (0, 0)], "position is 0 for every item in train"),
        ([(3, 3), (3, 3)], "position is 3 for every item in train"),
        ([(0, 0), (1, 1)], "position is the same for all items of a group in train"),
        ([(0, 1), (0, 0)], None),
    ],
)
def test_positions_that_teach_nothing_are_told(tmp_path, positions, says):
    rows = []
    for n, places in enumerate(positions):
        row = impression(f"r{n}", f"q {n}")
        row["impression"]["items"] = items(*places)
        rows.append(row)
    config = write_task(tmp_path, dataset={"splits": {"train": 1, "valid": 0, "test": 0}})
    warnings = build(config, write_jsonl(tmp_path / "e.jsonl", *rows), tmp_path / "dataset").warnings
    told = [text for text in warnings if "a teacher that sees it learns nothing from it" in text]
    assert [text.split(":")[0] for text in told] == ([says] if says else [])


# --- duplicates


def test_events_of_two_types_may_share_an_id():
    click = act("click", "r1", "p2", event_id="1")
    joined = join(lines(impression("r1", "sofa", "p1", "p2", event_id="1"), click, click))
    assert joined.labels()["sofa"]["p2"] == (1, True, False, False)
    assert (joined.events["click"].used, joined.events["click"].duplicate) == (1, 1)
