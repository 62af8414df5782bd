"""What the OpenAPI document cannot say of a body, so that schemathesis takes no such body for one that is right."""

from typing import Any

import schemathesis


@schemathesis.hook
def filter_body(context: Any, body: Any) -> bool:
    """Whether ids are unique in each request: one that is given may be the index of another item, too."""
    queries = body.get("queries") if isinstance(body, dict) and "queries" in body else [body]
    return all(_ids_are_unique(query) for query in queries) if isinstance(queries, list) else True


def _ids_are_unique(query: Any) -> bool:
    items = query.get("items") if isinstance(query, dict) else None
    if not isinstance(items, list):
        return True
    ids = [
        item["id"] if isinstance(item, dict) and isinstance(item.get("id"), str) else str(index)
        for index, item in enumerate(items)
    ]
    return len(set(ids)) == len(ids)
