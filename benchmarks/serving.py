"""Latency of /rank over HTTP by backend, beside the bare call of the SavedModel with the same items in the same run.

The same items are asked again and again, so that `litert` has kept their tokens.

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
from serving.ask import first_question, free_port, newest_manifest, running_gateway

DEMO = Path("build/demo/run/export")
ITEMS = (10, 100, 1000)  # items a request
ROUNDS = 5  # each figure is the median of so many rounds; gateway and peer take turns
CALLS = {10: 200, 100: 100, 1000: 30}  # requests a round
SETTLING = 5  # requests before a round that are not counted


def question_of(sample: dict[str, Any], items: int) -> dict[str, Any]:
    """The sample's items repeated to so many, each with an id of its own."""
    repeated = itertools.islice(itertools.cycle(sample["items"]), items)
    named = [
        {"id": f"p{i}", **_without_id(item)} if isinstance(item, dict) else item for i, item in enumerate(repeated)
    ]
    return {**sample, "items": named}


def _without_id(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "id"}


def milliseconds_of(call: Callable[[], object], calls: int) -> list[float]:
    """What each of so many calls took, sorted."""
    for _ in range(SETTLING):
        call()
    taken = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - began))
    return sorted(taken)


def percentile(ordered: list[float], share: float) -> float:
    """The least value that so large a share of the values does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def http_call(connection: http.client.HTTPConnection, question: dict[str, Any]) -> Callable[[], object]:
    """One request over a connection that stays open, its answer read to the end."""
    body = json.dumps(question).encode()

    def call() -> bytes:
        connection.request("POST", "/v1/rank", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise InputError(f"the gateway answered {response.status}: {answer.decode()[:300]}")
        return answer

    return call


def bare_call(export_dir: Path) -> Callable[[dict[str, Any]], Callable[[], object]]:
    """A function that makes, for a question, the call of the model's signature alone, its arrays ready."""
    import numpy as np

    from serving.model_store import find_version, verify
    from serving.ranking import inputs_of
    from serving.saved_model import SavedModel
    from serving.schemas import RequestReader
    from serving.settings import RequestLimits

    model = verify(str(export_dir), find_version(str(export_dir)))
    saved_model = SavedModel(model)
    spec = model.manifest.spec
    reader = RequestReader(spec, RequestLimits())

    def of(question: dict[str, Any]) -> Callable[[], object]:
        group = reader.check(question).group
        inputs = inputs_of([group], spec.regular, len(group.items))
        inputs["item_count"] = np.array([len(group.items)], np.int32)
        return lambda: saved_model("rank", inputs)

    return of


def bench_serving(export_dir: Path) -> None:
    """Emits p50 and p99 for each backend and number of items; the peer is the bare call of the SavedModel.

    Errors: InputError without an export to serve.
    """
    manifest = newest_manifest(export_dir)
    sample, bare = first_question(manifest), bare_call(export_dir)
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        connections = {}
        for backend in ("embedded", *(["litert"] if manifest.litert else [])):
            settings = folder / f"{backend}.yaml"
            settings.write_text(f"backend: {backend}\n")
            address = urlsplit(running.enter_context(running_gateway(export_dir, free_port(), settings)))
            connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
            connections[backend] = running.enter_context(closing(connection))
        for items in ITEMS:
            question = question_of(sample, items)
            calls = {name: http_call(connection, question) for name, connection in connections.items()}
            _bench_items(items, calls, bare(question))


def _bench_items(items: int, over_http: dict[str, Callable[[], object]], model: Callable[[], object]) -> None:
    """over_http: the same question to each backend's gateway; they and the model take turns."""
    calls = over_http | {"model": model}
    rounds: dict[str, list[list[float]]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            rounds[name].append(milliseconds_of(call, CALLS[items]))
    for label, share in (("p50", 0.5), ("p99", 0.99)):
        found = {
            name: statistics.median(percentile(ordered, share) for ordered in taken) for name, taken in rounds.items()
        }
        for backend in over_http:
            emit(f"{backend}_{label}_{items}_items", found[backend], "ms", peer=found["model"])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving",
        description="Latency of /rank over HTTP beside the bare model call.",
        epilog="example: python -m benchmarks.serving --export-dir build/demo/run/export",
    )
    parser.add_argument("--export-dir", type=Path, default=DEMO, help=f"exported versions (default {DEMO})")
    bench_serving(parser.parse_args().export_dir)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
