"""GA4's export: what its rows become, and the join by user and item, by hand."""

from typing import Any

import orjson
import pytest

from beam_jobs.sources.ga4_log import parameter, read_ga4
from beam_jobs.sources.native_log import Event, Malformed, Skipped
from tests.beam_jobs.datasets import build, groups, read_dead_letters, records, write_task
from tests.beam_jobs.ga4_logs import HOUR, NOON, SECOND, listed, row
from tests.beam_jobs.log_lines import write_jsonl
from tests.beam_jobs.without_runner import Joined, join
from tests.features.specs import DEMO


def read(fields: Any) -> list[Any]:
    return read_ga4(orjson.dumps(fields))


def joined(*rows: dict[str, Any], **options: Any) -> Joined:
    return join([orjson.dumps(fields) for fields in rows], reader="ga4", **options)


def fates(result: Joined) -> dict[str, dict[str, int]]:
    """type -> fate -> count, of the types that were read."""
    return {
        kind: {fate: n for fate, n in counts.model_dump().items() if n}
        for kind, counts in result.events.items()
        if counts.read
    }


def test_a_search_result_list_is_an_impression():
    item = {"item_id": "p1", "item_name": "Sofa", "item_brand": "acme", "price": 9.5, "item_list_index": "3",
            "quantity": 2, "item_revenue": 19, "coupon": "(not set)"}  # fmt: skip
    (found,) = read(listed("blue sofa", item, "p2"))
    assert isinstance(found, Event)
    assert (found.type, found.user_id, found.timestamp_ms) == ("impression", "pseudo-one", NOON // 1000)
    assert (found.body["query"], found.body["locale"]) == ("blue sofa", "en-gb")
    # what became of an item (quantity, revenue) is no feature of it; without an index its place in the row counts
    assert found.body["items"] == [
        {"item_id": "p1", "position": 3, "features": {"title": "Sofa", "item_brand": "acme", "price": 9.5}},
        {"item_id": "p2", "position": 1, "features": {"title": "title of p2"}},
    ]


def test_a_row_of_several_items_is_an_interaction_with_each():
    found = read(row("purchase", "p1", "p2", transaction_id="t1"))
    assert [(event.type, event.body) for event in found] == [
        ("purchase", {"item_id": "p1", "transaction_id": "t1"}),
        ("purchase", {"item_id": "p2", "transaction_id": "t1"}),
    ]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (row("page_view"), Skipped("event_page_view")),
        (listed(None, "p1"), Skipped("view_item_list_without_search_term")),
        (listed("(not set)", "p1"), Skipped("view_item_list_without_search_term")),
        ({**row("select_item", "p1"), "user_pseudo_id": None}, Skipped("click_without_user")),
    ],
)
def test_sound_rows_that_are_no_search_are_skipped_by_name(fields, found):
    assert read(fields) == [found]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": "x"}, "event_name_missing"),
        ({**row("select_item", "p1"), "event_timestamp": -5}, "timestamp_implausible"),
        ({**row("select_item", "p1"), "event_timestamp": 1e30}, "timestamp_implausible"),
        ({**row("select_item", "p1"), "event_timestamp": "9" * 5000}, "timestamp_invalid"),
        (row("select_item"), "items_missing"),
        (row("select_item", {"item_id": "(not set)"}), "item_id_missing"),
        (row("select_item", {"item_id": [1]}), "item_id_missing"),
        (row("refund"), "items_missing"),
    ],
)
def test_rows_of_a_wrong_shape_say_why(fields, reason):
    (found,) = read(fields)
    assert isinstance(found, Malformed)
    assert found.reason == reason


def test_a_row_with_one_item_without_id_keeps_the_others():
    assert [type(found) for found in read(row("add_to_cart", "p1", {"price": 3}))] == [Event, Malformed]


def test_a_parameter_is_a_column_or_an_entry_of_event_params():
    assert parameter({"search_term": "sofa"}, "search_term") == "sofa"
    assert parameter(listed("sofa"), "search_term") == "sofa"
    assert parameter(listed("sofa"), "ga_session_id") == "5"
    assert parameter({"event_params": [3, {"key": "x", "value": 5}]}, "x") is None


# --- joining


def test_what_a_user_does_belongs_to_the_last_search_that_showed_the_item():
    result = joined(
        listed("sofa", "p1", "p2"),
        listed("blue sofa", "p2", "p3", at=NOON + 60 * SECOND),
        row("select_item", "p1", at=NOON + 70 * SECOND),
        row("select_item", "p2", at=NOON + 80 * SECOND),
        row("purchase", "p2", "p3", at=NOON + 5 * HOUR, transaction_id="t1", ga_session_id=6),
        row("select_item", "p2", at=NOON + 90 * SECOND, user="pseudo-two"),
    )
    assert result.labels() == {
        "sofa": {"p1": (0, True, False, False), "p2": (1, False, False, False)},
        "blue sofa": {"p2": (0, True, False, True), "p3": (1, False, False, True)},
    }
    assert fates(result)["click"] == {"read": 3, "used": 2, "unmatched": 1}


