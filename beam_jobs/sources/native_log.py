"""What a log event is, and reading native ones: a SearchEvent a line as JSON (see docs/logs.md). Pure: no Beam."""

from typing import Any, NamedTuple

import orjson

from features.values import shown

INTERACTIONS = ("click", "add_to_cart", "purchase")
REFUND = "refund"  # a return or a cancellation: it takes the item's purchase back
EVENT_TYPES = ("impression", *INTERACTIONS, REFUND)
QUERY = "query"  # only in logs that record a request's query apart from its impressions
UNKNOWN = "unknown"  # the type under which a line without a readable type is counted
MAX_LINE_BYTES = 16 * 1024 * 1024
LATEST_MS = 253_402_300_799_999  # the end of the year 9999


class Event(NamedTuple):
    """One log event. body: the impression or interaction, in the form that native logs have."""

    type: str  # one of EVENT_TYPES, or QUERY
    event_id: str
    timestamp_ms: int
    request_id: str
    user_id: str  # empty where the log has none
    body: dict[str, Any]


class Malformed(NamedTuple):
    """Why a line is no event. reason: a stable name; detail: for a person."""

    type: str
    reason: str
    detail: str


class Skipped(NamedTuple):
    """A record that is sound and none of the events that a dataset is made of. what: the name it is counted under."""

    what: str


Found = Event | Malformed | Skipped
"""What a reader finds in one record; a record may hold several."""


def read_object(line: bytes) -> dict[str, Any] | Malformed:
    """One line of a log, without its line end, as a JSON object."""
    if len(line) >= MAX_LINE_BYTES:
        return Malformed(UNKNOWN, "line_too_long", f"expected less than {MAX_LINE_BYTES} bytes")
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return Malformed(UNKNOWN, "not_json", str(error))
    if not isinstance(fields, dict):
        return Malformed(UNKNOWN, "not_an_object", f"is {type(fields).__name__}, expected a JSON object")
    return fields


def read_event(line: bytes) -> Event | Malformed:
    """One line of a native log, without its line end, as an event."""
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
            return Malformed(kind, f"{name}_missing", f"{name} is {shown(fields.get(name))}, expected text")
    timestamp_ms = read_timestamp(fields.get("timestamp_ms"))
    if timestamp_ms is None:
        detail = f"timestamp_ms is {shown(fields.get('timestamp_ms'))}, expected milliseconds since 1970"
        return Malformed(kind, "timestamp_invalid", detail)
    user_id = fields.get("user_id")
    if user_id is not None and not isinstance(user_id, (str, int)):
        return Malformed(kind, "user_id_invalid", f"user_id is {type(user_id).__name__}, expected text")
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
    )


def _impression_fault(body: Any) -> str | None:
    if not isinstance(body, dict):
        return f"impression is {shown(body)}, expected an object"
    items = body.get("items")
    if not isinstance(items, list) or not items:
        return f"items is {shown(items)}, expected a list with an item at least"
    if not isinstance(body.get("query"), str):
        return f"query is {shown(body.get('query'))}, expected text"
    if not isinstance(body.get("features") or {}, dict):
        return f"features is {shown(body['features'])}, expected an object"
    if not isinstance(body.get("locale") or "", str):
        return f"locale is {shown(body['locale'])}, expected text such as en-GB"
    if strangers := set(map(type, items)) - {dict}:
        index = next(place for place, item in enumerate(items) if type(item) in strangers)
        return f"item {index} is {shown(items[index])}, expected an object"
    return None


def _interaction_fault(body: Any) -> str | None:
    if not isinstance(body, dict) or not is_identifier(body.get("item_id")):
        return f"is {shown(body)}, expected an object with an item_id"
    return None


def as_object(raw: Any) -> dict[str, Any]:
    """`raw` where it is an object; an empty one where it is something else, or nothing."""
    return raw if isinstance(raw, dict) else {}


def is_identifier(raw: Any) -> bool:
    """Whether `raw` can be an id: text that is not blank, or a whole number."""
    return (isinstance(raw, str) and bool(raw.strip())) or (isinstance(raw, int) and not isinstance(raw, bool))


def read_timestamp(raw: Any) -> int | None:
    """Milliseconds since 1970 from a number or, as protobuf's JSON has it, from a numeric string; None for others."""
    if isinstance(raw, str) and raw.isascii() and raw.isdigit() and len(raw) <= 15:
        raw = int(raw)
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, int) or not 0 <= raw <= LATEST_MS:
        return None
    return raw


def read_position(raw: Any) -> int | None:
    """A shown item's position, 0 at the top; protobuf's JSON leaves a 0 out. None when it is none."""
    if raw is None:
        return 0
    if isinstance(raw, bool) or not isinstance(raw, int) or not 0 <= raw < 2**31:
        return None
    return raw
