"""NDCG cost and speed gain of split layers: a three-layer student with 0, 1 and 2 split layers.

Each student is trained once (many minutes on two cores), exported and served by the backend `litert`. Requests have 100
titles: either repeated titles, whose tokens and states are cached by the gateway, or new titles. Pairs/s over HTTP are
the throughput of four closed-loop clients; milliseconds are the latency of a single client. The peers are the bare
model call with tokens and states ready, and for the student without split layers also ONNX Runtime's bare call with
int8 weights and the bare call including tokenisation. The gateway has one core and this program another.

Uses the output of `make demo`. With --judged-pairs it uses the output of `make demo-esci` and titles of that file, with
layers twice as wide and few training steps: only speed is measured, which does not depend on the weights.
"""

import argparse
import asyncio
import csv
import gzip
import http.client
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import astuple
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.figures import emit
from benchmarks.frontier.bare_student import BareStudent
from benchmarks.load import LoadGenerator, pinned_gateway
from benchmarks.serving import http_call, milliseconds_of, percentile, request_with_items
from features.errors import InputError, exit_code_of
from serving.smoke_test import first_warm_up_request, newest_manifest
from trainer.config import load_config
from trainer.pipeline.inputs import DataPaths
from trainer.pipeline.run import Run

_LAYERS = 3
_ITEMS = 100  # per request
_BODIES = 20  # distinct requests that are repeated
_ROUNDS, _CALLS, _SECONDS = 5, 20, 2.0  # the engines take turns; calls and seconds are per round

_SETTINGS = {"backend": "litert"}

_RequestBody = dict[str, Any]  # in the shape of /rank
_Call = Callable[[], object]


class StudentTraining(NamedTuple):
    task: Path
    data: DataPaths  # output of `make demo` or `make demo-esci`
    sizes: dict[str, int]  # overrides of the task's sizes
    steps: int
    largest_ndcg_change: float = 0.002  # tolerance for int8


_DEMO = StudentTraining(
    Path("configs/product_search.yaml"), DataPaths("build/demo/dataset", "build/demo/vocabulary"), {}, steps=1500
)
# after few steps the order of items is nearly random and sensitive to rounding: a large tolerance
_ESCI = StudentTraining(
    Path("configs/esci.yaml"),
    DataPaths("build/esci/dataset", "build/esci/vocabulary"),
    {"width": 128, "feed_forward": 512},
    steps=20,
    largest_ndcg_change=0.1,
)


