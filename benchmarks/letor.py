"""Documents/s of letor_to_elwc on files like MSLR-WEB30K: plain text, 136 features, 120 documents per query."""

import argparse
import contextlib
import io
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import yaml

from beam_jobs import letor_to_elwc
from benchmarks.figures import emit

_DOCUMENTS = 20_000  # the data set itself has 3,771,125
_RUNS = 3  # each figure is the median of the runs
_SPLITS = {"train": 0.6, "valid": 0.2, "test": 0.2}  # shares of the documents
_FEATURES, _PRIVILEGED = 136, 40
_DOCUMENTS_PER_QUERY = 120  # on average
_RELEVANCE = (0.52, 0.32, 0.13, 0.02, 0.01)  # shares of 0, 1, 2, 3, 4
_LINE = "%d qid:%d " + " ".join(f"{feature}:%g" for feature in range(1, _FEATURES + 1)) + " \n"


def bench_letor(documents: int = _DOCUMENTS, runs: int = _RUNS) -> None:
    """Emits documents/s of the whole job on all cores, documents per core second, duration and peak memory.

    Documents per core second hardly depend on other work on the machine.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_files(folder, documents)
        seconds, core_seconds = zip(*(_measure(folder) for _ in range(runs)), strict=True)
    emit("letor_documents_per_second", documents / median(seconds), "documents/s")
    emit("letor_documents_per_core_second", documents / median(core_seconds), "documents/core s")
    emit("letor_seconds", median(seconds), "s")
    # of the largest process
    emit("letor_peak_memory", max(usage.ru_maxrss for usage in _resource_usage()) / 1024, "MiB")


def _write_files(folder: Path, documents: int) -> None:
    """Writes train.txt, valid.txt, test.txt and the task file letor.yaml."""
    first_query = 1
    for split, share in _SPLITS.items():
        with open(folder / f"{split}.txt", "w") as file:
            for query, lines in enumerate(_query_groups(round(documents * share), seed=first_query), start=first_query):
                file.writelines(_LINE % (relevance, query, *values) for relevance, values in lines)
        first_query = query + 1
    features = {"regular": {"length": _FEATURES - _PRIVILEGED}, "privileged": {"length": _PRIVILEGED}}
    task = {"extends": str(Path("configs/letor.yaml").resolve()), "features": features, "letor": {"tau": 4.8}}
    (folder / "letor.yaml").write_text(yaml.safe_dump(task))


def _query_groups(documents: int, seed: int) -> Iterator[list[tuple[int, list[float]]]]:
    """Groups of (relevance, feature values). As in the data set, features are counts (mostly 0), shares or scores."""
    rng = np.random.default_rng(seed)
    while documents > 0:
        size = min(documents, int(rng.integers(1, 2 * _DOCUMENTS_PER_QUERY)))
        documents -= size
        relevance = rng.choice(len(_RELEVANCE), size, p=_RELEVANCE)
        counts = np.floor(rng.exponential(0.5 + relevance[:, None], (size, _FEATURES)) ** 2)
        shares = np.round(rng.random((size, _FEATURES)), 6)
        scores = np.round(rng.normal(relevance[:, None] - 20.0, 5.0, (size, _FEATURES)), 6)
        kind = np.arange(_FEATURES) % 4
        values = np.select([kind < 2, kind == 2], [counts, shares], scores)
        yield list(zip(relevance.tolist(), values.tolist(), strict=True))


def _measure(folder: Path) -> tuple[float, float]:
    """Runs the job. Returns wall seconds and core seconds."""
    inputs = [word for split in _SPLITS for word in (f"--{split}", str(folder / f"{split}.txt"))]
    started, busy = time.perf_counter(), _core_seconds()
    with contextlib.redirect_stdout(io.StringIO()):
        letor_to_elwc.main(["--config", str(folder / "letor.yaml"), *inputs, "--output", str(folder / "dataset")])
    taken = time.perf_counter() - started, _core_seconds() - busy
    shutil.rmtree(folder / "dataset")
    return taken


def _core_seconds() -> float:
    """CPU seconds of this process and its finished children."""
    return sum(usage.ru_utime + usage.ru_stime for usage in _resource_usage())


def _resource_usage() -> list[resource.struct_rusage]:
    return [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m benchmarks.letor --documents 20000"
    )
    parser.add_argument("--documents", type=int, default=_DOCUMENTS, help="documents of all three files together")
    parser.add_argument("--runs", type=int, default=_RUNS, help="runs of which the median counts")
    given = parser.parse_args()
    bench_letor(given.documents, given.runs)


if __name__ == "__main__":
    main()
