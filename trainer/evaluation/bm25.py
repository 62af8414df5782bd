"""BM25, the reference that every ranker must beat: words, stemmed, scored by the bm25s library.

Its parameters are tuned on the validation split, so that the reference gets a search of its own.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from trainer.config import Stemming

_WORD = re.compile(r"\w+")


class Bm25Settings(NamedTuple):
    """BM25's parameters; the defaults are the usual ones."""

    k1: float = 1.2  # how soon a further occurrence of a word adds little
    b: float = 0.75  # weight of a title's length


# what tuning tries
GRID = tuple(Bm25Settings(k1, b) for k1 in (0.4, 0.8, 1.2, 1.6, 2.0) for b in (0.25, 0.5, 0.75, 1.0))


class Bm25:
    """Okapi BM25 of a title for a query, with Lucene's idf, log(1 + (n - df + 0.5) / (df + 0.5)), never negative.

    Source: Robertson and Zaragoza 2009, eq. 3.15; Lù 2024 (BM25S).
    """

    def __init__(self, titles: Iterable[str], stemming: Stemming = "none") -> None:
        """titles: the catalogue, which gives document frequencies and the mean length."""
        self._stem = _stemmer(stemming)
        self._row = {title: row for row, title in enumerate(dict.fromkeys(titles))}
        self._ids: dict[str, int] = {}
        words = [self._words(title) for title in self._row]
        for word in (word for title in words for word in title):
            self._ids.setdefault(word, len(self._ids))
        self._documents = bm25s.tokenization.Tokenized(
            ids=[[self._ids[word] for word in title] for title in words], vocab=self._ids
        )

    def scores(
        self, queries: Sequence[str], titles: Sequence[Sequence[str]], settings: Bm25Settings
    ) -> list[NDArray[np.float64]]:
        """The scores of each query's titles, which are of the catalogue; 0 where no word matches."""
        if not self._ids:
            return [np.zeros(len(shown)) for shown in titles]
        index = bm25s.BM25(k1=settings.k1, b=settings.b, method="lucene")
        index.index(self._documents, create_empty_token=False, show_progress=False)
        scored = [np.zeros(len(shown)) for shown in titles]
        former, of_all = None, np.zeros(len(self._row))
        for group in sorted(range(len(queries)), key=queries.__getitem__):  # equal queries, one after the other
            if queries[group] != former:
                former = queries[group]
                known = [self._ids[word] for word in self._words(former) if word in self._ids]
                of_all = index.get_scores(known) if known else np.zeros(len(self._row))
            scored[group] = of_all[[self._row[title] for title in titles[group]]].astype(np.float64)
        return scored

    def _words(self, text: str) -> list[str]:
        return self._stem(_WORD.findall(text.lower()))


def _stemmer(stemming: Stemming) -> Callable[[list[str]], list[str]]:
    if stemming == "none":
        return lambda words: words
    stem: Callable[[list[str]], list[str]] = Stemmer.Stemmer(stemming).stemWords
    return stem
