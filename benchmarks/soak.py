"""Memory of a gateway under load, minute by minute: exit code 1 where RSS grows by more than 2% after the warm-up.

The load is open loop (see benchmarks.load) at 75% of the measured capacity; no two requests have the same texts. The
gateway has one core and this program another. `litert` may keep 16 MiB of texts, which the warm-up fills.
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
from benchmarks.load import OK, Load, pinned_gateway
from benchmarks.serving import DEMO
from features.errors import InputError, exit_code_of
from features.manifest import ModelManifest
from serving.ask import first_question, newest_manifest

SHARE = 0.75  # of capacity
MOST_GROWTH = 1.02
MOST_ITEMS = 100
CAPACITY_SECONDS = 10.0
SETTINGS = {"litert": {"kept_bytes": 16 << 20}}


def varied_bodies(manifest: ModelManifest) -> Iterator[bytes]:
    """Requests in the shape of the first, of 1 to MOST_ITEMS items; their texts are words of all, by chance."""
    sample, chance = first_question(manifest), random.Random(7)
    words = sorted({word for request in manifest.warm_up for text in _texts(request) for word in text.split()})

    def varied(value: Any) -> Any:
        if isinstance(value, str):
            return " ".join(chance.choices(words, k=max(len(value.split()), 1) + chance.randrange(4)))
        if isinstance(value, dict):
            return {name: varied(member) for name, member in value.items() if name not in ("id", "items")}
        return value

    while True:
        items = chance.choices(sample["items"], k=chance.randint(1, MOST_ITEMS))
        yield json.dumps({**varied(sample), "items": [varied(item) for item in items]}).encode()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _texts(member)


def memory_of_children() -> dict[str, float]:
    """MiB of all processes below this one: resident, and with shared pages divided by those who share them."""
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
    """Emits the memory after the warm-up and after each minute. Returns RSS at the end as a share of the first.

    PSS moves with whoever else maps the same libraries, so it is told but does not decide.
    """
    load = Load(address, varied_bodies(manifest))
    rate = SHARE * await load.one_after_another(CAPACITY_SECONDS)
    emit("soak_load", rate, "requests/s")
    await load.by_chance(rate, 60 * warm_up)
    before = now = _told("soak_after_warm_up", {})
    for minute in range(1, minutes + 1):
        answers = await load.by_chance(rate, 60.0)
        now = _told(f"soak_minute_{minute}", before)
        emit(f"soak_minute_{minute}_refused", sum(a.status != OK for a in answers) / len(answers), "share")
    return now["rss"] / before["rss"]


def _told(name: str, before: dict[str, float]) -> dict[str, float]:
    found = memory_of_children()
    for kind, mebibytes in found.items():
        emit(f"{name}_{kind}", mebibytes, "MiB", peer=before.get(kind))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python -m benchmarks.soak --minutes 10 --backend litert",
    )
    parser.add_argument("--export-dir", type=Path, default=DEMO, help=f"exported versions (default {DEMO})")
    parser.add_argument("--backend", default="embedded", help="embedded (the default) or litert")
    parser.add_argument("--warm-up", type=float, default=2.0, help="minutes before the first look (default 2)")
    parser.add_argument("--minutes", type=int, default=10, help="minutes after it (default 10)")
    given = parser.parse_args()
    if given.minutes < 1:
        raise InputError(f"--minutes is {given.minutes}, expected 1 or more")
    manifest = newest_manifest(given.export_dir)
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "settings.yaml")
        settings.write_text(yaml.safe_dump({**SETTINGS, "backend": given.backend}))
        with pinned_gateway(given.export_dir, settings) as address:
            grown = asyncio.run(soak(address, manifest, given.warm_up, given.minutes))
    if grown > MOST_GROWTH:
        told = f"RSS grew by {grown - 1:.1%} after the warm-up, expected at most {MOST_GROWTH - 1:.0%}"
        print(f"error: {told}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
