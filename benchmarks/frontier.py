"""What split layers cost in NDCG and bring in speed: a student of three layers with 0, 1 and 2 of them split.

Each is trained on the dataset that `make demo` built, which takes many minutes on two cores and is kept in
build/frontier, exported, and asked over HTTP by the backend `litert`: again with the same titles, whose states it has
kept, and with titles that it has not seen.
"""

import argparse
import http.client
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.figures import emit
from benchmarks.serving import http_call, milliseconds_of, percentile, question_of
from features.errors import exit_code_of
from serving.ask import first_question, free_port, newest_manifest, running_gateway

DEMO = Path("configs/product_search.yaml")
FOLDER = Path("build/frontier")
LAYERS = 3
ITEMS = 100  # a request
ROUNDS, CALLS = 5, 20  # of each student in turn; requests a round


def task_of(split_layers: int) -> dict[str, Any]:
    """The demo's task with this student alone, in half the demo's steps."""
    recipe = {"name": "student", "teachers": ["position", "click", "add"], "teacher_weights": [6, 1, 1]}
    return {
        "extends": str(DEMO.resolve()),
        "name": f"split_{split_layers}",
        "student": {"layers": LAYERS, "split_layers": split_layers},
        "training": {"steps": 1500},
        "evaluation": {"baseline": "student"},
        "recipes": [recipe],
    }


def train(split_layers: int) -> Path:
    """The run's directory; what is trained already is not trained again."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    task, workdir = FOLDER / f"split_{split_layers}.yaml", FOLDER / f"split_{split_layers}"
    task.write_text(json.dumps(task_of(split_layers)))  # which is YAML, too
    command = [sys.executable, "-m", "trainer", "fit", "--config", str(task), "--workdir", str(workdir)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return workdir


def new_titles(question: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The question again and again, each time with items that nobody has seen before."""
    for number in itertools.count():
        items = [{**item, "title": f"{item['title']} {number}"} for item in question["items"]]
        yield {**question, "items": items}


def bench_frontier() -> None:
    runs = {split_layers: train(split_layers) for split_layers in range(LAYERS)}
    with ExitStack() as running:
        settings = Path(running.enter_context(tempfile.TemporaryDirectory())) / "settings.yaml"
        settings.write_text("backend: litert\n")
        calls: dict[tuple[int, str], Any] = {}
        for split_layers, run in runs.items():
            address = urlsplit(running.enter_context(running_gateway(run / "export", free_port(), settings)))
            connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
            running.enter_context(closing(connection))
            question = question_of(first_question(newest_manifest(run / "export")), ITEMS)
            unseen = new_titles(question)
            calls[split_layers, "kept"] = http_call(connection, question)
            calls[split_layers, "new"] = lambda at=connection, unseen=unseen: http_call(at, next(unseen))()
        taken: dict[tuple[int, str], list[float]] = {key: [] for key in calls}
        for _ in range(ROUNDS):
            for key, call in calls.items():
                taken[key].append(percentile(milliseconds_of(call, CALLS), 0.5))
    for split_layers, run in runs.items():
        ndcg = json.loads((run / "metrics.json").read_text())["models"]["student"]["ndcg@8"]
        for end in ("value", "low", "high"):
            emit(f"split_{split_layers}_ndcg_{end}", ndcg[end], "NDCG@8")
        for titles in ("kept", "new"):
            pairs, of_none = (1000 * ITEMS / median(taken[split, titles]) for split in (split_layers, 0))
            emit(f"split_{split_layers}_{titles}_titles", pairs, "pairs/s", peer=of_none)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.frontier",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example, after `make demo`: python -m benchmarks.frontier",
    )
    parser.parse_args()
    bench_frontier()


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
