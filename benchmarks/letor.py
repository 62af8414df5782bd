"""Documents/s of letor_to_elwc on files of MSLR-WEB30K's form: plain text, 136 features, 120 documents a query."""

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

DOCUMENTS = 20_000  # the data set itself has 3,771,125
RUNS = 3  # the figure is the median of so many
SPLITS = {"train": 0.6, "valid": 0.2, "test": 0.2}  # shares of the documents
FEATURES, PRIVILEGED = 136, 40
DOCUMENTS_A_QUERY = 120  # on average
RELEVANCE = (0.52, 0.32, 0.13, 0.02, 0.01)  # shares of 0, 1, 2, 3, 4
LINE = "%d qid:%d " + " ".join(f"{feature}:%g" for feature in range(1, FEATURES + 1)) + " \n"


def bench_letor(documents: int = DOCUMENTS, runs: int = RUNS) -> None:
    """Emits documents a second of all of the job, from files to the manifest, on all cores, and a core's second, which
    hardly depends on what else the machine does; how long it took, and its memory.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, documents)
        seconds, core_seconds = zip(*(_timed(folder) for _ in range(runs)), strict=True)
    emit("letor_documents_per_second", documents / median(seconds), "documents/s")
    emit("letor_documents_per_core_second", documents / median(core_seconds), "documents/core s")
    emit("letor_seconds", median(seconds), "s")
    emit("letor_peak_memory", max(used.ru_maxrss for used in _used()) / 1024, "MiB")  # of the largest process


def write_files(folder: Path, documents: int) -> None:
    """train.txt, valid.txt and test.txt, and the task file letor.yaml."""
    first_query = 1
    for split, share in SPLITS.items():
        with open(folder / f"{split}.txt", "w") as file:
            for query, lines in enumerate(query_groups(round(documents * share), seed=first_query), start=first_query):
                file.writelines(LINE % (relevance, query, *values) for relevance, values in lines)
        first_query = query + 1
    features = {"regular": {"length": FEATURES - PRIVILEGED}, "privileged": {"length": PRIVILEGED}}
    task = {"extends": str(Path("configs/letor.yaml").resolve()), "features": features, "letor": {"tau": 4.8}}
    (folder / "letor.yaml").write_text(yaml.safe_dump(task))


def query_groups(documents: int, seed: int) -> Iterator[list[tuple[int, list[float]]]]:
    """Groups of (relevance, feature values). As in the data set, a feature is a count, mostly 0, a share or a score."""
    rng = np.random.default_rng(seed)
    while documents > 0:
        size = min(documents, int(rng.integers(1, 2 * DOCUMENTS_A_QUERY)))
        documents -= size
        relevance = rng.choice(len(RELEVANCE), size, p=RELEVANCE)
        counts = np.floor(rng.exponential(0.5 + relevance[:, None], (size, FEATURES)) ** 2)
        shares = np.round(rng.random((size, FEATURES)), 6)
        scores = np.round(rng.normal(relevance[:, None] - 20.0, 5.0, (size, FEATURES)), 6)
        kind = np.arange(FEATURES) % 4
        values = np.select([kind < 2, kind == 2], [counts, shares], scores)
        yield list(zip(relevance.tolist(), values.tolist(), strict=True))


def _timed(folder: Path) -> tuple[float, float]:
    """Seconds by the clock, and of all cores."""
    inputs = [word for split in SPLITS for word in (f"--{split}", str(folder / f"{split}.txt"))]
    started, busy = time.perf_counter(), _core_seconds()
    with contextlib.redirect_stdout(io.StringIO()):
        letor_to_elwc.main(["--config", str(folder / "letor.yaml"), *inputs, "--output", str(folder / "dataset")])
    taken = time.perf_counter() - started, _core_seconds() - busy
    shutil.rmtree(folder / "dataset")
    return taken


def _core_seconds() -> float:
    """Of this process and those that it started and that have ended."""
    return sum(used.ru_utime + used.ru_stime for used in _used())


def _used() -> list[resource.struct_rusage]:
    return [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m benchmarks.letor --documents 20000"
    )
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="documents of all three files together")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of which the median counts")
    given = parser.parse_args()
    bench_letor(given.documents, given.runs)


if __name__ == "__main__":
    main()
