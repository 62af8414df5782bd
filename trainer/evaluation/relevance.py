"""What a model is compared with: BM25, and the oracle that ranks by true relevance."""

import csv
import gzip
import math
import re
from collections import Counter
from collections.abc import Iterable

from features.errors import InputError
from trainer.stages import read_file

WORD = re.compile(r"\w+")
SATURATION, LENGTH_WEIGHT = 1.2, 0.75  # BM25's k1 and b, at their usual values


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


class Bm25:
    """Okapi BM25 of a title for a query; document frequencies from the titles given (training's, each once).

    Source: Robertson and Zaragoza 2009, eq. 3.15, with idf log(1 + (n - df + 0.5) / (df + 0.5)), never negative.
    """

    def __init__(self, titles: Iterable[str]) -> None:
        frequencies: Counter[str] = Counter()
        total_length = count = 0
        for title in titles:
            tokens = words(title)
            frequencies.update(set(tokens))
            total_length, count = total_length + len(tokens), count + 1
        self._idf = {word: math.log1p((count - df + 0.5) / (df + 0.5)) for word, df in frequencies.items()}
        self._unseen = math.log1p((count + 0.5) / 0.5)
        self._mean_length = total_length / max(count, 1)

    def __call__(self, query: str, title: str) -> float:
        tokens = words(title)
        counts = Counter(tokens)
        norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * len(tokens) / max(self._mean_length, 1e-9))
        return sum(
            self._idf.get(word, self._unseen) * counts[word] * (SATURATION + 1) / (counts[word] + norm)
            for word in words(query)
            if word in counts
        )


def read_relevance(path: str) -> dict[tuple[str, str], float]:
    """True relevance by (query, item_id) from a TSV, gzipped if its name says so. Errors: InputError with the line."""
    remedy = "give data.relevance a TSV with the columns query, item_id, relevance, or remove it"
    content = read_file(path, remedy)
    try:
        text = (gzip.decompress(content) if path.endswith(".gz") else content).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path} ({error}): {remedy}") from None
    rows = csv.reader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    header = next(rows, [])
    missing = {"query", "item_id", "relevance"} - set(header)
    if missing:
        raise InputError(f"{path} has the columns {header}, without {sorted(missing)}: {remedy}")
    query, item, grade = (header.index(name) for name in ("query", "item_id", "relevance"))
    relevance = {}
    for number, row in enumerate(rows, start=2):
        try:
            relevance[row[query], row[item]] = float(row[grade])
        except (IndexError, ValueError):
            raise InputError(f"{path}, line {number}: {row} holds no number for relevance: {remedy}") from None
    return relevance
