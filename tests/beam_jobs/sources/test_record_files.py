"""Files that are no JSON lines: each format gives the very records that JSON lines would, and damage is told."""

import gzip
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.json_format import ParseDict

from beam_jobs.sources.native_log import UNREADABLE_RECORD, read_event
from beam_jobs.sources.products import MalformedProduct, ProductRow, read_product
from beam_jobs.sources.reading import UnreadableFileError, read_lines
from beam_jobs.storage.tfrecords import frame_record, record_writer
from features.spec import spec_from_json
from protos.search_log_pb2 import SearchEvent
from tests.beam_jobs.datasets import ANY_LOSS, build, groups, read_dead_letters, write_task
from tests.beam_jobs.log_lines import NOON, act, impression, write_jsonl
from tests.features.specs import DEMO

PRICED = {
    **DEMO,
    "price": {"type": "float", "level": "item", "default": 0},
    "new": {"type": "bool", "level": "item", "default": False},
}


def rows(path: Path) -> list[Any]:
    return [orjson.loads(line) for line in read_lines(str(path))]


def request(name: str) -> list[dict[str, Any]]:
    """A search with a click and a purchase of its second item; titles stand in the product table."""
    shown = impression(name, f"query {name}", {"item_id": "p1"}, {"item_id": "p2", "features": {"price": 7.5}})
    return [shown, act("click", name, "p2"), act("purchase", name, "p2")]


def write_parquet(path: Path, *table: dict[str, Any]) -> Path:
    columns = list(dict.fromkeys(name for row in table for name in row))
    path.parent.mkdir(parents=True, exist_ok=True)
    written = pa.table({name: [row.get(name) for row in table] for name in columns})
    pq.write_table(written, path, compression="none", use_dictionary=False, write_statistics=False)
    return path


def write_tfrecords(path: Path, *events: dict[str, Any]) -> Path:
    with record_writer(str(path)) as write:
        for event in events:
            write(ParseDict(event, SearchEvent()).SerializeToString())
    return path


def test_logs_of_every_format_join_in_one_job(tmp_path):
    logs = tmp_path / "logs"
    write_jsonl(logs / "a.jsonl", *request("lines"))
    write_jsonl(logs / "b.jsonl.gz", *request("zipped"))
    write_parquet(logs / "c.parquet", *request("rows"))
    write_tfrecords(logs / "d.tfrecord-00000-of-00001.gz", *request("protos")[:2])
    write_tfrecords(tmp_path / "more.tfrecord.gz", *request("protos")[2:])
    table = write_jsonl(tmp_path / "one.jsonl", {"item_id": "p1", "title": "first", "price": 1})
    second = tmp_path / "two.csv"
    second.write_text("item_id,title,price,new\np2,second,3,TRUE\n")
    config = write_task(tmp_path, PRICED)
    manifest = build(
        config, logs / "*", tmp_path / "dataset", "--input", logs / "*", tmp_path / "more.tfrecord.gz",
        "--products", table, second,
    )  # fmt: skip
    found = groups(tmp_path / "dataset")
    assert sorted(found) == ["lines", "protos", "rows", "zipped"]
    for group in found.values():
        items = {entry["item_id"]: entry for entry in group.items}
        names = ("title", "price", "new", "position", "click", "purchase")
        assert [items["p1"][name] for name in names] == ["first", 1.0, False, 0, False, False]
        assert [items["p2"][name] for name in names] == ["second", 7.5, True, 1, True, True]
    assert {kind: counts.used for kind, counts in manifest.events.items() if counts.read} == {
        "impression": 4, "click": 4, "purchase": 4,
    }  # fmt: skip


def test_parquet_columns_become_what_json_has(tmp_path):
    when = datetime(2024, 6, 10, 6, 13, 20, tzinfo=UTC)
    path = write_parquet(tmp_path / "t.parquet", {
        "at": when, "naive": when.replace(tzinfo=None), "price": Decimal("2.50"), "none": None, "ids": ["a", "b"],
        "inner": {"x": 1, "y": None},
    })  # fmt: skip
    assert rows(path) == [
        {"at": NOON, "naive": NOON, "price": 2.5, "none": None, "ids": ["a", "b"], "inner": {"x": 1, "y": None}}
    ]


