"""What joining requests into one call of the model saves: CPU time a request, beside the same requests one by one.

The best case: requests of the same number of items, all there at the same time. CPU time is of all the process's
threads, so what else the machine does hardly touches it.

`python -m benchmarks.batching --export-dir build/demo/run/export`
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.figures import emit
from benchmarks.serving import DEMO, question_of
from features.errors import exit_code_of
from serving.ask import first_question, newest_manifest
from serving.problems import Problem
from serving.record import Record
from serving.schemas import RankRequest
from serving.served import Served, load
from serving.settings import Settings
from serving.trace_context import span_of

TOGETHER = (2, 4, 8)  # requests in one call
ITEMS = (10, 100)  # items a request
ROUNDS = 15  # each figure is the median of so many; both ways take turns
REQUESTS = {10: 48, 100: 16}  # a round


def bench_batching(export_dir: Path, backend: str) -> None:
    """Emits milliseconds of CPU a request. Errors: InputError without an export to serve."""
    manifest = newest_manifest(export_dir)
    samples = [sample for sample in manifest.warm_up if sample.get("items")] or [first_question(manifest)]
    version = max(int(path.name) for path in export_dir.iterdir() if path.name.isdecimal())
    served = load(Settings(export_dir=str(export_dir), backend=backend), version)
    for items in ITEMS:
        asked = [served.reader.check(question_of(samples[n % len(samples)], items)) for n in range(REQUESTS[items])]
        taken = _in_turns({together: partial(_rank, served, asked, together) for together in (1, *TOGETHER)})
        alone = taken[1] / len(asked)
        for together, milliseconds in taken.items():
            name = f"{backend}_{items}_items_{together}_together"
            emit(name, milliseconds / len(asked), "CPU ms/request", peer=alone)


def _rank(served: Served, asked: list[RankRequest], together: int) -> None:
    """All of them, so many in a call. Errors: Problem."""
    for start in range(0, len(asked), together):
        for ranking in served.ranker.rank(asked[start : start + together], Record("benchmark", span_of(""))):
            if isinstance(ranking, Problem):
                raise ranking


def _in_turns(calls: dict[int, Callable[[], None]]) -> dict[int, float]:
    """The median milliseconds of CPU of each, called in turns."""
    rounds: dict[int, list[float]] = {name: [] for name in calls}
    for _ in range(1 + ROUNDS):
        for name, call in calls.items():
            began = time.process_time()
            call()
            rounds[name].append(1000 * (time.process_time() - began))
    return {name: statistics.median(taken[1:]) for name, taken in rounds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.batching",
        description="CPU time of requests scored in one call, beside the same one by one.",
        epilog="example: python -m benchmarks.batching --backend litert",
    )
    parser.add_argument("--export-dir", type=Path, default=DEMO, help=f"exported versions (default {DEMO})")
    parser.add_argument("--backend", default="embedded", help="embedded (the default) or litert")
    given = parser.parse_args()
    bench_batching(given.export_dir, given.backend)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
