"""Reads OpenSearch User Behavior Insights records (`ubi_queries`, `ubi_events`; schema 1.3). Pure: no Beam.

Records may be in any order and file: plain NDJSON, bulk-index form (an action line before each record), or in
`_source`, as in index dumps.
"""

from collections.abc import Sequence
from typing import Any

from beam_jobs.joins.attribution import LoggedEvent, Request
from beam_jobs.joins.showings import assemble
from beam_jobs.sources.log_reader import LogReader
from beam_jobs.sources.native_log import (
    QUERY,
    UNKNOWN,
    Event,
    Malformed,
    ReadResult,
    Skipped,
    as_object,
    is_identifier,
    read_object,
)
from beam_jobs.sources.timestamps import BadTimestamp, read_instant
from features.values import describe_type

_POSITION_BASE = 1  # the schema's `position.ordinal` calls the first result 1
_ACTION_TYPES = {  # action_name -> type of event; any other action is skipped, and counted by its name
    "impression": "impression",
    "click": "click",
    "click_through": "click",
    "item_click": "click",
    "add_to_cart": "add_to_cart",
    "purchase": "purchase",
    "refund": "refund",
}
BULK_ACTIONS = ("index", "create", "update", "delete")


def read_ubi(line: bytes) -> tuple[ReadResult]:
    fields = read_object(line)
    if isinstance(fields, Malformed):
        return (fields,)
    if isinstance(fields.get("_source"), dict):
        fields = fields["_source"]
    if "action_name" in fields:
        return (_action(fields),)
    if "user_query" in fields:
        return (_query(fields),)
    if len(fields) == 1 and isinstance(fields.get(next(iter(fields))), dict) and next(iter(fields)) in BULK_ACTIONS:
        return (Skipped("bulk_action"),)
    return (Malformed(UNKNOWN, "no_ubi_record", "has neither action_name (ubi_events) nor user_query (ubi_queries)"),)


def query_id_of(event: Event) -> str:
    return event.request_id


def query_request(logged: Sequence[LoggedEvent]) -> tuple[Request]:
    return (assemble(logged, _POSITION_BASE),)


UBI = LogReader(read=read_ubi, key=query_id_of, requests=query_request, position_base=_POSITION_BASE)


def _action(fields: dict[str, Any]) -> ReadResult:
    action = fields["action_name"]
    kind = _ACTION_TYPES.get(action) if isinstance(action, str) else None
    if kind is None:
        return Skipped(f"action_{action}" if isinstance(action, str) else "unnamed_action")
    if not is_identifier(fields.get("query_id")):
        return Skipped(f"{action}_without_query_id")  # on a page not reached by a search
    attributes = as_object(fields.get("event_attributes"))
    item = as_object(attributes.get("object"))
    if not is_identifier(item.get("object_id")):
        detail = f"event_attributes.object.object_id is {describe_type(item.get('object_id'))}, expected text"
        return Malformed(kind, "object_id_missing", detail)
    item_id = str(item["object_id"])
    if kind != "impression":
        return _event(kind, fields, f"{action}/{item_id}", {"item_id": item_id})
    ordinal = as_object(attributes.get("position")).get("ordinal")
    if isinstance(ordinal, bool) or not isinstance(ordinal, int) or not 0 <= ordinal < 2**31:
        detail = f"event_attributes.position.ordinal is {describe_type(ordinal)}, expected a whole number, 1 at the top"
        return Malformed(kind, "ordinal_invalid", detail)
    title = item.get("description")
    shown_item = {"item_id": item_id, "position": ordinal, "features": {} if title is None else {"title": title}}
    body: dict[str, Any] = {"query": _text(fields), "items": [shown_item], "features": {}, "locale": ""}
    return _event(kind, fields, f"{action}/{item_id}/{ordinal}", body)


def _query(fields: dict[str, Any]) -> ReadResult:
    if not is_identifier(fields.get("query_id")):
        return Malformed(
            QUERY, "query_id_missing", f"query_id is {describe_type(fields.get('query_id'))}, expected text"
        )
    hits = fields.get("query_response_hit_ids")
    items = [
        {"item_id": item_id, "position": place, "features": {}}
        for place, item_id in enumerate(hits if isinstance(hits, list) else [], _POSITION_BASE)
    ]
    attributes = as_object(fields.get("query_attributes"))
    locale = attributes.get("locale")
    body = {
        "query": _text(fields),
        "items": items,
        "features": attributes,
        "locale": locale if isinstance(locale, str) else "",
    }
    return _event(QUERY, fields, f"{QUERY}/{fields.get('query_response_id')!s:.100}/{body['query']}", body)


def _event(kind: str, fields: dict[str, Any], identity: str, body: dict[str, Any]) -> Event | Malformed:
    """identity: distinguishes events of one query at the same time, since UBI records have no id."""
    timestamp_ms = read_instant(fields.get("timestamp"))
    if isinstance(timestamp_ms, BadTimestamp):
        return Malformed(kind, *timestamp_ms)
    user = fields.get("client_id")
    return Event(
        kind,
        f"{identity}/{timestamp_ms}",
        timestamp_ms,
        str(fields["query_id"]),
        str(user) if is_identifier(user) else "",
        body,
    )


def _text(fields: dict[str, Any]) -> str | None:
    text = fields.get("user_query")
    return text if isinstance(text, str) and text.strip() else None
