"""OpenSearch UBI: what its records become, and the sample reconciled with counts made by other code."""

import gzip
from collections import Counter, defaultdict
from typing import Any

import orjson
import pytest

from beam_jobs.joins.log_names import MIN_RECORDS, OTHER_NAME
from beam_jobs.sources.native_log import Event, Malformed, Skipped
from beam_jobs.sources.products import ProductRow
from beam_jobs.sources.timestamps import BadTimestamp, read_instant
from beam_jobs.sources.ubi_log import read_ubi
from tests.beam_jobs.datasets import build, groups, write_task
from tests.beam_jobs.letor_sets import DATA
from tests.beam_jobs.log_lines import write_jsonl
from tests.beam_jobs.ubi_logs import event, query, shown
from tests.beam_jobs.without_runner import join

SAMPLE = DATA / "ubi_sample" / "ubi_queries_events.ndjson.gz"
CLICKS = ("click", "item_click")


def read(fields: Any) -> Any:
    (found,) = read_ubi(orjson.dumps(fields))
    return found


def without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def test_an_impression_record_is_an_impression_of_one_item():
    found = read(event("impression", "q1", "p1", 4, at="2025-01-22T14:57:25.099Z", user_query="gold"))
    assert isinstance(found, Event)
    assert (found.type, found.request_id, found.user_id, found.timestamp_ms) == (
        "impression", "q1", "client-one", 1737557845099,
    )  # fmt: skip
    assert found.body["query"] == "gold"
    assert found.body["items"] == [{"item_id": "p1", "position": 4, "features": {}}]


def test_an_objects_description_is_its_title():
    record = event("impression", "q1", "p1", 1)
    record["event_attributes"]["object"]["description"] = "Gold necklace"
    assert read(record).body["items"][0]["features"] == {"title": "Gold necklace"}


@pytest.mark.parametrize(
    ("action", "kind"), [("click", "click"), ("click_through", "click"), ("item_click", "click"),
                         ("add_to_cart", "add_to_cart"), ("purchase", "purchase"), ("refund", "refund")]
)  # fmt: skip
def test_actions_on_items_are_interactions(action, kind):
    found = read(event(action, "q1", "p1"))
    assert (found.type, found.request_id, found.body) == (kind, "q1", {"item_id": "p1"})


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ({"index": {"_index": "ubi_events", "_id": "1"}}, "bulk_action"),
        ({"create": {}}, "bulk_action"),
        (event("brand_filter", "q1", "x"), "action_brand_filter"),
        ({"action_name": 5}, "unnamed_action"),
        (without(event("click", "q1", "p1"), "query_id"), "click_without_query_id"),
    ],
)
def test_sound_records_that_are_no_search_or_interaction_are_skipped_by_name(record, what):
    assert read(record) == Skipped(what)


@pytest.mark.parametrize(
    ("record", "kind", "reason"),
    [
        ({"message": "hello"}, "unknown", "no_ubi_record"),
        ([1], "unknown", "not_an_object"),
        ({**event("click", "q1", "p1"), "event_attributes": None}, "click", "object_id_missing"),
        (event("impression", "q1", "p1"), "impression", "ordinal_invalid"),
        (event("impression", "q1", "p1", "3"), "impression", "ordinal_invalid"),
        (event("impression", "q1", "p1", -1), "impression", "ordinal_invalid"),
        (event("click", "q1", "p1", at="yesterday"), "click", "timestamp_invalid"),
        (event("click", "q1", "p1", at=-5), "click", "timestamp_implausible"),
        (without(query("q1", "sofa"), "query_id"), "query", "query_id_missing"),
    ],
)
def test_records_of_a_wrong_shape_say_why(record, kind, reason):
    found = read(record)
    assert isinstance(found, Malformed)
    assert (found.type, found.reason) == (kind, reason)


def test_a_record_in_source_is_read_as_itself():
    record = event("click", "q1", "p1")
    assert read({"_index": "ubi_events", "_id": "1", "_source": record}) == read(record)


def test_times_are_iso_8601_with_or_without_a_zone_or_milliseconds():
    written = ["2024-12-10T00:01:29.378Z", "2024-12-10T00:01:29.378+0000", "2024-12-10T01:01:29.378+01:00",
               "2024-12-10T00:01:29.378", 1733788889378, "1733788889378"]  # fmt: skip
    assert {read_instant(raw) for raw in written} == {1733788889378}
    none = ("0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z", "now", "", None)
    assert [isinstance(read_instant(raw), BadTimestamp) for raw in none] == [True] * 5


def lines(*records: dict[str, Any]) -> list[bytes]:
    return [orjson.dumps(record) for record in records]


TABLE = {f"p{n}": ProductRow(f"p{n}", 0, {"title": f"title {n}"}) for n in range(5)}


def test_queries_impressions_and_interactions_join_by_query_id():
    log = [
        *[
            query("q1", "gold ring"),
            *shown("q1", "p1", "p2"),
            event("click", "q1", "p2"),
            event("purchase", "q1", "p2"),
        ],
        *[query("q2", "silver", "p3", "p4"), event("add_to_cart", "q2", "p3")],
    ]
    joined = join(lines(*log), TABLE, reader="ubi")
    assert joined.labels() == {
        "gold ring": {"p1": (0, False, False, False), "p2": (1, True, False, True)},
        "silver": {"p3": (0, False, True, False), "p4": (1, False, False, False)},
    }
    assert {kind: counts.used for kind, counts in joined.events.items() if counts.used} == {
        "query": 2, "impression": 2, "click": 1, "add_to_cart": 1, "purchase": 1,
    }  # fmt: skip


