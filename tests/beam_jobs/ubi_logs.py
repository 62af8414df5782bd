"""UBI records for tests, as ubi_queries and ubi_events have them."""

from typing import Any

Fields = dict[str, Any]


def query(query_id: str, text: str, *hits: str, at: Any = "2025-01-22T14:57:24.000Z", **more: Any) -> Fields:
    return {
        "application": "shop", "query_id": query_id, "client_id": "client-one", "user_query": text,
        "query_attributes": {}, "timestamp": at, "query_response_hit_ids": list(hits), **more,
    }  # fmt: skip


def event(action: str, query_id: str, item: str, ordinal: Any = None, at: Any = None, **more: Any) -> Fields:
    position = {} if ordinal is None else {"position": {"ordinal": ordinal}}
    return {
        "application": "shop", "action_name": action, "query_id": query_id, "session_id": "session-one",
        "client_id": "client-one", "timestamp": at or "2025-01-22T14:57:25.000Z",
        "event_attributes": {"object": {"object_id": item, "object_id_field": "sku"}, **position}, **more,
    }  # fmt: skip


def shown(query_id: str, *items: str, first: int = 1, **more: Any) -> list[Fields]:
    return [event("impression", query_id, item, place, **more) for place, item in enumerate(items, first)]
