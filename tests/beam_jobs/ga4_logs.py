"""Rows of GA4's BigQuery export for tests: numbers as text, parameters in event_params, as its JSON export has them."""

from typing import Any

Fields = dict[str, Any]
NOON = 1_718_000_000_000_000  # microseconds
SECOND = 1_000_000
HOUR = 3600 * SECOND


def row(name: str, *items: Any, at: int = NOON, user: str = "pseudo-one", **parameters: Any) -> Fields:
    """items: ids (named 'title of <id>'), or whole items. parameters: of the event; ga_session_id is 5 unless given."""
    given = {"ga_session_id": 5, **parameters}
    values = [
        {"key": key, "value": {"int_value": str(value)} if isinstance(value, int) else {"string_value": value}}
        for key, value in given.items()
        if value is not None
    ]
    whole = [{"item_id": item, "item_name": f"title of {item}"} if isinstance(item, str) else item for item in items]
    return {
        "event_date": "20240610", "event_timestamp": str(at), "event_name": name, "event_params": values,
        "user_pseudo_id": user, "items": whole, "ecommerce": {"transaction_id": parameters.get("transaction_id")},
        "device": {"language": "en-gb", "category": "desktop"},
    }  # fmt: skip


def listed(term: str | None, *items: Any, **more: Any) -> Fields:
    """The results of a search, or where `term` is None a category's list."""
    return row("view_item_list", *items, search_term=term, **more)
