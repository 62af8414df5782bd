"""Dead letters: events that a job could not use, with the reason and without any text of the log. Pure: no Beam.

Redaction is by allow-list. A letter holds the reason, the fate, a detail that describes values without showing them,
the file and line if known, and an outline of the event: known field names with the type of their values, plausible
timestamps, positions, and hashed ids. User ids are omitted.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from beam_jobs.sources.native_log import EVENT_TYPES, Event
from beam_jobs.sources.timestamps import unit_of
from features.values import describe_type

MAX_DEPTH = 4  # nesting depth of an outline
MAX_POSITION = 10_000  # larger positions are redacted: they might be other numbers
OTHER_FIELDS = "other_fields"  # key of the number of omitted fields
# Field names of the supported formats, which are not personal. Fields that identify a user are not listed.
_NATIVE_FIELDS = ("event_id", "timestamp_ms", "request_id", *EVENT_TYPES, "query", "items", "features", "locale")
_ITEM_FIELDS = ("item", "item_id", "position")
_UBI_FIELDS = (
    "_source", "action_name", "query_id", "timestamp", "user_query", "event_attributes", "object", "object_id",
    "description", "ordinal", "query_attributes", "query_response_id", "query_response_hit_ids",
)  # fmt: skip
_GA4_FIELDS = (
    "event_name", "event_timestamp", "event_params", "search_term", "ecommerce", "transaction_id", "item_name",
    "item_list_index",
)  # fmt: skip
_KNOWN_FIELDS = frozenset({*_NATIVE_FIELDS, *_ITEM_FIELDS, *_UBI_FIELDS, *_GA4_FIELDS})
_TIMESTAMP_FIELDS = frozenset({"timestamp_ms", "timestamp", "event_timestamp"})
_POSITION_FIELDS = frozenset({"position", "ordinal", "item_list_index"})


class RecordSource(NamedTuple):
    """Location of a record. line: from 1; the record number in Parquet and TFRecord files."""

    file: str
    line: int


class DeadLetters:
    """Makes the dead letters of one job.

    features: names of the task's features; their values are outlined too.
    key: 16 to 64 random bytes that key the id hashes, made for the job and not stored. Letters of one request share a
        hash, but the hash of a known id cannot be computed.
    """

    def __init__(self, features: Iterable[str], key: bytes) -> None:
        self._fields = _KNOWN_FIELDS | frozenset(features)
        self._key = key

    def line_letter(self, reason: str, detail: str, line: bytes, source: RecordSource) -> bytes:
        """Makes the letter of a line that is not an event or product row."""
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            record = None
        outline = self.outline(record) if isinstance(record, dict) else {"bytes": len(line)}
        return _letter("malformed", reason, detail, outline, source)

    def event_letter(self, fate: str, reason: str, detail: str, event: Event) -> bytes:
        """Makes the letter of an event that was read but not used."""
        body: dict[str, Any] = {}
        if "items" in event.body:
            body["items"] = describe_type(event.body["items"])
            body["query"] = describe_type(event.body.get("query"))
        if event.body.get("item_id"):
            body["item_id"] = self.hashed_id(event.body["item_id"])
        return _letter(fate, reason, detail, {**self._identity(event), event.type: body})

    def item_letter(self, reason: str, detail: str, impression: Event, item: Any) -> bytes:
        """Makes the letter of one refused item; the impression's other items are used."""
        outline: Any = describe_type(item)
        if isinstance(item, dict):
            outline = self.outline(item)
            if isinstance(item.get("item_id"), (str, int)):
                outline["item_id"] = self.hashed_id(item["item_id"])
        return _letter("malformed", reason, detail, {**self._identity(impression), "item": outline})

    def hashed_id(self, identifier: Any) -> str:
        """Hashes an id to 16 hexadecimal digits; equal ids have equal hashes within a job."""
        return hashlib.blake2b(str(identifier).encode(errors="replace"), digest_size=8, key=self._key).hexdigest()

    def outline(self, record: dict[str, Any], depth: int = 0) -> dict[str, Any]:
        """Maps the record's known fields to the types of their values, and counts the other fields."""
        known = {name: self._outlined(name, record[name], depth) for name in sorted(self._fields & record.keys())}
        return known if len(known) == len(record) else {**known, OTHER_FIELDS: len(record) - len(known)}

    def _outlined(self, name: str, value: Any, depth: int) -> Any:
        if isinstance(value, dict) and depth < MAX_DEPTH:
            return self.outline(value, depth + 1)
        if isinstance(value, bool) or not isinstance(value, int):
            return describe_type(value)
        is_time = name in _TIMESTAMP_FIELDS and unit_of(value) in ("milliseconds", "microseconds")
        return value if is_time or (name in _POSITION_FIELDS and abs(value) <= MAX_POSITION) else describe_type(value)

    def _identity(self, event: Event) -> dict[str, Any]:
        return {
            "event_id": self.hashed_id(event.event_id),
            "timestamp_ms": event.timestamp_ms,
            "request_id": self.hashed_id(event.request_id),
        }


def _letter(fate: str, reason: str, detail: str, event: Any, source: RecordSource | None = None) -> bytes:
    where = {"source": source._asdict()} if source else {}
    return orjson.dumps({"reason": reason, "fate": fate, "detail": detail, **where, "event": event})