def test_a_row_of_invalid_utf_8_is_one_malformed_row(tmp_path):
    rows_of = [act("click", f"r{n}", "p1") for n in range(3)]
    path = write_parquet(tmp_path / "logs" / "events.parquet", *rows_of, *request("whole"))
    content = path.read_bytes()
    assert content.count(b"r1-click") > 0
    path.write_bytes(content.replace(b"r1-click", b"r1-\xff\xfeick"))  # the values, which are not compressed
    found = rows(path)
    assert [row.get("request_id") for row in found] == ["r0", None, "r2", *["whole"] * 3]
    table = write_jsonl(tmp_path / "p.jsonl", {"item_id": "p1", "title": "t"}, {"item_id": "p2", "title": "t"})
    config = write_task(tmp_path, dataset={"limits": ANY_LOSS})
    manifest = build(config, path, tmp_path / "dataset", "--products", table)
    assert manifest.refused == {"row_not_utf8": 1, "unknown_request": 2}
    assert manifest.events["purchase"].used == 1
    (letter,) = [entry for entry in read_dead_letters(tmp_path / "dataset") if entry["reason"] == "row_not_utf8"]
    assert letter["source"] == {"file": str(path), "line": 2}


def test_search_events_become_native_lines(tmp_path):
    event = impression("r1", "sofa", {"item_id": "p1", "features": {"title": "t", "price": 3}}, locale="en-GB")
    (found,) = rows(write_tfrecords(tmp_path / "x.tfrecord.gz", event))
    shown = {**event["impression"], "items": [{"item_id": "p1", "features": {"title": "t", "price": 3.0}}]}
    shown.pop("features", None)
    assert found == {**event, "timestamp_ms": str(NOON), "impression": shown}


def test_records_that_are_no_search_event_are_single_malformed_lines(tmp_path):
    infinite = SearchEvent(event_id="e")
    infinite.impression.features["price"] = float("inf")
    with record_writer(str(tmp_path / "x.tfrecord.gz")) as write:
        write(b"\xff\xfe user-one")
        write(infinite.SerializeToString())
        write(SearchEvent(event_id="e").SerializeToString())
    found = rows(tmp_path / "x.tfrecord.gz")
    assert found == [*[{UNREADABLE_RECORD: "not_a_search_event"}] * 2, {"event_id": "e"}]
    read = [read_event(orjson.dumps(row)) for row in found]
    assert [entry.reason for entry in read] == ["not_a_search_event", "not_a_search_event", "no_event_type"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.parquet", b"PAR1 nothing else"),
        ("none.parquet", b""),
        ("cut.tfrecord", frame_record(b"whole") + frame_record(b"cut short")[:-3]),
        ("head.tfrecord", frame_record(b"whole") + b"\x05"),
        ("flipped.tfrecord", frame_record(b"whole").replace(b"whole", b"whale")),
        ("size.tfrecord", b"\xff" * 100),
        ("plain.csv.gz", b"item_id,title\n"),
        ("huge.csv", b"item_id,title\np1," + b"x" * (16 * 1024 * 1024 + 1)),
    ],
)
def test_damaged_files_stop_reading_with_their_name(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableFileError, match=rf"{name} cannot read to its end: \w+"):
        rows(tmp_path / name)


# --- product tables


def product(row: Any) -> ProductRow | MalformedProduct:
    return read_product(orjson.dumps(row), spec_from_json(PRICED))


def csv_rows(path: Path, content: bytes) -> list[Any]:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return rows(path)


def test_csv_cells_are_text_and_empty_ones_absent(tmp_path):
    content = '\ufeffitem_id,title,price\n007,"Sofa, ""blue""\nwide",12.5\np2,,\n\np3,x\np4,x,1,2\n'.encode()
    assert csv_rows(tmp_path / "t.csv.gz", content) == [
        {"item_id": "007", "title": 'Sofa, "blue"\nwide', "price": "12.5"}, {"item_id": "p2"}, ["p3", "x"],
        ["p4", "x", "1", "2"],
    ]  # fmt: skip


def test_csv_in_another_encoding_is_read_and_an_empty_file_has_no_rows(tmp_path):
    latin = csv_rows(tmp_path / "latin.csv", b"item_id,title\np1,caf\xe9 \x00\n")
    assert latin == [{"item_id": "p1", "title": "caf\ufffd \0"}]
    assert csv_rows(tmp_path / "empty.csv", b"") == []


def test_text_is_a_number_where_the_task_has_one():
    row = {"item_id": 7, "title": "1984", "price": "12.5", "new": "True", "timestamp_ms": "1718000000000"}
    assert product(row) == ProductRow("7", NOON, {"title": "1984", "price": 12.5, "new": True})
    assert product({"item_id": "p", "price": "12,50"}) == ProductRow(
        "p", 0, {"price": "12,50"}
    )  # refused with its item


def test_columns_that_the_task_does_not_have_are_not_kept():
    assert product({"item_id": "p", "title": "t", "margin": 3, "tags": [[1]]}) == ProductRow("p", 0, {"title": "t"})


def test_rows_that_are_no_product_say_why():
    assert [product(row).reason for row in (["p3", "x"], {"title": "t"}, {"item_id": "p", "timestamp_ms": -1})] == [  # type: ignore[union-attr]
        "product_not_an_object", "product_item_id_missing", "product_timestamp_implausible",
    ]  # fmt: skip
