"""Log text is hostile: whatever a line holds, it is counted once, stops nothing, and names no user."""

import json
import math
import time
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_jobs.sources.native_log import MAX_LINE_BYTES
from beam_jobs.sources.products import MalformedProduct, read_product
from features.spec import spec_from_json
from tests.beam_jobs import ga4_logs, ubi_logs
from tests.beam_jobs.datasets import ANY_LOSS, build, groups, read_dead_letters, write_task
from tests.beam_jobs.log_lines import NOON, act, impression, write_jsonl
from tests.beam_jobs.without_runner import Joined, join
from tests.features.specs import DEMO

RICH = {
    **DEMO,
    "price": {"type": "float", "level": "item", "default": 0},
    "picture": {"type": "float", "level": "item", "length": 2, "default": [0, 0]},
    "brand": {"type": "categorical", "level": "item", "default": ""},
    "shop": {"type": "text", "level": "context", "default": "web"},
}
SECRET = "zq-secret-user"
LOGS: dict[str, list[dict[str, Any]]] = {
    "native": [
        impression("r1", "sofa", "p1", {"item_id": "p2", "features": {"title": "t", "price": 2, "picture": [1, 2]}},
                   user=SECRET, features={"shop": "app"}, locale="en-GB"),
        act("click", "r1", "p2", user_id=SECRET), act("purchase", "r1", "p2"),
        act("refund", "r1", "p2", at=NOON + 9000),
    ],
    "ubi": [
        ubi_logs.query("q1", "sofa", "p1", "p2"),
        *ubi_logs.shown("q1", "p1", "p2", client_id=SECRET, session_id=SECRET),
        ubi_logs.event("click", "q1", "p2", client_id=SECRET), {"index": {"_index": "ubi_events"}},
    ],
    "ga4": [
        ga4_logs.listed("sofa", "p1", "p2", user=SECRET), ga4_logs.row("select_item", "p2", user=SECRET),
        ga4_logs.row("purchase", "p2", user=SECRET, transaction_id="t1", at=ga4_logs.NOON + ga4_logs.HOUR),
        ga4_logs.row("refund", user=SECRET, transaction_id="t1", at=ga4_logs.NOON + 2 * ga4_logs.HOUR),
    ],
}  # fmt: skip
TEXTS = ["", "  ", "\0", "a\0b", "🛋️", "مرحبا \u202e", "\u200b", "ｓｏｆａ", "<script>", "NaN", "-1", "1e999"]


DEEP = "put 900 nested objects here"


def deep(levels: int) -> Any:
    inner: Any = 1
    for level in range(levels):
        inner = [inner] if level % 2 else {"a": inner}
    return inner


def line_of(record: Any) -> bytes:
    """A record's line; bytes as they are. Nested deeper than the writer of JSON goes where it says DEEP."""
    if isinstance(record, bytes):
        return record
    return orjson.dumps(record).replace(orjson.dumps(DEEP), b'{"a":' * 900 + b"1" + b"}" * 900)


HOSTILE = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(TEXTS), st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.lists(st.none() | st.integers(-5, 5), max_size=3),
    st.dictionaries(st.text("ab", max_size=3), st.booleans(), max_size=2), st.builds(deep, st.integers(1, 200)),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, as the keys that lead there."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = with_value(value[path[0]], path[1:], new)
    return copied


@st.composite
def broken_logs(draw: st.DrawFn, reader: str) -> list[bytes]:
    """A sound log of which some values, anywhere, are something else, and some lines cut or of other bytes."""
    lines = []
    for record in LOGS[reader]:
        for _ in range(draw(st.integers(0, 2))):
            found = places(record)
            record = with_value(record, found[draw(st.integers(0, len(found) - 1))], draw(HOSTILE))
        try:
            line = orjson.dumps(record)
        except TypeError:  # too deep for it, which a log may be
            line = json.dumps(record).encode()
        harm = draw(st.sampled_from(["none"] * 6 + ["cut", "bytes", "twice"]))
        if harm == "cut":
            line = line[: draw(st.integers(1, len(line)))]
        elif harm == "bytes":
            line = line.replace(b"p2", draw(st.binary(min_size=1, max_size=4)))
        lines += [line] * (2 if harm == "twice" else 1)
    return lines


def checked(joined: Joined) -> Joined:
    """What holds whatever the log: counts reconcile, groups have the types of the spec, no user is named."""
    assert joined.events
    assert sum(counts.malformed for counts in joined.events.values()) >= joined.tally["unreadable"]
    for built in joined.groups:
        assert built.group.count >= 2
        assert {len(column) for column in built.group.items.values()} == {built.group.count}
        for title, price in zip(built.group.items["title"], built.group.items["price"], strict=True):
            assert isinstance(title, str)
            assert "\0" not in title
            assert math.isfinite(price)  # type: ignore[arg-type]
    assert len(joined.letters) <= sum(joined.named("refused").values())
    return joined


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@pytest.mark.parametrize("reader", LOGS)
@given(data=st.data())
def test_a_log_with_values_of_any_kind_reconciles_and_stops_nothing(reader, data):
    checked(join(data.draw(broken_logs(reader)), features=RICH, reader=reader))


