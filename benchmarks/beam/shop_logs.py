"""A made-up shop's logs for benchmarks: requests of 16 items, a few interactions, a product table."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
from isal import igzip

ITEMS = 16  # a request
PRODUCTS = 20_000
FILES = 4  # at least
REQUESTS_A_FILE = 20_000  # at most
NOON = 1_718_000_000_000  # milliseconds
PROBABILITIES = {"click": 0.04, "add_to_cart": 0.01, "purchase": 0.005}  # of each for an item


def write_logs(folder: Path, requests: int) -> None:
    """Writes events-*.jsonl.gz and products.jsonl.gz."""
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9))) for _ in range(3000)]
    products = [{"item_id": f"p{n}", "title": " ".join(chance.choices(words, k=8))} for n in range(PRODUCTS)]
    _write(folder / "products.jsonl.gz", products)
    files = max(FILES, -(-requests // REQUESTS_A_FILE))
    for file in range(files):
        events = (event for n in range(file, requests, files) for event in _request(n, words, chance))
        _write(folder / f"events-{file:03d}.jsonl.gz", events)


def _request(number: int, words: list[str], chance: random.Random) -> list[dict[str, Any]]:
    items = [f"p{place}" for place in chance.sample(range(PRODUCTS), ITEMS)]
    shown = [{"item_id": item, "position": place} for place, item in enumerate(items)]
    events: list[dict[str, Any]] = [{"impression": {"query": " ".join(chance.choices(words, k=2)), "items": shown}}]
    events += [
        {kind: {"item_id": item}} for item in items for kind, share in PROBABILITIES.items() if chance.random() < share
    ]
    request = {"request_id": f"r{number}", "user_id": f"u{number % 1000}"}
    return [
        {"event_id": f"r{number}.{place}", "timestamp_ms": NOON + place * 1000, **request, **event}
        for place, event in enumerate(events)
    ]


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with igzip.open(path, "wb", compresslevel=2) as file:  # type: ignore[no-untyped-call]
        file.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