def test_pages_of_one_search_are_one_list_and_another_session_is_another():
    first = {"item_id": "p3", "item_name": "t", "item_list_index": "2"}
    result = joined(
        listed("sofa", "p1", "p2"),
        listed("sofa", first, at=NOON + 9 * SECOND),
        listed("sofa", "p1", "p2", at=NOON + HOUR, ga_session_id=6),
    )
    assert sorted(built.group.count for built in result.groups) == [2, 3]
    assert fates(result)["impression"] == {"read": 3, "used": 3}


def test_what_comes_before_the_search_or_too_late_is_counted_so():
    result = joined(
        listed("sofa", "p1", "p2"),
        row("select_item", "p1", at=NOON - SECOND),
        row("select_item", "p2", at=NOON + HOUR + SECOND),
        row("add_to_cart", "p9", at=NOON + SECOND),
    )
    assert fates(result) == {
        "impression": {"read": 1, "used": 1},
        "click": {"read": 2, "unmatched": 1, "late": 1},
        "add_to_cart": {"read": 1, "unmatched": 1},
    }
    assert result.named("refused") == {"before_impression": 1, "late": 1, "item_not_shown": 1}


def test_a_purchase_page_loaded_twice_counts_once():
    bought = row("purchase", "p1", at=NOON + HOUR, transaction_id="t1")
    again = row("purchase", "p1", at=NOON + HOUR + 40 * SECOND, transaction_id="t1")
    result = joined(listed("sofa", "p1", "p2"), bought, again)
    assert fates(result)["purchase"] == {"read": 2, "used": 1, "duplicate": 1}


def test_a_refund_takes_back_its_transactions_purchase_wherever_it_was_shown():
    result = joined(
        listed("sofa", "p1", "p2"),
        row("purchase", "p1", at=NOON + HOUR, transaction_id="t1"),
        listed("couch", "p1", "p2", at=NOON + 2 * HOUR),
        row("purchase", "p1", at=NOON + 3 * HOUR, transaction_id="t2"),
        row("refund", "p1", at=NOON + 9 * HOUR, transaction_id="t1"),
    )
    assert {query: items["p1"][3] for query, items in result.labels().items()} == {"sofa": False, "couch": True}


def test_a_refund_without_items_takes_back_the_whole_transaction():
    result = joined(
        listed("sofa", "p1", "p2"),
        listed("lamp", "p3", "p4", at=NOON + SECOND),
        row("purchase", "p1", "p3", at=NOON + HOUR, transaction_id="t1"),
        row("purchase", "p4", at=NOON + HOUR, transaction_id="t2"),
        row("refund", at=NOON + 9 * HOUR, transaction_id="t1"),
        row("refund", at=NOON + 9 * HOUR, transaction_id="t9"),
    )
    bought = {item for items in result.labels().values() for item, values in items.items() if values[3]}
    assert bought == {"p4"}
    # the first refund is one of each of two items
    assert fates(result)["refund"] == {"read": 3, "used": 2, "unmatched": 1}


def test_the_job_joins_a_ga4_export_and_no_user_reaches_it(tmp_path):
    rows = [listed(f"sofa {n}", "p1", "p2", "p3", user=f"pseudo-{n}") for n in range(8)]
    rows += [row("purchase", "p2", at=NOON + HOUR, user=f"pseudo-{n}", transaction_id=f"t{n}") for n in range(8)]
    rows += [row("select_item", "p7", user="pseudo-3", at=NOON + SECOND), *[row("session_start")] * 10, row("jane_doe")]
    config = write_task(
        tmp_path, {**DEMO, "price": {"type": "float", "level": "item", "default": 0}}, dataset={"reader": "ga4"}
    )
    manifest = build(config, write_jsonl(tmp_path / "events.json.gz", *rows), tmp_path / "dataset")
    assert manifest.events["purchase"].used == 8
    assert manifest.skipped == {"event_session_start": 10, "other": 1}
    for group in groups(tmp_path / "dataset").values():
        assert {entry["item_id"] for entry in group.items if entry["purchase"]} == {"p2"}
    dataset = tmp_path / "dataset"
    written = [record for split in ("train", "valid", "test") for record in records(dataset, split, "training")]
    assert len(written) == 8
    assert not any(b"pseudo" in record for record in written)
    letters = read_dead_letters(dataset)
    assert [letter["reason"] for letter in letters] == ["item_not_shown"]
    assert "pseudo" not in str(letters)
