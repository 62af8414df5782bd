"""Memory of a gateway under load, per minute; exits 1 if RSS grows by more than 2% after the warm-up.

The load is open loop (see benchmarks.load) at 75% of the measured capacity, with random texts. The gateway has one
core and this program another. The text cache of `litert` is limited to 16 MiB, which the warm-up fills.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import yaml

from benchmarks.figures import emit
from benchmarks.load import OK, LoadGenerator, pinned_gateway
from benchmarks.serving import DEMO_EXPORT
from features.errors import InputError, exit_code_of
from features.manifest import ModelManifest
from serving.smoke_test import first_warm_up_request, newest_manifest

_LOAD_SHARE = 0.75  # of capacity
_MAX_GROWTH = 1.02
_MAX_ITEMS = 100
_CAPACITY_SECONDS = 10.0
_SETTINGS = {"litert": {"cache_bytes": 16 << 20}}


def varied_bodies(manifest: ModelManifest) -> Iterator[bytes]:
    """Yields requests shaped like the first sample, with 1 to _MAX_ITEMS items and random words of all samples."""
    sample, rng = first_warm_up_request(manifest), random.Random(7)
    words = sorted({word for request in manifest.warm_up for text in _texts(request) for word in text.split()})

    def varied(value: Any) -> Any:
        if isinstance(value, str):
            return " ".join(rng.choices(words, k=max(len(value.split()), 1) + rng.randrange(4)))
        if isinstance(value, dict):
            return {name: varied(member) for name, member in value.items() if name not in ("id", "items")}
        return value

    while True:
        items = rng.choices(sample["items"], k=rng.randint(1, _MAX_ITEMS))
        yield json.dumps({**varied(sample), "items": [varied(item) for item in items]}).encode()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _texts(member)


def memory_of_children() -> dict[str, float]:
    """MiB of all descendant processes: RSS, and PSS, which divides shared pages among their users."""
    total = {"rss": 0.0, "pss": 0.0}
    for pid in _descendants(os.getpid()):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name.lower() in total:
                total[name.lower()] += int(rest.split()[0]) / 1024
    return total


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from _descendants(child)


async def soak(address: str, manifest: ModelManifest, warm_up: float, minutes: int) -> float:
    """Emits the memory after the warm-up and after each minute. Returns the ratio of the last RSS to the first.

    PSS depends on other processes that map the same libraries, so it is emitted but not checked.
    """
    load = LoadGenerator(address, varied_bodies(manifest))
    rate = _LOAD_SHARE * await load.closed_loop(_CAPACITY_SECONDS)
    emit("soak_load", rate, "requests/s")
    await load.open_loop(rate, 60 * warm_up)
    before = now = _emit_memory("soak_after_warm_up", {})
    for minute in range(1, minutes + 1):
        answers = await load.open_loop(rate, 60.0)
        now = _emit_memory(f"soak_minute_{minute}", before)
        emit(f"soak_minute_{minute}_refused", sum(a.status != OK for a in answers) / len(answers), "share")
    return now["rss"] / before["rss"]


def _emit_memory(name: str, before: dict[str, float]) -> dict[str, float]:
    memory = memory_of_children()
    for kind, mebibytes in memory.items():
        emit(f"{name}_{kind}", mebibytes, "MiB", peer=before.get(kind))
    return memory


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python -m benchmarks.soak --minutes 10 --backend litert",
    )
    parser.add_argument(
        "--export-dir", type=Path, default=DEMO_EXPORT, help=f"exported versions (default {DEMO_EXPORT})"
    )
    parser.add_argument("--backend", default="embedded", help="embedded (the default) or litert")
    parser.add_argument("--warm-up", type=float, default=2.0, help="minutes before the first measurement (default 2)")
    parser.add_argument("--minutes", type=int, default=10, help="minutes after it (default 10)")
    given = parser.parse_args()
    if given.minutes < 1:
        raise InputError(f"--minutes is {given.minutes}, expected 1 or more")
    manifest = newest_manifest(given.export_dir)
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "settings.yaml")
        settings.write_text(yaml.safe_dump({**_SETTINGS, "backend": given.backend}))
        with pinned_gateway(given.export_dir, settings) as address:
            grown = asyncio.run(soak(address, manifest, given.warm_up, given.minutes))
    if grown > _MAX_GROWTH:
        message = f"RSS grew by {grown - 1:.1%} after the warm-up, expected at most {_MAX_GROWTH - 1:.0%}"
        print(f"error: {message}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
