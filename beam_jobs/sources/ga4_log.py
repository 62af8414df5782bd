"""Reads Google Analytics 4 rows from its BigQuery export: e-commerce events with `items[]`. Pure: no Beam.

Rows have no request id. The `view_item_list` rows of one user, session and search term make one impression; a later
interaction belongs to the last impression that showed its item (beam_jobs/joins/look_back.py).
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from beam_jobs.joins.attribution import LoggedEvent, Request
from beam_jobs.joins.look_back import requests_of_user
from beam_jobs.sources.log_reader import LogReader
from beam_jobs.sources.native_log import (
    REFUND,
    UNKNOWN,
    Event,
    Malformed,
    ReadResult,
    Skipped,
    as_object,
    is_identifier,
    read_object,
)
from beam_jobs.sources.timestamps import BadTimestamp, read_timestamp
from features.values import describe_type

_POSITION_BASE = 0  # Google's examples count `index` from 0
_EVENT_TYPES = {  # event_name -> type of event; any other event is skipped, and counted by its name
    "view_item_list": "impression",
    "select_item": "click",
    "add_to_cart": "add_to_cart",
    "purchase": "purchase",
    "refund": "refund",
}
# Item fields that describe the product; fields on placement or behaviour are not listed.
ITEM_FEATURES = (
    "item_brand", "item_variant", "item_category", "item_category2", "item_category3", "item_category4",
    "item_category5", "price", "price_in_usd", "affiliation",
)  # fmt: skip
_NOT_SET = ("(not set)", "(not provided)", "")


def read_ga4(line: bytes) -> list[ReadResult]:
    row = read_object(line)
    if isinstance(row, Malformed):
        return [row]
    name = row.get("event_name")
    if not isinstance(name, str):
        return [Malformed(UNKNOWN, "event_name_missing", f"event_name is {describe_type(name)}, expected text")]
    if name not in _EVENT_TYPES:
        return [Skipped(f"event_{name}")]
    return list(_events(_EVENT_TYPES[name], row))


def user_of(event: Event) -> str:
    return event.user_id


def users_requests(logged: Sequence[LoggedEvent]) -> Iterator[Request]:
    return requests_of_user(logged, _POSITION_BASE)


GA4 = LogReader(read=read_ga4, key=user_of, requests=users_requests, position_base=_POSITION_BASE)


def _events(kind: str, row: dict[str, Any]) -> Iterator[ReadResult]:
    micros: Any = row.get("event_timestamp")
    timestamp_ms = read_timestamp(micros, "event_timestamp", "microseconds")
    if isinstance(timestamp_ms, BadTimestamp):
        yield Malformed(kind, *timestamp_ms)
        return
    micros = int(micros)  # a number or digits, as read_timestamp has checked
    user = next((row[name] for name in ("user_pseudo_id", "user_id") if is_identifier(row.get(name))), None)
    if user is None:  # consent was refused: nothing ties the row to others
        yield Skipped(f"{kind}_without_user")
        return
    items = row.get("items")
    transaction = parameter(row, "transaction_id") or as_object(row.get("ecommerce")).get("transaction_id")
    transaction = str(transaction) if is_identifier(transaction) and transaction not in _NOT_SET else ""
    if kind == REFUND and transaction and not items:  # the whole transaction
        body = {"item_id": "", "transaction_id": transaction}
        yield Event(kind, f"{kind}/{transaction}", timestamp_ms, "", str(user), body)
    elif not isinstance(items, list) or not items:
        yield Malformed(
            kind, "items_missing", f"items is {describe_type(items)}, expected a list with an item at least"
        )
    elif kind == "impression":
        yield _impression(row, items, str(user), timestamp_ms, micros)
    else:
        when = transaction if kind in ("purchase", REFUND) and transaction else micros
        for item in items:
            item_id = as_object(item).get("item_id")
            if not is_identifier(item_id) or item_id in _NOT_SET:
                yield Malformed(kind, "item_id_missing", f"item_id is {describe_type(item_id)}, expected text")
            else:
                body = {"item_id": str(item_id), "transaction_id": transaction}
                yield Event(kind, f"{kind}/{when}/{item_id}", timestamp_ms, "", str(user), body)


def _impression(row: dict[str, Any], items: list[Any], user: str, timestamp_ms: int, micros: int) -> ReadResult:
    term = parameter(row, "search_term")
    if not isinstance(term, str) or not term.strip():
        return Skipped("view_item_list_without_search_term")  # a category, or recommendations
    session = parameter(row, "ga_session_id")
    if session is None:
        session = micros  # then each row is an impression of its own
    identity = _hash(f"{user}\x1f{session}\x1f{term}")
    language = as_object(row.get("device")).get("language")
    shown_items = [_item(item, place) for place, item in enumerate(items)]
    body = {
        "query": term,
        "items": shown_items,
        "features": {},
        "locale": language if isinstance(language, str) else "",
    }
    # the items are part of the id: one page may be logged as several rows with the same timestamp
    ids = "\x1f".join(str(item["item_id"]) for item in shown_items if is_identifier(item["item_id"]))
    return Event("impression", f"impression/{micros}/{_hash(ids)}", timestamp_ms, identity, user, body)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _item(raw: Any, place: int) -> dict[str, Any]:
    item = as_object(raw)
    features = {name: item[name] for name in ITEM_FEATURES if item.get(name) is not None and item[name] not in _NOT_SET}
    if isinstance(item.get("item_name"), str) and item["item_name"] not in _NOT_SET:
        features["title"] = item["item_name"]
    item_id = None if item.get("item_id") in _NOT_SET else item.get("item_id")
    return {"item_id": item_id, "position": _index(item, place), "features": features}


def _index(item: dict[str, Any], place: int) -> int:
    """Returns `item_list_index` (text in the export), or the item's index in the row if it is invalid."""
    raw = item.get("item_list_index")
    raw = int(raw) if isinstance(raw, str) and raw.isascii() and raw.isdigit() and len(raw) < 10 else raw
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw < 2**31 else place


def parameter(row: dict[str, Any], name: str) -> str | int | None:
    """Returns an event parameter: a column of the row, or a typed value in `event_params`."""
    found = row.get(name)
    entries = row.get("event_params")
    for entry in entries if found is None and isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("key") == name:
            values = as_object(entry.get("value"))
            found = values.get("string_value") if values.get("string_value") is not None else values.get("int_value")
    return found if is_identifier(found) and found not in _NOT_SET else None
