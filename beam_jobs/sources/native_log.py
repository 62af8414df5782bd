"""Defines log events and reads native logs: one JSON SearchEvent per line (see docs/log-fields.md). Pure: no Beam."""

import heapq
from typing import Any, NamedTuple

import orjson

from beam_jobs.sources.timestamps import BadTimestamp, read_timestamp
from features.values import describe_type

INTERACTIONS = ("click", "add_to_cart", "purchase")
REFUND = "refund"  # a return or cancellation: cancels the item's purchase
EVENT_TYPES = ("impression", *INTERACTIONS, REFUND)
QUERY = "query"  # only in formats with separate query records
UNKNOWN = "unknown"  # counts lines without a readable type
MAX_LINE_BYTES = 16 * 1024 * 1024
UNREADABLE_RECORD = "privrank_unreadable_record"  # only field of a line that stands for a record without a JSON form
RECORD_FAULTS = {  # its values -> descriptions
    "row_not_utf8": "a column of the Parquet row holds text that is not UTF-8",
    "not_a_search_event": "the TFRecord holds no SearchEvent, or one with a number that is not finite",
}
# Fields of native events; other fields are ignored and counted by name.
_EVENT_FIELDS = frozenset({"event_id", "timestamp_ms", "request_id", "user_id", *EVENT_TYPES})
_BODY_FIELDS = {kind: frozenset({"item_id"}) for kind in EVENT_TYPES} | {
    "impression": frozenset({"query", "items", "features", "locale"})
}
_ITEM_FIELDS = frozenset({"item_id", "position", "features"})
MAX_IGNORED_FIELDS = 20  # reported per event


class Event(NamedTuple):
    """One log event. body: the impression or interaction in the native form.

    ignored: distinct fields that the job does not read, such as ('items', 'title') or ('', 'session').
    """

    type: str  # one of EVENT_TYPES, or QUERY
    event_id: str
    timestamp_ms: int
    request_id: str
    user_id: str  # empty where the log has none
    body: dict[str, Any]
    ignored: tuple[tuple[str, str], ...] = ()


class Malformed(NamedTuple):
    """Why a line is not an event. reason: a stable name; detail: human-readable."""

    type: str
    reason: str
    detail: str


class Skipped(NamedTuple):
    """A valid record that the dataset does not use. what: the name under which it is counted."""

    what: str


ReadResult = Event | Malformed | Skipped
"""One result of reading a record; a record may give several."""


def read_object(line: bytes) -> dict[str, Any] | Malformed:
    """Parses a log line (without line end) as a JSON object."""
    if len(line) >= MAX_LINE_BYTES:
        return Malformed(UNKNOWN, "line_too_long", f"expected less than {MAX_LINE_BYTES} bytes")
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return Malformed(UNKNOWN, "not_json", str(error))
    if not isinstance(fields, dict):
        return Malformed(UNKNOWN, "not_an_object", f"is {describe_type(fields)}, expected a JSON object")
    if fault := record_fault(fields):
        return Malformed(UNKNOWN, fault, RECORD_FAULTS[fault])
    return fields


def record_fault(fields: dict[str, Any]) -> str | None:
    """Returns the fault of a record without a JSON form; None for all others."""
    fault = fields.get(UNREADABLE_RECORD) if len(fields) == 1 else None
    return fault if isinstance(fault, str) and fault in RECORD_FAULTS else None


def read_event(line: bytes) -> Event | Malformed:
    """Parses a line of a native log (without line end) as an event."""
    fields = read_object(line)
    if isinstance(fields, Malformed):
        return fields
    types = [name for name in EVENT_TYPES if name in fields and fields[name] is not None]
    if len(types) != 1:
        return Malformed(UNKNOWN, "no_event_type", f"has {types or 'none'}, expected exactly one of {EVENT_TYPES}")
    return _event(types[0], fields)


def _event(kind: str, fields: dict[str, Any]) -> Event | Malformed:
    for name in ("event_id", "request_id"):
        if not is_identifier(fields.get(name)):
            return Malformed(kind, f"{name}_missing", f"{name} is {describe_type(fields.get(name))}, expected text")
    timestamp_ms = read_timestamp(fields.get("timestamp_ms"))
    if isinstance(timestamp_ms, BadTimestamp):
        return Malformed(kind, *timestamp_ms)
    user_id = fields.get("user_id")
    if user_id is not None and not isinstance(user_id, (str, int)):
        return Malformed(kind, "user_id_invalid", f"user_id is {describe_type(user_id)}, expected text")
    body = fields[kind]
    fault = _impression_fault(body) if kind == "impression" else _interaction_fault(body)
    if fault:
        return Malformed(kind, f"{kind}_invalid", fault)
    return Event(
        kind,
        str(fields["event_id"]),
        timestamp_ms,
        str(fields["request_id"]),
        "" if user_id is None else str(user_id),
        body,
        ignored_fields(kind, fields),
    )


def ignored_fields(kind: str, fields: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Returns the fields that native events do not have, at most MAX_IGNORED_FIELDS, sorted."""
    body = fields[kind]
    found = [("", name) for name in fields.keys() - _EVENT_FIELDS]
    found += [(kind, name) for name in body.keys() - _BODY_FIELDS[kind]]
    if kind == "impression":
        found += [("items", name) for name in set().union(*body["items"]) - _ITEM_FIELDS]
    return tuple(heapq.nsmallest(MAX_IGNORED_FIELDS, found)) if found else ()


def _impression_fault(body: Any) -> str | None:
    if not isinstance(body, dict):
        return f"impression is {describe_type(body)}, expected an object"
    items = body.get("items")
    if not isinstance(items, list) or not items:
        return f"items is {describe_type(items)}, expected a list with an item at least"
    if not isinstance(body.get("query"), str):
        return f"query is {describe_type(body.get('query'))}, expected text"
    if not isinstance(body.get("features") or {}, dict):
        return f"features is {describe_type(body['features'])}, expected an object"
    if not isinstance(body.get("locale") or "", str):
        return f"locale is {describe_type(body['locale'])}, expected text such as en-GB"
    if strangers := set(map(type, items)) - {dict}:
        index = next(place for place, item in enumerate(items) if type(item) in strangers)
        return f"item {index} is {describe_type(items[index])}, expected an object"
    return None


def _interaction_fault(body: Any) -> str | None:
    if not isinstance(body, dict) or not is_identifier(body.get("item_id")):
        return f"is {describe_type(body)}, expected an object with an item_id"
    return None


def as_object(raw: Any) -> dict[str, Any]:
    """Returns `raw` if it is an object, else an empty object."""
    return raw if isinstance(raw, dict) else {}


def is_identifier(raw: Any) -> bool:
    """Whether `raw` is a valid id: non-blank text or an integer."""
    return (isinstance(raw, str) and bool(raw.strip())) or (isinstance(raw, int) and not isinstance(raw, bool))


def is_position(raw: Any) -> bool:
    """Whether `raw` is a valid position: an integer, 0 at the top."""
    return isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw < 2**31
