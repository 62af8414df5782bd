"""Reading native log events: one SearchEvent a line as JSON (see docs/logs.md). Pure: no Beam."""

from typing import Any, NamedTuple

import orjson

INTERACTIONS = ("click", "add_to_cart", "purchase")
EVENT_TYPES = ("impression", *INTERACTIONS)
UNKNOWN = "unknown"  # the type under which a line without a readable type is counted
MAX_LINE_BYTES = 16 * 1024 * 1024
LATEST_MS = 253_402_300_799_999  # the end of the year 9999


class Event(NamedTuple):
    """One log event. body: the impression or interaction, as the log has it."""

    type: str  # impression | click | add_to_cart | purchase
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


def read_event(line: bytes) -> Event | Malformed:
    """One line of a log, without its line end, as an event."""
    if len(line) >= MAX_LINE_BYTES:
        return Malformed(UNKNOWN, "line_too_long", f"expected less than {MAX_LINE_BYTES} bytes")
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return Malformed(UNKNOWN, "not_json", str(error))
    if not isinstance(fields, dict):
        return Malformed(UNKNOWN, "not_an_object", f"is {type(fields).__name__}, expected a JSON object")
    types = [name for name in EVENT_TYPES if fields.get(name) is not None]
    if len(types) != 1:
        return Malformed(UNKNOWN, "no_event_type", f"has {types or 'none'}, expected exactly one of {EVENT_TYPES}")
    return _event(types[0], fields)


def _event(kind: str, fields: dict[str, Any]) -> Event | Malformed:
    for name in ("event_id", "request_id"):
        if not is_identifier(fields.get(name)):
            return Malformed(kind, f"{name}_missing", f"{name} is {_shown(fields.get(name))}, expected text")
    timestamp_ms = read_timestamp(fields.get("timestamp_ms"))
    if timestamp_ms is None:
        shown = _shown(fields.get("timestamp_ms"))
        return Malformed(kind, "timestamp_invalid", f"timestamp_ms is {shown}, expected milliseconds since 1970")
    user_id = fields.get("user_id")
    if user_id is not None and not isinstance(user_id, (str, int)):
        return Malformed(kind, "user_id_invalid", f"user_id is {type(user_id).__name__}, expected text")
    body = fields[kind]
    detail = _impression_fault(body) if kind == "impression" else _interaction_fault(body)
    if detail:
        return Malformed(kind, f"{kind}_invalid", detail)
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
        return f"impression is {_shown(body)}, expected an object"
    items = body.get("items")
    if not isinstance(items, list) or not items:
        return f"items is {_shown(items)}, expected a list with an item at least"
    if not isinstance(body.get("query"), str):
        return f"query is {_shown(body.get('query'))}, expected text"
    if not isinstance(body.get("features") or {}, dict):
        return f"features is {_shown(body['features'])}, expected an object"
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            return f"item {index} is {_shown(item)}, expected an object"
    return None


def _interaction_fault(body: Any) -> str | None:
    if not isinstance(body, dict) or not is_identifier(body.get("item_id")):
        return f"is {_shown(body)}, expected an object with an item_id"
    return None


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


def _shown(raw: Any) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else text[:57] + "..."
