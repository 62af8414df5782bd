"""The peer of build_elwc: a plain Python program for the demo's features, in memory and without a framework.

It uses the same JSON parser, join, attribution, split, order, protobuf messages, framing and compression, so it writes
the same records; its statistics are plain sums. It validates no values, has no dead letters and fails on a bad line.
"""

import contextlib
import gzip
import hashlib
import struct
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import orjson

from protos import elwc_pb2

_KINDS = ("click", "add_to_cart", "purchase")
_Event = dict[str, Any]


def build_dataset_plainly(
    logs: list[Path], products: Path, output: Path, seed: int, edges: tuple[float, float], windows_ms: dict[str, int]
) -> int:
    """Writes output/<split>/<view>.tfrecord.gz. Returns the number of query-item pairs."""
    titles = {row["item_id"]: row["title"] for row in map(orjson.loads, _lines(products))}
    requests: dict[str, list[_Event]] = defaultdict(list)
    for path in logs:
        for line in _lines(path):
            event = orjson.loads(line)
            requests[event["request_id"]].append(event)
    outputs = contextlib.ExitStack()
    files = _open_outputs(output, outputs)
    statistics: dict[str, Counter[str]] = defaultdict(Counter)
    pairs = 0
    for request, events in requests.items():
        query, items = _group(request, events, titles, windows_ms, seed)
        split = _split(query, seed, edges)
        for view in ("training", "serving"):
            _write_record(files[split, view], _encode(request, query, items, view))
        _count(statistics[split], items)
        pairs += len(items)
    outputs.close()
    return pairs


def _lines(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines()


def _open_outputs(output: Path, outputs: contextlib.ExitStack) -> dict[tuple[str, str], Any]:
    files = {}
    for split in ("train", "valid", "test"):
        (output / split).mkdir(parents=True)
        for view in ("training", "serving"):
            path = output / split / f"{view}.tfrecord.gz"
            files[split, view] = outputs.enter_context(gzip.GzipFile(path, "wb", compresslevel=6))
    return files


def _group(
    request: str, events: list[_Event], titles: dict[str, str], windows_ms: dict[str, int], seed: int
) -> tuple[str, list[_Event]]:
    unique = {event["event_id"]: event for event in sorted(events, key=lambda event: -event["timestamp_ms"])}
    shown = next(event for event in unique.values() if "impression" in event)
    items = {
        item["item_id"]: {
            "item_id": item["item_id"],
            "title": titles[item["item_id"]],
            "position": item["position"],
            **dict.fromkeys(_KINDS, 0),
        }
        for item in shown["impression"]["items"]
    }
    for event in unique.values():
        for kind in _KINDS:
            if kind in event and 0 <= event["timestamp_ms"] - shown["timestamp_ms"] <= windows_ms[kind]:
                items[event[kind]["item_id"]][kind] = 1
    started = hashlib.blake2b(f"order\x1f{seed}\x1f{request}\x1f".encode(), digest_size=8)
    return shown["impression"]["query"], sorted(items.values(), key=lambda item: _hash(started, item["item_id"]))


def _hash(started: Any, text: str) -> int:
    hashed = started.copy()
    hashed.update(text.encode())
    return int.from_bytes(hashed.digest(), "big")


def _split(query: str, seed: int, edges: tuple[float, float]) -> str:
    normal = " ".join(unicodedata.normalize("NFKC", query).casefold().split())
    share = _hash(hashlib.blake2b(f"split\x1f{seed}\x1f".encode(), digest_size=8), normal) / 2**64
    return "train" if share < edges[0] else "valid" if share < edges[1] else "test"


def _encode(request: str, query: str, items: list[_Event], view: str) -> bytes:
    message = elwc_pb2.ExampleListWithContext()
    context = message.context.features.feature
    if view == "training":
        context["request_id"].bytes_list.value.append(request.encode())
    context["query"].bytes_list.value.append(query.encode())
    for item in items:
        features = message.examples.add().features.feature
        features["title"].bytes_list.value.append(item["title"].encode())
        if view == "training":
            features["item_id"].bytes_list.value.append(item["item_id"].encode())
            for name in ("position", *_KINDS):
                features[name].int64_list.value.append(item[name])
    return message.SerializeToString(deterministic=True)


def _write_record(file: BinaryIO, record: bytes) -> None:
    length = struct.pack("<Q", len(record))
    file.write(length + _checksum(length) + record + _checksum(record))


def _checksum(content: bytes) -> bytes:
    crc = google_crc32c.value(content)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _count(statistics: Counter[str], items: list[_Event]) -> None:
    statistics["groups"] += 1
    statistics["with label"] += any(item["purchase"] for item in items)
    for name in ("position", *_KINDS):
        column = [item[name] for item in items]
        statistics[f"{name} sum"] += sum(column)
        statistics[f"{name} squares"] += sum(value * value for value in column)
        statistics[f"{name} greatest"] = max(statistics[f"{name} greatest"], max(column))
    statistics["title longest"] = max(statistics["title longest"], max(len(item["title"]) for item in items))


def conversion_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `build_dataset_plainly` from a dataset manifest's options."""
    splits, windows = options["splits"], options["windows_hours"]
    return {
        "seed": options["seed"],
        "edges": (splits["train"], splits["train"] + splits["valid"]),
        "windows_ms": {kind: int(hours * 3_600_000) for kind, hours in windows.items()},
    }
