"""Dead letters: what a job could not use, with the reason and without what tells who it was. Pure: no Beam.

Removed: every `user_id`, its value wherever else it stands in the event, e-mail addresses and IP addresses.
"""

import re
from typing import Any

import orjson

REMOVED = "[removed]"
MAX_LINE_CHARACTERS = 2000  # kept of a line that is not JSON
MAX_DEPTH = 64
_ADDRESSES = re.compile(
    r"[^\s@<>\"',;:()\[\]]+(?:@|%40)[^\s@<>\"',;:()\[\]]+\.[^\s@<>\"',;:()\[\]]+"  # e-mail-like
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b"  # IPv4
    r"|\b(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}\b"  # IPv6, written out
)
_USER_IN_TEXT = re.compile(r"(\\*\"user_id\\*\"\s*:\s*)(\\*\"(?:[^\"\\]|\\.)*(?:\"|$)|[^,}\s]*)", re.IGNORECASE)


def dead_letter(reason: str, detail: str, line: bytes) -> bytes:
    """One dead letter as JSON. line: the event as it was read."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        event = None
    if not isinstance(event, dict):
        return _letter(reason, detail, {"line": _redacted_line(line)}, "")
    user = "" if event.get("user_id") is None else str(event["user_id"])
    return _letter(reason, detail, {"event": redact(event, user)}, user)


def item_dead_letter(reason: str, detail: str, request_id: str, user: str, item: Any) -> bytes:
    """The dead letter of one item of an impression whose other items are used."""
    event = redact({"request_id": request_id, "item": item}, user)
    return _letter(reason, detail, {"event": event}, user)


def _letter(reason: str, detail: str, content: dict[str, Any], user: str) -> bytes:
    return orjson.dumps({"reason": reason, "detail": _redacted_text(detail, user), **content})


def redact(value: Any, user: str, depth: int = 0) -> Any:
    """`value`, a JSON value, without user ids and addresses."""
    if depth > MAX_DEPTH:
        return REMOVED
    if isinstance(value, str):
        return _redacted_text(value, user)
    if isinstance(value, dict):
        return {
            _redacted_text(key, user): redact(inner, user, depth + 1)
            for key, inner in value.items()
            if key.lower() != "user_id"
        }
    if isinstance(value, list):
        return [redact(inner, user, depth + 1) for inner in value]
    return REMOVED if user and str(value) == user else value


def _redacted_text(text: str, user: str) -> str:
    if user and (text == user or (len(user) >= 4 and user in text)):
        text = text.replace(user, REMOVED)
    return _ADDRESSES.sub(REMOVED, text)


def _redacted_line(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    shortened = text if len(text) <= MAX_LINE_CHARACTERS else text[:MAX_LINE_CHARACTERS] + " ..."
    return _ADDRESSES.sub(REMOVED, _USER_IN_TEXT.sub(rf'\1"{REMOVED}"', shortened))
