"""Pairs/s of build_elwc on one core, against a plain Python program that writes the same records in the same run.

Also measures a polars join, two worker processes against one, and peak memory. Every program runs in its own process;
imports are not measured. All programs but the two workers have one core and are measured in core seconds, which other
work on the machine hardly affects. Two workers are compared with one by wall time, which is valid only on an idle
machine, so their core seconds are emitted too.
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.beam.shop_logs import ITEMS_PER_REQUEST, write_logs
from benchmarks.figures import emit

_CONFIG = "configs/product_search.yaml"
_REQUESTS = 40_000
_RUNS = 3  # each figure is the median of the runs; the programs take turns
_TWO_WORKERS = ("--direct_num_workers", "2", "--direct_running_mode", "multi_processing")
_KIB = 1024  # bytes; Linux reports ru_maxrss in KiB


class ProgramRun(NamedTuple):
    """One run of a program. core_seconds: of all its processes. peak: bytes of its largest process."""

    core_seconds: float
    seconds: float
    peak: int


def bench_beam(requests: int = _REQUESTS, runs: int = _RUNS, alone: bool = False) -> None:
    """Emits the figures. alone: only those of the Beam job, for large logs.

    Errors: RuntimeError when a program fails, or its records or labels differ from Beam's.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_logs(folder, requests)
        measured: dict[str, list[ProgramRun]] = {program: [] for program in (["beam"] if alone else _PROGRAMS)}
        for _ in range(runs):
            for program, results in measured.items():
                results.append(_run(program, folder))
        if not alone:
            _check_same_results(folder)
    pairs = requests * ITEMS_PER_REQUEST
    emit("beam_peak_memory", max(m.peak for m in measured["beam"]) / 2**20, "MiB")
    if alone:
        emit("beam_pairs_per_second", pairs / median(m.core_seconds for m in measured["beam"]), "pairs/s")
        return
    core = {program: median(m.core_seconds for m in results) for program, results in measured.items()}
    speed = {program: pairs / seconds for program, seconds in core.items()}
    emit("beam_pairs_per_second", speed["beam"], "pairs/s", peer=speed["plain"])
    emit("beam_pairs_per_second_beside_polars_join", speed["beam"], "pairs/s", peer=speed["polars"])
    emit("beam_two_workers_core_seconds", core["two_workers"], "s", peer=core["beam"])
    by_clock = {program: pairs / median(m.seconds for m in measured[program]) for program in ("beam", "two_workers")}
    emit("beam_two_workers_pairs_per_second", by_clock["two_workers"], "pairs/s", peer=by_clock["beam"])


def _run(program: str, folder: Path) -> ProgramRun:
    command = [sys.executable, "-m", "benchmarks.beam", "--program", program, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{program} failed: {done.stderr[-2000:]}")
    return ProgramRun(*json.loads(done.stdout.splitlines()[-1]))


def _measure(program: str, folder: Path) -> None:
    """Runs one program in this process and prints the result for `_run`."""
    if program != "two_workers":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    work = _PROGRAMS[program](folder)
    started, before = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        work()
    seconds, children = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    core = time.process_time() - before + children.ru_utime + children.ru_stime
    largest = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps([core, seconds, largest * _KIB]))


def _beam(folder: Path, *arguments: str) -> Callable[[], object]:
    from beam_jobs import build_elwc

    shutil.rmtree(folder / "dataset", ignore_errors=True)
    files = ["--input", str(folder / "events-*"), "--products", str(folder / "products.jsonl.gz")]
    return lambda: build_elwc.main(["--config", _CONFIG, *files, "--output", str(folder / "dataset"), *arguments])


def _plain(folder: Path) -> Callable[[], object]:
    from benchmarks.beam import plain_elwc

    shutil.rmtree(folder / "plain", ignore_errors=True)
    options = plain_elwc.conversion_options(_manifest(folder)["options"])
    products, events = folder / "products.jsonl.gz", sorted(folder.glob("events-*"))
    return lambda: print(plain_elwc.build_dataset_plainly(events, products, folder / "plain", **options))


def _polars(folder: Path) -> Callable[[], object]:
    os.environ["POLARS_MAX_THREADS"] = "1"
    from benchmarks.beam import plain_elwc, polars_join

    options = plain_elwc.conversion_options(_manifest(folder)["options"])
    products, events = folder / "products.jsonl.gz", sorted(folder.glob("events-*"))
    labels = folder / "polars.json"
    return lambda: labels.write_text(json.dumps(polars_join.join_with_polars(events, products, options["windows_ms"])))


_PROGRAMS: dict[str, Callable[[Path], Callable[[], object]]] = {
    "beam": _beam,
    "two_workers": lambda folder: _beam(folder, *_TWO_WORKERS),
    "plain": _plain,
    "polars": _polars,
}


def _manifest(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    return dict(json.loads((folder / "dataset/manifest.json").read_text()))


def _check_same_results(folder: Path) -> None:
    for split in ("train", "valid", "test"):
        for view in ("training", "serving"):
            ours = _records(folder / "dataset" / str(_manifest(folder)["run"]) / split, f"{view}_elwc-*")
            if not ours or ours != _records(folder / "plain" / split, f"{view}.tfrecord.gz"):
                raise RuntimeError(f"{split} {view}: Beam and the plain program made different records")
    events = _manifest(folder)["events"]
    labels = {kind: counts["used"] for kind, counts in events.items() if kind != "impression" and counts["read"]}
    if labels != json.loads((folder / "polars.json").read_text()):
        raise RuntimeError(f"Beam found {labels}, polars other labels")


def _records(directory: Path, pattern: str) -> list[bytes]:
    """The sorted records of a view; the programs process requests in different orders."""
    records = []
    for path in directory.glob(pattern):
        content, start = gzip.decompress(path.read_bytes()), 0
        while start < len(content):
            (length,) = struct.unpack_from("<Q", content, start)
            records.append(content[start + 12 : start + 12 + length])
            start += 16 + length
    return sorted(records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m benchmarks.beam --requests 40000")
    parser.add_argument("--requests", type=int, default=_REQUESTS, help="requests of 16 items in the logs")
    parser.add_argument("--runs", type=int, default=_RUNS, help="runs of which the median counts")
    parser.add_argument("--alone", action="store_true", help="the job alone: its speed and memory on large logs")
    parser.add_argument("--program", choices=_PROGRAMS, help="run one program, once, on the logs in --folder")
    parser.add_argument("--folder", type=Path, help="of logs that benchmarks.beam.shop_logs wrote")
    given = parser.parse_args()
    if given.program:
        _measure(given.program, given.folder)
    else:
        bench_beam(given.requests, given.runs, given.alone)


if __name__ == "__main__":
    main()