def test_a_purchase_taken_back_is_no_label():
    log = [query("q1", "ring"), *shown("q1", "p1", "p2"), event("purchase", "q1", "p2"),
           event("refund", "q1", "p2", at="2025-01-25T00:00:00Z")]  # fmt: skip
    joined = join(lines(*log), TABLE, reader="ubi")
    assert joined.labels()["ring"]["p2"] == (1, False, False, False)
    assert (joined.events["purchase"].used, joined.events["refund"].used) == (1, 1)


def test_no_dead_letter_names_a_client_or_session():
    log = [event("click", "q9", "p1", user_id="user-one"), event("impression", "q1", "p1", user_id="user-one"),
           {"_source": event("click", "q9", "of client-one")}]  # fmt: skip
    letters = str(join(lines(*log), TABLE, reader="ubi").letters)
    assert letters.count("reason") == 3
    for name in ("client-one", "session-one", "user-one"):
        assert name not in letters


# --- the sample


def sample_records() -> list[dict[str, Any]]:
    with gzip.open(SAMPLE) as file:
        return [orjson.loads(line) for line in file]


def object_id(record: dict[str, Any]) -> str:
    return str(record["event_attributes"]["object"]["object_id"])


@pytest.mark.skipif(not SAMPLE.exists(), reason=f"no UBI sample at {SAMPLE}")
def test_the_sample_reconciles_to_what_is_truly_in_it(tmp_path):
    records = sample_records()
    plain = [record for record in records if "index" not in record]
    actions = [record for record in plain if "action_name" in record]
    impressions = [record for record in actions if record["action_name"] == "impression"]
    # the shop's own product table: every other item shown has a row in it, and logged descriptions are titles too
    items = sorted({object_id(record) for record in impressions})
    table = [{"item_id": item, "title": f"title of {item}"} for item in items[::2]]
    titled = {row["item_id"] for row in table}
    # one query id of the sample was used for hours, so a window of an hour would leave some of its clicks out
    config = write_task(tmp_path, dataset={"reader": "ubi", "windows_hours": {"click": 24}})
    products = write_jsonl(tmp_path / "products.jsonl", *table)
    manifest = build(config, SAMPLE, tmp_path / "dataset", "--products", products)

    # every line of the file: a bulk action, an action that is no event of ours, or read
    kept = {*CLICKS, "impression", "add_to_cart", "purchase"}
    other = Counter(f"action_{record['action_name']}" for record in actions if record["action_name"] not in kept)
    named = {name: count for name, count in other.items() if count >= MIN_RECORDS}
    rare = {OTHER_NAME: sum(other.values()) - sum(named.values())} if len(named) < len(other) else {}
    assert manifest.skipped == {"bulk_action": len(records) - len(plain), **named, **rare}
    read = {kind: counts.read for kind, counts in manifest.events.items()}
    assert sum(read.values()) + sum(manifest.skipped.values()) == len(records)
    assert read == {
        "query": len(plain) - len(actions),
        "impression": len(impressions),
        "click": sum(record["action_name"] in CLICKS for record in actions),
        "add_to_cart": sum(record["action_name"] == "add_to_cart" for record in actions),
        "purchase": 6,
        "refund": 0,
        "unknown": 0,
    }
    assert all(counts.reconciles for counts in manifest.events.values())

    # the purchases hit items that no search showed; interactions need an item with a title, shown for their query
    assert manifest.events["purchase"].unmatched == 6
    usable = usable_items(plain, impressions, titled)
    assert sum(split.groups for split in manifest.splits.values()) == len(usable)
    assert sum(split.items for split in manifest.splits.values()) == sum(map(len, usable.values()))
    built = {}
    for query_id, group in groups(tmp_path / "dataset").items():
        built[query_id] = {entry["item_id"] for entry in group.items}
        clicked = {entry["item_id"] for entry in group.items if entry["click"]}
        assert clicked == usable[query_id] & clicked_items(actions, query_id)
    assert built == usable
    # of 262 lists, those of one application count from 0
    assert any(warning.startswith("200 lists have positions from 0") for warning in manifest.warnings)


def usable_items(plain: list[Any], impressions: list[Any], titled: set[str]) -> dict[str, set[str]]:
    """query id -> items with a title, of the queries with two of them: counted from the records alone."""
    shown_for: dict[str, list[Any]] = defaultdict(list)
    for record in impressions:
        shown_for[record["query_id"]].append(record)
    described = {object_id(record) for record in impressions if record["event_attributes"]["object"].get("description")}
    found = {}
    for query_id, several in shown_for.items():
        in_time = sorted(several, key=lambda record: record["timestamp"])
        texts = Counter(record["user_query"] for record in in_time if record.get("user_query"))
        queries = [record for record in plain if record["query_id"] == query_id and "action_name" not in record]
        text = max(texts, key=lambda t: texts[t]) if texts else next((q["user_query"] for q in queries), None)
        if text and text.strip():
            of_text = {object_id(record) for record in several if record.get("user_query") in (None, "", text)}
            found[query_id] = of_text & (titled | described)
    for record in plain:  # results that the server listed, where nothing was recorded as shown
        hits = record.get("query_response_hit_ids")
        if hits and record["query_id"] not in shown_for:
            found[record["query_id"]] = set(hits) & titled
    return {query_id: items for query_id, items in found.items() if len(items) >= 2}


def clicked_items(actions: list[Any], query_id: str) -> set[str]:
    clicks = [record for record in actions if record["query_id"] == query_id and record["action_name"] in CLICKS]
    return {object_id(record) for record in clicks}
