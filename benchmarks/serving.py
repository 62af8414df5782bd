"""Latency of /rank over HTTP by backend, against the bare SavedModel call with the same items in the same run.

Requests repeat the same items, so `litert` has their tokens cached.

`python -m benchmarks.serving --export-dir build/demo/run/export`
"""

import argparse
import http.client
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.figures import emit
from features.errors import InputError, exit_code_of
from serving.smoke_test import first_warm_up_request, free_port, newest_manifest, running_gateway

DEMO_EXPORT = Path("build/demo/run/export")
_ITEMS = (10, 100, 1000)  # items per request
_ROUNDS = 5  # each figure is the median of the rounds; gateway and peer take turns
_CALLS = {10: 200, 100: 100, 1000: 30}  # items -> requests per round
_WARM_UP_CALLS = 5  # requests before each round, not measured


def request_with_items(sample: dict[str, Any], items: int) -> dict[str, Any]:
    """The sample with its items repeated to `items`, each with a unique id."""
    repeated = itertools.islice(itertools.cycle(sample["items"]), items)
    named = [
        {"id": f"p{i}", **_without_id(item)} if isinstance(item, dict) else item for i, item in enumerate(repeated)
    ]
    return {**sample, "items": named}


def _without_id(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "id"}


def milliseconds_of(call: Callable[[], object], calls: int) -> list[float]:
    """Milliseconds of each of `calls` calls, sorted."""
    for _ in range(_WARM_UP_CALLS):
        call()
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - began))
    return sorted(times)


def percentile(ordered: list[float], share: float) -> float:
    """The smallest value that at least `share` of the sorted values do not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def http_call(connection: http.client.HTTPConnection, request: dict[str, Any]) -> Callable[[], object]:
    """A function that sends one request over the open connection and reads the response."""
    body = json.dumps(request).encode()

    def call() -> bytes:
        connection.request("POST", "/v1/rank", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise InputError(f"the gateway answered {response.status}: {answer.decode()[:300]}")
        return answer

    return call


def bare_call(export_dir: Path) -> Callable[[dict[str, Any]], Callable[[], object]]:
    """Returns a function from a request to a call of the model's signature with its input arrays ready."""
    import numpy as np

    from serving.backends.saved_model import SavedModel
    from serving.exports.store import find_version, verified_copy
    from serving.ranking.rank_request import RequestReader
    from serving.ranking.ranker import feature_arrays
    from serving.settings import RequestLimits

    with verified_copy(str(export_dir), find_version(str(export_dir))) as model:
        saved_model = SavedModel(model)
    spec = model.manifest.spec
    reader = RequestReader(spec, RequestLimits())

    def of(request: dict[str, Any]) -> Callable[[], object]:
        group = reader.read(json.dumps(request).encode()).group
        inputs = feature_arrays([group], spec.regular, len(group.items))
        inputs["item_count"] = np.array([len(group.items)], np.int32)
        return lambda: saved_model("rank", inputs)

    return of


def bench_serving(export_dir: Path) -> None:
    """Emits p50 and p99 for each backend and number of items; the peer is the bare call of the SavedModel.

    Errors: InputError without an export to serve.
    """
    manifest = newest_manifest(export_dir)
    sample, bare = first_warm_up_request(manifest), bare_call(export_dir)
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        connections = {}
        for backend in ("embedded", *(["litert"] if manifest.litert else [])):
            settings = folder / f"{backend}.yaml"
            settings.write_text(f"backend: {backend}\n")
            address = urlsplit(running.enter_context(running_gateway(export_dir, free_port(), settings)))
            connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
            connections[backend] = running.enter_context(closing(connection))
        for items in _ITEMS:
            request = request_with_items(sample, items)
            calls = {name: http_call(connection, request) for name, connection in connections.items()}
            _bench_items(items, calls, bare(request))


def _bench_items(items: int, over_http: dict[str, Callable[[], object]], model: Callable[[], object]) -> None:
    """over_http: the same request to each backend's gateway. Gateways and model take turns."""
    calls = over_http | {"model": model}
    rounds: dict[str, list[list[float]]] = {name: [] for name in calls}
    for _ in range(_ROUNDS):
        for name, call in calls.items():
            rounds[name].append(milliseconds_of(call, _CALLS[items]))
    for label, share in (("p50", 0.5), ("p99", 0.99)):
        medians = {
            name: statistics.median(percentile(ordered, share) for ordered in times) for name, times in rounds.items()
        }
        for backend in over_http:
            emit(f"{backend}_{label}_{items}_items", medians[backend], "ms", peer=medians["model"])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving",
        description="Latency of /rank over HTTP, against the bare model call.",
        epilog="example: python -m benchmarks.serving --export-dir build/demo/run/export",
    )
    parser.add_argument(
        "--export-dir", type=Path, default=DEMO_EXPORT, help=f"exported versions (default {DEMO_EXPORT})"
    )
    bench_serving(parser.parse_args().export_dir)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
