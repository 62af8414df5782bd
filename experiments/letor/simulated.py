"""A small simulated LETOR set for quick runs, which only test that an experiment works."""

from pathlib import Path

import numpy as np

from experiments.runner.files import write_atomically

FEATURES, DOCUMENTS = 46, 12  # of a document, as MQ2008's; of a query
QUERIES = {"train": 60, "valid": 30, "test": 30}
SHARE_BELOW = (0.6, 0.85)  # of documents below relevance 1, and below 2


def write_simulated_set(folder: Path) -> dict[str, tuple[str, ...]]:
    """Writes a file for each split, deterministically. Returns split -> files."""
    generator, files, first = np.random.default_rng(11), dict[str, tuple[str, ...]](), 1
    weights = generator.standard_normal(FEATURES) / np.arange(1, FEATURES + 1)
    for split, queries in QUERIES.items():
        lines = []
        for query in range(first, first + queries):
            values = generator.random((DOCUMENTS, FEATURES))
            quality = values @ weights + 0.3 * generator.standard_normal(DOCUMENTS)
            relevance = np.searchsorted(np.quantile(quality, SHARE_BELOW), quality)
            for number, (grade, row) in enumerate(zip(relevance, values, strict=True)):
                features = " ".join(f"{i}:{value:.4f}" for i, value in enumerate(row, start=1))
                lines.append(f"{grade} qid:{query} {features} #docid = {query}-{number}\n")
        first += queries
        path = folder / f"{split}.txt"
        write_atomically(path, "".join(lines).encode())
        files[split] = (str(path),)
    return files
