import orjson
import pytest

from beam_jobs.sources.native_log import MAX_LINE_BYTES, Event, Malformed, is_position, read_event
from tests.beam_jobs.log_lines import NOON, act, impression


def test_a_click_is_read_whole():
    event = read_event(orjson.dumps(act("click", "r1", "p1", at=NOON, event_id="e1")))
    assert event == Event("click", "e1", NOON, "r1", "user-one", {"item_id": "p1"})


def test_ids_may_be_numbers_and_a_timestamp_a_numeric_string():
    line = b'{"event_id":7,"timestamp_ms":"1718000000000","request_id":8,"user_id":9,"click":{"item_id":10}}'
    assert read_event(line) == Event("click", "7", NOON, "8", "9", {"item_id": 10})


def test_an_event_without_a_user_is_read():
    event = read_event(b'{"event_id":"e","timestamp_ms":1718000000000,"request_id":"r","purchase":{"item_id":"p"}}')
    assert isinstance(event, Event)
    assert event.user_id == ""


def without(name: str) -> bytes:
    return orjson.dumps({key: value for key, value in act("click", "r1", "p1").items() if key != name})


MALFORMED = {
    "not_json": (b'{"event_id": "e1", "timest', "unknown"),
    "not_an_object": (b"[1, 2]", "unknown"),
    "no_event_type": (without("click"), "unknown"),
    "event_id_missing": (without("event_id"), "click"),
    "request_id_missing": (without("request_id"), "click"),
    "timestamp_invalid": (without("timestamp_ms"), "click"),
    "user_id_invalid": (orjson.dumps({**act("click", "r1", "p1"), "user_id": ["u"]}), "click"),
    "click_invalid": (orjson.dumps({**act("click", "r1", "p1"), "click": {"item": "p1"}}), "click"),
    "impression_invalid": (orjson.dumps(impression("r1", "sofa")), "impression"),
    "line_too_long": (b" " * MAX_LINE_BYTES, "unknown"),
}


@pytest.mark.parametrize("reason", MALFORMED)
def test_a_line_that_is_no_event_says_why_and_keeps_its_type(reason):
    line, kind = MALFORMED[reason]
    found = read_event(line)
    assert isinstance(found, Malformed)
    assert (found.reason, found.type) == (reason, kind)


@pytest.mark.parametrize(
    "line",
    [b"\xff\xfe", b"\x00", b"[" * 100_000, b'{"a":' * 5000, b'"\\ud800"', b"null", b"1e999", b"{}", b'{"click":{}}'],
    ids=repr,
)
def test_hostile_lines_are_malformed_never_an_exception(line):
    assert isinstance(read_event(line), Malformed)


def test_two_event_types_on_one_line_are_no_event():
    both = {**act("click", "r1", "p1"), "purchase": {"item_id": "p1"}}
    found = read_event(orjson.dumps(both))
    assert isinstance(found, Malformed)
    assert found.reason == "no_event_type"


@pytest.mark.parametrize(
    "body",
    [
        {"items": [1], "query": "q"},
        {"items": {}, "query": "q"},
        {"items": [{}]},
        {"items": [{}], "query": "q", "features": 1},
        3,
    ],
    ids=repr,
)
def test_impressions_of_a_wrong_shape_are_malformed(body):
    found = read_event(orjson.dumps({**impression("r1", "q", "p1"), "impression": body}))
    assert isinstance(found, Malformed)
    assert found.reason == "impression_invalid"


def test_positions_are_whole_numbers_from_0():
    values = (None, 0, 3, -1, 1.0, True, "1", 2**31)
    assert [is_position(raw) for raw in values] == [False, True, True, False, False, False, False, False]
