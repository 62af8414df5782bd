"""Dead letters: what a job could not use, with the reason and without what tells who it was. Pure: no Beam.

Removed: every field that tells who it was (PERSONAL), what identifies a user wherever else it stands in the event
(IDENTITIES), e-mail addresses and IP addresses.
"""

import re
from typing import Any

import orjson

REMOVED = "[removed]"
MAX_CHARACTERS = 2000  # kept of a text, and of a line that is not JSON
MAX_DEPTH = 64
IDENTITIES = ("user_id", "client_id", "session_id", "user_pseudo_id", "ga_session_id")
PERSONAL = frozenset({*IDENTITIES, "ip", "ip_address", "browser", "user_agent", "device", "geo", "user_properties"})
_TOKEN = r"[^\s@%<>\"',;:()\[\]]"
_ADDRESSES = re.compile(
    rf"(?<!{_TOKEN}){_TOKEN}++(?:@|%40){_TOKEN}+\.{_TOKEN}+"  # e-mail-like; from a token's start, so in linear time
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b"  # IPv4
    r"|\b(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}\b"  # IPv6, written out
)
_USER_IN_TEXT = re.compile(
    rf"(\\*\"(?:{'|'.join(IDENTITIES)})\\*\"\s*:\s*)" + r"(\\*\"(?:[^\"\\]|\\.)*(?:\"|$)|[^,}\s]*)", re.IGNORECASE
)

Users = tuple[str, ...]
"""What identifies the user of an event."""


def dead_letter(reason: str, detail: str, line: bytes) -> bytes:
    """One dead letter as JSON. line: the event as it was read."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        event = None
    if not isinstance(event, dict):
        return _letter(reason, detail, {"line": _redacted_line(line)}, ())
    users = _users_of(event)
    return _letter(reason, detail, {"event": redact(event, users)}, users)


def item_dead_letter(reason: str, detail: str, request_id: str, user: str, item: Any) -> bytes:
    """The dead letter of one item of an impression whose other items are used."""
    users = (user,) if user else ()
    return _letter(reason, detail, {"event": redact({"request_id": request_id, "item": item}, users)}, users)


def _letter(reason: str, detail: str, content: dict[str, Any], users: Users) -> bytes:
    return orjson.dumps({"reason": reason, "detail": _redacted_text(detail, users), **content})


def _users_of(event: dict[str, Any]) -> Users:
    inner = event.get("_source")
    records = [event, inner] if isinstance(inner, dict) else [event]
    found = {str(record[name]) for record in records for name in IDENTITIES if isinstance(record.get(name), (str, int))}
    return tuple(sorted(found - {""}))


def redact(value: Any, users: Users, depth: int = 0) -> Any:
    """`value`, a JSON value, without user ids and addresses."""
    if depth > MAX_DEPTH:
        return REMOVED
    if isinstance(value, str):
        return _redacted_text(value, users)
    if isinstance(value, dict):
        if isinstance(value.get("key"), str) and value["key"] in PERSONAL:  # an entry of GA4's event_params
            return {"key": value["key"], "value": REMOVED}
        return {
            _redacted_text(key, users): redact(inner, users, depth + 1)
            for key, inner in value.items()
            if key.lower() not in PERSONAL
        }
    if isinstance(value, list):
        return [redact(inner, users, depth + 1) for inner in value]
    return REMOVED if str(value) in users else value


def _redacted_text(text: str, users: Users) -> str:
    for user in users:
        if text == user or (len(user) >= 4 and user in text):
            text = text.replace(user, REMOVED)
    return _ADDRESSES.sub(REMOVED, _shortened(text))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + " ..."


def _redacted_line(line: bytes) -> str:
    text = _shortened(line[: 4 * MAX_CHARACTERS + 4].decode("utf-8", "replace"))
    return _ADDRESSES.sub(REMOVED, _USER_IN_TEXT.sub(rf'\1"{REMOVED}"', text))
