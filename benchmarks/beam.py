"""Beam pairs/s of build_elwc, beside a plain Python program that makes the same records in the same run."""

import argparse
import contextlib
import functools
import gzip
import io
import shutil
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from beam_jobs import build_elwc
from beam_jobs.storage import existing_manifest, match_files, read_bytes
from benchmarks import plain_elwc
from benchmarks.figures import emit
from benchmarks.shop_logs import ITEMS, write_logs
from features.manifest import DatasetManifest

CONFIG = "configs/product_search.yaml"
REQUESTS = 10_000
RUNS = 3  # each figure is the median of so many; the two take turns


def bench_beam(requests: int = REQUESTS, runs: int = RUNS) -> None:
    """Emits `beam_pairs_per_second`. Errors: RuntimeError when the two do not make the same records."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_logs(folder, requests)
        seconds: dict[str, list[float]] = {"beam": [], "plain": []}
        for _ in range(runs):
            seconds["beam"].append(_timed(lambda: _beam(folder), folder / "dataset"))
            manifest = existing_manifest(str(folder / "dataset"), DatasetManifest)
            if manifest is None:
                raise RuntimeError("build_elwc wrote no dataset")
            seconds["plain"].append(_timed(functools.partial(_plain, folder, manifest), folder / "plain"))
        _refuse_difference(folder)
    pairs = requests * ITEMS
    emit("beam_pairs_per_second", pairs / median(seconds["beam"]), "pairs/s", peer=pairs / median(seconds["plain"]))


def _timed(work: Callable[[], None], output: Path) -> float:
    shutil.rmtree(output, ignore_errors=True)
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        work()
    return time.perf_counter() - started


def _beam(folder: Path) -> None:
    logs, products = str(folder / "events-*"), str(folder / "products.jsonl.gz")
    build_elwc.main(["--config", CONFIG, "--input", logs, "--products", products, "--output", str(folder / "dataset")])


def _plain(folder: Path, manifest: DatasetManifest) -> None:
    options = plain_elwc.options_of(manifest.options)
    plain_elwc.convert(sorted(folder.glob("events-*")), folder / "products.jsonl.gz", folder / "plain", **options)


def _refuse_difference(folder: Path) -> None:
    for split in ("train", "valid", "test"):
        for view in ("training", "serving"):
            ours = _records(str(folder / "dataset" / split / f"{view}_elwc-*"))
            if not ours or ours != _records(str(folder / "plain" / split / f"{view}.tfrecord.gz")):
                raise RuntimeError(f"{split} {view}: Beam and the plain program made different records")


def _records(pattern: str) -> list[bytes]:
    """The records of a view, sorted: the two programs meet requests in different orders."""
    found = []
    for entry in match_files([pattern], "records"):
        content, start = gzip.decompress(read_bytes(entry.path)), 0
        while start < len(content):
            (length,) = struct.unpack_from("<Q", content, start)
            found.append(content[start + 12 : start + 12 + length])
            start += 16 + length
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m benchmarks.beam --requests 10000")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="requests of 16 items in the logs")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of which the median counts")
    given = parser.parse_args()
    bench_beam(given.requests, given.runs)


if __name__ == "__main__":
    main()
