"""Small LETOR data sets in tests, and running letor_to_elwc on them."""

import gzip
import lzma
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from beam_jobs import letor_to_elwc
from features.manifest import DatasetManifest
from tests.beam_jobs.datasets import manifest_of

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("PRIVRANK_DATA", ROOT.parent / "shared" / "data"))
PACKED = {".gz": gzip.compress, ".xz": lzma.compress}


def features(regular: int, privileged: int, label: str = "bool") -> dict[str, Any]:
    """A spec of LETOR vectors of these lengths; none of length 0."""
    lengths = {"regular": regular, "privileged": privileged}
    vectors = {
        name: {"type": "float", "level": "item", "length": length, "role": name}
        for name, length in lengths.items()
        if length
    }
    return {
        "query": {"type": "text", "level": "context", "role": "id"},
        "item_id": {"type": "text", "level": "item", "role": "id"},
        **vectors,
        "label": {"type": label, "level": "item", "role": "label"},
    }


def line(relevance: int, query: str | int, values: Sequence[float], comment: str = "") -> bytes:
    pairs = "".join(f" {feature}:{value:.6g}" for feature, value in enumerate(values, start=1))
    return f"{relevance} qid:{query}{pairs}{comment and f' #{comment}'}\n".encode()


def write(path: Path, *lines: bytes) -> Path:
    """A file of these lines, packed as its name says."""
    content = b"".join(lines)
    path.write_bytes(PACKED[path.suffix](content) if path.suffix in PACKED else content)
    return path


def random_lines(queries: Sequence[Any], seed: int, documents: int = 12) -> list[bytes]:
    """Groups of lines, relevance 0 to 2; feature 2 rises with relevance, feature 5 falls, the others are noise."""
    rng = np.random.default_rng(seed)
    lines = []
    for query in queries:
        relevance = rng.integers(0, 3, documents)
        values = rng.normal(size=(documents, 6))
        values[:, 1] += 2 * relevance
        values[:, 4] -= relevance
        lines += [line(r, query, row) for r, row in zip(relevance.tolist(), values.tolist(), strict=True)]
    return lines


class LetorSet:
    """A folder with train.txt, valid.txt, test.txt and a task file, on which the job can run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for place, split in enumerate(("train", "valid", "test")):
            write(folder / f"{split}.txt", *random_lines(range(100 * place, 100 * place + 20), seed=place))
        self.task()

    def task(self, spec: dict[str, Any] | None = None, seed: int = 3, **letor: Any) -> None:
        """Writes the task file."""
        options = {"min_documents": 2, "tau": 1.0, **letor}
        task = {"name": "test", "seed": seed, "features": spec or features(4, 2), "letor": options}
        (self.folder / "task.yaml").write_text(yaml.safe_dump(task, sort_keys=False))

    def arguments(self, output: str = "dataset", **changed: Any) -> list[str]:
        """changed: paths by split, where they are not train.txt, valid.txt, test.txt; further flags."""
        given = {"config": "task.yaml", "train": "train.txt", "valid": "valid.txt", "test": "test.txt", **changed}
        words = [word for name, value in given.items() for word in (f"--{name}", *self._paths(name, value))]
        return [*words, "--output", str(self.folder / output)]

    def _paths(self, name: str, value: Any) -> list[str]:
        if name == "workers":
            return [str(value)]
        return [str(self.folder / path) for path in ([value] if isinstance(value, str) else value)]

    def build(self, output: str = "dataset", **changed: Any) -> DatasetManifest:
        letor_to_elwc.main(self.arguments(output, **changed))
        return manifest_of(self.folder / output)
