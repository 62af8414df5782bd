"""What split layers cost in NDCG and bring in speed: a student of three layers with 0, 1 and 2 of them split.

Each is trained, which takes many minutes on two cores and is kept, exported, and asked over HTTP, by the backend
`litert`, for 100 titles: with titles that come again, whose tokens and states the gateway has kept, and with titles
that it has not seen. Pairs a second over HTTP are what four clients get who ask one request after another; the
milliseconds are those of one client alone. Beside that stands the bare call, tokens and states of titles ready, and
for the student without split layers ONNX Runtime's bare call with int8 weights, and the bare call with tokenising. The
gateway has one core, this program another.

On what `make demo` built. With --judged-pairs on what `make demo-esci` built, and with titles of that file: for speed
alone, with layers twice as wide, trained for a moment, since good scores take as long as bad ones.
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
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.bare_student import BareStudent
from benchmarks.figures import emit
from benchmarks.load import Load, pinned_gateway
from benchmarks.serving import http_call, milliseconds_of, percentile, question_of
from features.errors import InputError, exit_code_of
from serving.ask import first_question, newest_manifest
from trainer.config import load_config
from trainer.run import Run

LAYERS = 3
ITEMS = 100  # a request
QUESTIONS = 20  # that come again
ROUNDS, CALLS, SECONDS = 5, 20, 2.0  # the engines take turns; calls a round; of clients that ask, a round

SETTINGS = {"backend": "litert"}

Question = dict[str, Any]  # in the shape of /rank
Call = Callable[[], object]


class Students(NamedTuple):
    task: Path
    sizes: dict[str, int]  # where they differ from the task's
    steps: int
    largest_ndcg_change: float = 0.002  # that lets int8 pass


DEMO = Students(Path("configs/product_search.yaml"), {}, steps=1500)
# trained for a moment, it puts items in an order that means nothing, and that a trifle changes
ESCI = Students(Path("configs/esci.yaml"), {"width": 128, "feed_forward": 512}, steps=20, largest_ndcg_change=0.1)


def trained(students: Students, split_layers: int) -> Path:
    """The run of the task with this student alone; what is trained already is not trained again."""
    folder = Path("build/frontier", students.task.stem)
    config, workdir = folder / f"split_{split_layers}.yaml", folder / f"split_{split_layers}"
    changes = {
        "extends": str(students.task.resolve()),
        "name": f"split_{split_layers}",
        "student": {"layers": LAYERS, "split_layers": split_layers, **students.sizes},
        "training": {"steps": students.steps},
        "evaluation": {"baseline": "student"},
        "export": {"largest_ndcg_change": students.largest_ndcg_change},
        "recipes": [{"name": "student", "teachers": ["position", "click", "add"], "teacher_weights": [6, 1, 1]}],
    }
    folder.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps(changes))  # YAML, too
    command = [sys.executable, "-m", "trainer", "fit", "--config", str(config), "--workdir", str(workdir)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return workdir


def judged_questions(judged_pairs: Path) -> list[Question]:
    """Queries of the file, each with titles drawn from all of it."""
    try:
        with gzip.open(judged_pairs, "rt", encoding="utf-8", newline="") as lines:
            pairs = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    except OSError as error:
        raise InputError(f"cannot read {judged_pairs} ({error}), expected the pairs of `make demo-esci`") from None
    chance, titles = random.Random(7), sorted({pair["title"] for pair in pairs})
    queries = chance.sample(sorted({pair["query"] for pair in pairs}), QUESTIONS)
    return [_question(query, chance.sample(titles, ITEMS)) for query in queries]


def _question(query: str, titles: Sequence[str]) -> Question:
    return {"query": query, "items": [{"id": str(number), "title": title} for number, title in enumerate(titles)]}


def with_new_titles(questions: Sequence[Question]) -> Iterator[Question]:
    """The questions again and again, each time with titles that nobody has seen before."""
    for number, question in enumerate(itertools.cycle(questions)):
        yield _question(question["query"], [f"{number} {item['title']}" for item in question["items"]])


def rate(address: str, bodies: Iterator[bytes]) -> float:
    """Requests a second. What the gateway keeps of titles is kept when it is measured."""
    load = Load(address, bodies)

    async def measured() -> float:
        await load.one_after_another(SECONDS / 4)  # not counted
        return await load.one_after_another(SECONDS)

    return asyncio.run(measured())


def bare_calls(run: Run, questions: Sequence[Question]) -> dict[str, Call]:
    """Without a gateway, and without split layers the peers'."""
    student = BareStudent(run)
    print(f"{run.workdir}: {student.precision}, the fastest here of what agrees with the student", file=sys.stderr)
    texts = [(question["query"], [item["title"] for item in question["items"]]) for question in questions]
    ready = [student.tokenised(*of_question) for of_question in texts]
    score = student.engine.score
    if student.graphs.split:
        kept = [student.engine.item_states(question.items) for question in ready]
        asked = itertools.cycle(zip(ready, kept, strict=True))

        def with_kept() -> object:
            question, states = next(asked)
            return score(*question, {}, (student.engine.context_states(question.context), states))

        return {"bare": with_kept}
    onnx, tokens, strings = student.onnx_engine(), itertools.cycle(ready), itertools.cycle(texts)
    return {
        "bare": lambda: score(*next(tokens), {}),
        "bare_tokenised": lambda: score(*student.tokenised(*next(strings)), {}),
        "onnx": lambda: onnx.score(*next(tokens), {}),
    }


