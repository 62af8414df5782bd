"""Log lines for tests: small events with readable ids, and files of them."""

import gzip
from pathlib import Path
from typing import Any

import orjson

NOON = 1_718_000_000_000  # milliseconds
HOUR = 3_600_000

Fields = dict[str, Any]


def impression(request: str, query: str, *items: Any, at: int = NOON, user: str = "user-one", **more: Any) -> Fields:
    """items: ids (titled 'title of <id>'), or whole items. Positions are the places where they have none."""
    shown = []
    for place, item in enumerate(items):
        entry = {"item_id": item, "features": {"title": f"title of {item}"}} if isinstance(item, str) else dict(item)
        shown.append({"position": place, **entry})
    event_id = more.pop("event_id", f"{request}-shown")
    return {
        "event_id": event_id,
        "timestamp_ms": at,
        "request_id": request,
        "user_id": user,
        "impression": {"query": query, "items": shown, **more},
    }


def act(kind: str, request: str, item: str, at: int = NOON + 1000, **more: Any) -> Fields:
    """A click, add_to_cart or purchase."""
    event_id = more.pop("event_id", f"{request}-{kind}-{item}-{at}")
    event = {"event_id": event_id, "timestamp_ms": at, "request_id": request, "user_id": "user-one"}
    return {**event, kind: {"item_id": item}, **more}


def write_jsonl(path: Path, *rows: Fields | bytes) -> Path:
    """Rows as JSON lines, gzipped where the name says so; bytes are written as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = b"".join((row if isinstance(row, bytes) else orjson.dumps(row)) + b"\n" for row in rows)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read_jsonl(*paths: Path) -> list[Fields]:
    return [orjson.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]
