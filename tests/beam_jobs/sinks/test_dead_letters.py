"""Dead letters by allow-list: what they keep, what they leave out, and that hostile lines take no time."""

import time

import orjson
import pytest

from beam_jobs.sinks.dead_letters import MAX_DEPTH, OTHER_FIELDS, DeadLetters, RecordSource
from beam_jobs.sources.native_log import Event, read_event
from tests.beam_jobs.log_lines import NOON, act, impression

KEY = b"0123456789abcdef"
LETTERS = DeadLetters(["price"], KEY)
SOURCE = RecordSource("logs/events.jsonl", 17)


def line_letter(line: bytes) -> dict[str, object]:
    return dict(orjson.loads(LETTERS.line_letter("not_json", "why", line, SOURCE)))


def event_of(row: dict[str, object]) -> Event:
    event = read_event(orjson.dumps(row))
    assert isinstance(event, Event)
    return event


def test_a_letter_of_an_event_has_reason_fate_type_time_and_hashes():
    event = event_of(act("click", "r1", "p1", event_id="e1"))
    letter = orjson.loads(LETTERS.event_letter("late", "late", "5 ms", event))
    assert letter == {
        "reason": "late", "fate": "late", "detail": "5 ms",
        "event": {
            "event_id": LETTERS.hashed_id("e1"), "timestamp_ms": NOON + 1000, "request_id": LETTERS.hashed_id("r1"),
            "click": {"item_id": LETTERS.hashed_id("p1")},
        },
    }  # fmt: skip


def test_hashes_tie_letters_of_one_job_together_and_none_of_two():
    assert LETTERS.hashed_id("r1") == LETTERS.hashed_id("r1") != LETTERS.hashed_id("r2")
    assert LETTERS.hashed_id("r1") != DeadLetters([], b"fedcba9876543210").hashed_id("r1")


def test_a_letter_of_an_impression_has_sizes_alone():
    event = event_of(impression("r1", "gift for Jane", "p1", "p2"))
    letter = orjson.loads(LETTERS.event_letter("malformed", "too_few_items", "", event))
    assert letter["event"]["impression"] == {"items": "a list of 2", "query": "text of 13 characters"}


def test_a_letter_of_a_line_has_its_place_and_the_kinds_of_known_fields():
    row = {
        "user_id": "shopper-17",
        "timestamp_ms": NOON,
        "click": {"item_id": ["x"], "note": 1},
        "price": -3,
        "Jane": 1,
    }
    assert line_letter(orjson.dumps(row)) == {
        "reason": "not_json", "fate": "malformed", "detail": "why", "source": {"file": "logs/events.jsonl", "line": 17},
        "event": {
            "click": {"item_id": "a list of 1", OTHER_FIELDS: 1}, "price": "a negative whole number of 1 digit",
            "timestamp_ms": NOON, OTHER_FIELDS: 2,
        },
    }  # fmt: skip


@pytest.mark.parametrize("line", [b'{"user_id":"shopper-17","timest', b"[1, 2]", b"\xff\x00", b"5", b"x" * 10**6])
def test_a_line_that_is_no_object_tells_its_size_alone(line):
    assert line_letter(line)["event"] == {"bytes": len(line)}


def test_an_items_letter_has_its_request_place_and_the_kinds_of_its_features():
    impressed = event_of(impression("r1", "sofa", "p1"))
    item = {"item_id": "p1", "position": 3, "features": {"price": "cheap", "by": "Jane"}}
    letter = orjson.loads(LETTERS.item_letter("price_invalid", "price is text", impressed, item))
    assert letter["event"]["item"] == {
        "features": {"price": "text of 5 characters", OTHER_FIELDS: 1},
        "item_id": LETTERS.hashed_id("p1"), "position": 3,
    }  # fmt: skip


def test_numbers_that_might_be_anything_are_not_shown():
    found = line_letter(b'{"timestamp_ms": 32470123456, "position": 470123456, "item_id": 4111111111111111}')
    assert found["event"] == {
        "item_id": "a whole number of 16 digits", "position": "a whole number of 9 digits",
        "timestamp_ms": "a whole number of 11 digits",
    }  # fmt: skip


def test_deep_and_wide_lines_make_small_letters_at_once():
    deep = b'{"click":' * 200 + b"1" + b"}" * 200
    wide = orjson.dumps({f"jane {n}": n for n in range(200_000)})
    started = time.process_time()
    assert orjson.dumps(line_letter(deep)).count(b"click") == MAX_DEPTH + 1
    assert line_letter(wide)["event"] == {OTHER_FIELDS: 200_000}
    assert time.process_time() - started < 1