def bench_frontier(judged_pairs: Path | None) -> None:
    students = ESCI if judged_pairs else DEMO
    runs = {split_layers: trained(students, split_layers) for split_layers in range(LAYERS)}
    sample = question_of(first_question(newest_manifest(runs[0] / "export")), ITEMS)
    questions = judged_questions(judged_pairs) if judged_pairs else [sample]
    calls = {
        (split_layers, name): call
        for split_layers, workdir in runs.items()
        for name, call in bare_calls(Run(load_config(f"{workdir}.yaml"), str(workdir)), questions).items()
    }
    with ExitStack() as running:
        settings = Path(running.enter_context(tempfile.TemporaryDirectory())) / "settings.yaml"
        settings.write_text(json.dumps(SETTINGS))
        gateways = {n: running.enter_context(pinned_gateway(run / "export", settings)) for n, run in runs.items()}
        again = [json.dumps(question).encode() for question in questions]
        unseen = (json.dumps(question).encode() for question in with_new_titles(questions))
        alone, milliseconds, rates = list[float](), defaultdict(list), defaultdict(list)
        for _ in range(ROUNDS):
            for split_layers, address in gateways.items():
                rates[split_layers, "http_kept"].append(rate(address, itertools.cycle(again)))
                rates[split_layers, "http_new"].append(rate(address, unseen))
            alone.append(_p50_over_http(gateways[0], questions))
            for key, call in calls.items():
                milliseconds[key].append(percentile(milliseconds_of(call, CALLS), 0.5))
    p50 = {key: median(rounds) for key, rounds in milliseconds.items()}
    pairs = {key: 1000 * ITEMS / each for key, each in p50.items()}
    pairs |= {key: ITEMS * median(rounds) for key, rounds in rates.items()}
    for split_layers, workdir in runs.items():
        ndcg = json.loads((workdir / "metrics.json").read_text())["models"]["student"]["ndcg@8"]
        for end in ("value", "low", "high"):
            emit(f"split_{split_layers}_ndcg_{end}", ndcg[end], "NDCG@8")
        for name in ("http_kept", "http_new", "bare"):
            emit(f"split_{split_layers}_{name}", pairs[split_layers, name], "pairs/s", peer=pairs[0, name])
    emit("split_0_http_kept_to_onnx_int8", pairs[0, "http_kept"], "pairs/s", peer=pairs[0, "onnx"])
    emit("split_0_http_kept_to_bare_tokenised", median(alone), "ms", peer=p50[0, "bare_tokenised"])


def _p50_over_http(address: str, questions: Sequence[Question]) -> float:
    """Of one client alone, whose titles come again: milliseconds."""
    at = urlsplit(address)
    with closing(http.client.HTTPConnection(str(at.hostname), at.port, timeout=60)) as connection:
        again = itertools.cycle([http_call(connection, question) for question in questions])
        return percentile(milliseconds_of(lambda: next(again)(), CALLS), 0.5)


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
