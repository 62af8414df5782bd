"""Random shop logs for benchmarks: requests of 16 items, few interactions, a product table."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
from isal import igzip

ITEMS_PER_REQUEST = 16
_PRODUCTS = 20_000
_MIN_FILES = 4
_MAX_REQUESTS_PER_FILE = 20_000
_START_MS = 1_718_000_000_000  # milliseconds
_PROBABILITIES = {"click": 0.04, "add_to_cart": 0.01, "purchase": 0.005}  # per item


def write_logs(folder: Path, requests: int) -> None:
    """Writes events-*.jsonl.gz and products.jsonl.gz."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(3000)]
    products = [{"item_id": f"p{n}", "title": " ".join(rng.choices(words, k=8))} for n in range(_PRODUCTS)]
    _write(folder / "products.jsonl.gz", products)
    files = max(_MIN_FILES, -(-requests // _MAX_REQUESTS_PER_FILE))
    for file in range(files):
        events = (event for n in range(file, requests, files) for event in _request(n, words, rng))
        _write(folder / f"events-{file:03d}.jsonl.gz", events)


def _request(number: int, words: list[str], rng: random.Random) -> list[dict[str, Any]]:
    items = [f"p{place}" for place in rng.sample(range(_PRODUCTS), ITEMS_PER_REQUEST)]
    shown = [{"item_id": item, "position": place} for place, item in enumerate(items)]
    events: list[dict[str, Any]] = [{"impression": {"query": " ".join(rng.choices(words, k=2)), "items": shown}}]
    events += [
        {kind: {"item_id": item}} for item in items for kind, share in _PROBABILITIES.items() if rng.random() < share
    ]
    request = {"request_id": f"r{number}", "user_id": f"u{number % 1000}"}
    return [
        {"event_id": f"r{number}.{place}", "timestamp_ms": _START_MS + place * 1000, **request, **event}
        for place, event in enumerate(events)
    ]


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with igzip.open(path, "wb", compresslevel=2) as file:  # type: ignore[no-untyped-call]
        file.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