def _train_student(students: StudentTraining, split_layers: int) -> Path:
    """Trains this student alone, unless its run is up to date. Returns the run's directory."""
    folder = Path("build/frontier", students.task.stem)
    config, workdir = folder / f"split_{split_layers}.yaml", folder / f"split_{split_layers}"
    changes = {
        "extends": str(students.task.resolve()),
        "student": {"layers": _LAYERS, "split_layers": split_layers, **students.sizes},
        "training": {"steps": students.steps},
        "evaluation": {"baseline": "student"},
        "export": {"largest_ndcg_change": students.largest_ndcg_change},
        "recipes": [{"name": "student", "teachers": ["position", "click", "add"], "teacher_weights": [6, 1, 1]}],
    }
    folder.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps(changes))  # JSON is YAML
    dataset, vocabulary, _ = astuple(students.data)
    inputs = ["--config", str(config), "--dataset", dataset, "--vocabulary", vocabulary]
    command = [sys.executable, "-m", "trainer", "fit", *inputs, "--workdir", str(workdir)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return workdir


def _judged_bodies(judged_pairs: Path) -> list[_RequestBody]:
    """Requests with queries of the file and titles drawn from the whole file."""
    try:
        with gzip.open(judged_pairs, "rt", encoding="utf-8", newline="") as lines:
            pairs = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    except OSError as error:
        raise InputError(f"cannot read {judged_pairs} ({error}), expected the pairs of `make demo-esci`") from None
    rng, titles = random.Random(7), sorted({pair["title"] for pair in pairs})
    queries = rng.sample(sorted({pair["query"] for pair in pairs}), _BODIES)
    return [_request_body(query, rng.sample(titles, _ITEMS)) for query in queries]


def _request_body(query: str, titles: Sequence[str]) -> _RequestBody:
    return {"query": query, "items": [{"id": str(number), "title": title} for number, title in enumerate(titles)]}


def _with_new_titles(bodies: Sequence[_RequestBody]) -> Iterator[_RequestBody]:
    """Repeats the requests endlessly, each time with new titles."""
    for number, body in enumerate(itertools.cycle(bodies)):
        yield _request_body(body["query"], [f"{number} {item['title']}" for item in body["items"]])


def _requests_per_second(address: str, bodies: Iterator[bytes]) -> float:
    """Requests/s of closed-loop clients, measured after the gateway's caches are warm."""
    load = LoadGenerator(address, bodies)

    async def measured() -> float:
        await load.closed_loop(_SECONDS / 4)  # not counted
        return await load.closed_loop(_SECONDS)

    return asyncio.run(measured())


def _bare_calls(run: Run, bodies: Sequence[_RequestBody]) -> dict[str, _Call]:
    """Model calls without a gateway; for the student without split layers also the peers' calls."""
    student = BareStudent(run)
    print(
        f"{run.workdir}: {student.precision} is the fastest precision here that agrees with the student",
        file=sys.stderr,
    )
    texts = [(body["query"], [item["title"] for item in body["items"]]) for body in bodies]
    ready = [student.tokenise(*text) for text in texts]
    score = student.engine.score
    if student.graphs.split:
        kept = [student.engine.item_states(request.items) for request in ready]
        requests = itertools.cycle(zip(ready, kept, strict=True))

        def with_kept() -> object:
            request, states = next(requests)
            return score(*request, {}, (student.engine.context_states(request.context), states))

        return {"bare": with_kept}
    onnx, tokens, strings = student.onnx_engine(), itertools.cycle(ready), itertools.cycle(texts)
    return {
        "bare": lambda: score(*next(tokens), {}),
        "bare_tokenised": lambda: score(*student.tokenise(*next(strings)), {}),
        "onnx": lambda: onnx.score(*next(tokens), {}),
    }


def bench_frontier(judged_pairs: Path | None) -> None:
    students = _ESCI if judged_pairs else _DEMO
    runs = {split_layers: _train_student(students, split_layers) for split_layers in range(_LAYERS)}
    sample = request_with_items(first_warm_up_request(newest_manifest(runs[0] / "export")), _ITEMS)
    bodies = _judged_bodies(judged_pairs) if judged_pairs else [sample]
    calls = {
        (split_layers, name): call
        for split_layers, workdir in runs.items()
        for name, call in _bare_calls(Run(load_config(f"{workdir}.yaml"), students.data, str(workdir)), bodies).items()
    }
    with ExitStack() as running:
        settings = Path(running.enter_context(tempfile.TemporaryDirectory())) / "settings.yaml"
        settings.write_text(json.dumps(_SETTINGS))
        gateways = {n: running.enter_context(pinned_gateway(run / "export", settings)) for n, run in runs.items()}
        repeated = [json.dumps(body).encode() for body in bodies]
        unseen = (json.dumps(body).encode() for body in _with_new_titles(bodies))
        one_client_p50, milliseconds, rates = list[float](), defaultdict(list), defaultdict(list)
        for _ in range(_ROUNDS):
            for split_layers, address in gateways.items():
                rates[split_layers, "http_kept"].append(_requests_per_second(address, itertools.cycle(repeated)))
                rates[split_layers, "http_new"].append(_requests_per_second(address, unseen))
            one_client_p50.append(_p50_over_http(gateways[0], bodies))
            for key, call in calls.items():
                milliseconds[key].append(percentile(milliseconds_of(call, _CALLS), 0.5))
    p50 = {key: median(rounds) for key, rounds in milliseconds.items()}
    pairs = {key: 1000 * _ITEMS / each for key, each in p50.items()}
    pairs |= {key: _ITEMS * median(rounds) for key, rounds in rates.items()}
    for split_layers, workdir in runs.items():
        ndcg = json.loads((workdir / "metrics.json").read_text())["models"]["student"]["ndcg@8"]
        for end in ("value", "low", "high"):
            emit(f"split_{split_layers}_ndcg_{end}", ndcg[end], "NDCG@8")
        for name in ("http_kept", "http_new", "bare"):
            emit(f"split_{split_layers}_{name}", pairs[split_layers, name], "pairs/s", peer=pairs[0, name])
    emit("split_0_http_kept_to_onnx_int8", pairs[0, "http_kept"], "pairs/s", peer=pairs[0, "onnx"])
    emit("split_0_http_kept_to_bare_tokenised", median(one_client_p50), "ms", peer=p50[0, "bare_tokenised"])


def _p50_over_http(address: str, bodies: Sequence[_RequestBody]) -> float:
    """Median milliseconds of a single client with repeated titles."""
    at = urlsplit(address)
    with closing(http.client.HTTPConnection(str(at.hostname), at.port, timeout=60)) as connection:
        repeated = itertools.cycle([http_call(connection, body) for body in bodies])
        return percentile(milliseconds_of(lambda: next(repeated)(), _CALLS), 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.frontier",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example, after `make demo`: python -m benchmarks.frontier",
    )
    parser.add_argument("--judged-pairs", type=Path, help="the TSV of `make demo-esci`, whose dataset it takes then")
    bench_frontier(parser.parse_args().judged_pairs)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
