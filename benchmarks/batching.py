"""CPU time per request saved by batching requests into one model call, against unbatched calls.

The best case: all requests have the same number of items and are available at once. CPU time covers all threads of
the process, so other work on the machine hardly affects it.

`python -m benchmarks.batching --export-dir build/demo/run/export`
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.figures import emit
from benchmarks.serving import DEMO_EXPORT, request_with_items
from features.errors import exit_code_of
from serving.models.loaded_model import LoadedModel, load
from serving.observability.request_record import RequestRecord
from serving.observability.trace_context import span_of
from serving.problems import Problem
from serving.ranking.rank_request import RankRequest
from serving.settings import Settings
from serving.smoke_test import first_warm_up_request, newest_manifest

_BATCH_SIZES = (2, 4, 8)  # requests in one call
_ITEMS = (10, 100)  # items per request
_ROUNDS = 15  # each figure is the median of the rounds; batch sizes take turns
_REQUESTS = {10: 48, 100: 16}  # items -> requests per round


def bench_batching(export_dir: Path, backend: str) -> None:
    """Emits CPU milliseconds per request. Errors: InputError without an export to serve."""
    manifest = newest_manifest(export_dir)
    samples = [sample for sample in manifest.warm_up if sample.get("items")] or [first_warm_up_request(manifest)]
    version = max(int(path.name) for path in export_dir.iterdir() if path.name.isdecimal())
    served = load(Settings(export_dir=str(export_dir), backend=backend), version)
    for items in _ITEMS:
        bodies = [request_with_items(samples[n % len(samples)], items) for n in range(_REQUESTS[items])]
        requests = [served.reader.read(json.dumps(body).encode()) for body in bodies]
        medians = _median_cpu_ms(
            {batch_size: partial(_rank, served, requests, batch_size) for batch_size in (1, *_BATCH_SIZES)}
        )
        unbatched = medians[1] / len(requests)
        for batch_size, milliseconds in medians.items():
            name = f"{backend}_{items}_items_{batch_size}_together"
            emit(name, milliseconds / len(requests), "CPU ms/request", peer=unbatched)


def _rank(served: LoadedModel, requests: list[RankRequest], batch_size: int) -> None:
    """Ranks all requests, `batch_size` per call. Errors: Problem."""
    for start in range(0, len(requests), batch_size):
        for ranking in served.ranker.rank(
            requests[start : start + batch_size], RequestRecord("benchmark", span_of(""))
        ):
            if isinstance(ranking, Problem):
                raise ranking


def _median_cpu_ms(calls: dict[int, Callable[[], None]]) -> dict[int, float]:
    """The median CPU milliseconds of each call; the calls take turns."""
    rounds: dict[int, list[float]] = {name: [] for name in calls}
    for _ in range(1 + _ROUNDS):
        for name, call in calls.items():
            started = time.process_time()
            call()
            rounds[name].append(1000 * (time.process_time() - started))
    return {name: statistics.median(times[1:]) for name, times in rounds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.batching",
        description="CPU time per request of batched model calls, against unbatched calls.",
        epilog="example: python -m benchmarks.batching --backend litert",
    )
    parser.add_argument(
        "--export-dir", type=Path, default=DEMO_EXPORT, help=f"exported versions (default {DEMO_EXPORT})"
    )
    parser.add_argument("--backend", default="embedded", help="embedded (the default) or litert")
    given = parser.parse_args()
    bench_batching(given.export_dir, given.backend)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