@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("reader", LOGS)
@given(lines=st.lists(st.binary(min_size=1, max_size=30) | st.builds(orjson.dumps, HOSTILE), max_size=5))
def test_lines_of_any_bytes_are_malformed_or_skipped(reader, lines):
    joined = checked(join(lines, features=RICH, reader=reader))
    assert not joined.groups
    read = sum(counts.read for counts in joined.events.values())
    assert read + sum(joined.named("skipped").values()) >= len(lines)


@pytest.mark.parametrize("reader", LOGS)
def test_sound_logs_make_a_group_and_their_dead_letters_name_nobody(reader):
    # so that the properties above do not hold for the reason that nothing is ever read
    lines = [orjson.dumps(record) for record in LOGS[reader]]
    joined = checked(join(lines, features=RICH, reader=reader, min_items=1))
    assert len(joined.groups) == (0 if reader == "ubi" else 1)  # its titles stand in a product table
    refused = join(lines[1:], features=RICH, reader=reader)
    assert refused.letters or reader == "ga4"
    assert SECRET not in str([*joined.letters, *refused.letters])


NAUGHTY: dict[str, Any] = {
    "deep json": DEEP,
    "deep json beyond the parser": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "invalid utf-8": b'{"event_id": "\xff\xfe"}',
    "lone surrogate": b'{"event_id": "\\ud800"}',
    "not a number": b'{"event_id": "e", "timestamp_ms": NaN}',
    "infinity": b'{"event_id": "e", "timestamp_ms": Infinity}',
    "10 MB": {**act("click", "r9", "p1"), "note": "x" * 10_000_000},
    "10 MB of addresses": {**act("click", "r9", "p1"), "note": "a@b " * 2_500_000},
    "10 MB query": impression("r8", "q" * 10_000_000, "p1", "p2"),
    "too long": b'{"a": "' + b"y" * MAX_LINE_BYTES + b'"}',
    "deep feature": impression("r7", "lamp", "p1", {"item_id": "p2", "features": {"title": DEEP}}),
    "deep ids": impression("r6", "lamp", {"item_id": DEEP}, {"item_id": "p1", "position": DEEP}),
    "deep vector": impression("r5", "lamp", "p1", {"item_id": "p3", "features": {"title": "t", "picture": [DEEP, 1]}}),
    "numbers as text": impression("r4", "lamp", "p1", {"item_id": "p3", "position": "2", "features": {"price": "3"}}),
    "negative time": act("click", "r1", "p1", at=-5),
    "huge number": b'{"timestamp_ms": 5, "click": {"item_id": "p"}, "event_id": ' + b"9" * 5000 + b"}",
}  # fmt: skip


@pytest.mark.parametrize("what", NAUGHTY)
def test_a_hostile_line_beside_a_sound_request_takes_nothing_from_it(what):
    line = line_of(NAUGHTY[what])
    sound = [orjson.dumps(record) for record in LOGS["native"]]
    started = time.process_time()
    joined = checked(join([*sound, line[:MAX_LINE_BYTES]], features=RICH))
    assert "sofa" in joined.labels()
    assert len(str(joined.letters)) < 100_000
    assert time.process_time() - started < 5


def test_a_job_of_hostile_lines_writes_what_was_sound(tmp_path):
    naughty = [line_of(record) for record in NAUGHTY.values()]
    logs = write_jsonl(tmp_path / "events.jsonl.gz", *naughty, *LOGS["native"], impression("r0", "مرحبا 🛋️", "p1", "p2"))
    rows = [line_of({"item_id": "p1", "title": DEEP}), line_of({"item_id": "p1", "brand": "\0"})]
    table = write_jsonl(tmp_path / "p.jsonl", *rows)
    config = write_task(tmp_path, RICH, dataset={"limits": ANY_LOSS})
    manifest = build(config, logs, tmp_path / "dataset", "--products", table)
    queries = {group.context["query"] for group in groups(tmp_path / "dataset").values()}
    assert {"sofa", "مرحبا 🛋️"} <= queries
    assert sum(counts.read for counts in manifest.events.values()) == len(naughty) + len(LOGS["native"]) + 1
    assert SECRET not in str(read_dead_letters(tmp_path / "dataset"))


@settings(max_examples=100, deadline=None)
@given(HOSTILE, st.sampled_from(["item_id", "title", "price", "timestamp_ms"]))
def test_a_product_row_of_any_values_is_a_row_or_says_why(value, name):
    row = read_product(orjson.dumps({"item_id": "p1", "title": "t", name: value}), spec_from_json(RICH))
    assert isinstance(row, MalformedProduct) or set(row.features) <= {"title", "price"}
