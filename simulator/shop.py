"""What the simulator needs of a shop, whatever its source: products, queries, candidates and their true relevance."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from features.task import Section

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NO_ITEM = -1  # behind the last candidate of a request that has fewer than asked for
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Product:
    """One row of the product table. title and the attributes are what a shop knows before any search."""

    item_id: str
    title: str
    attributes: dict[str, Any] = field(default_factory=dict)  # brand, price, rating, ...

    def to_json(self) -> dict[str, Any]:
        return {"item_id": self.item_id, "title": self.title, **self.attributes}


@dataclass(frozen=True, slots=True)
class Candidates:
    """What retrieval found for some requests, in no particular order.

    items: [requests, n] indexes into the shop's products; NO_ITEM where a request has fewer than n.
    grades: [requests, n], true relevance 0..3.
    utilities: [requests, n], true utility in [0, 1].
    """

    items: Ints
    grades: Ints
    utilities: Floats


class Shop(Protocol):
    """A source of relevance. Query texts are distinct; so are item ids."""

    @property
    def products(self) -> Sequence[Product]: ...

    @property
    def queries(self) -> Sequence[str]: ...

    def candidates(self, queries: Ints, count: int, rng: np.random.Generator) -> Candidates:
        """Candidates of requests that ask for `queries` (indexes, [requests]), `count` for each."""
        ...


class UtilityConfig(Section):
    """True utility in [0, 1] of a query-item pair: base[grade] + share_bonus[grade] * share.

    share: matched attributes / stated attributes of the query, 1 if it states none; 0 where the source knows none.
    """

    base: tuple[float, float, float, float] = (0.0, 0.1, 0.4, 1.0)  # utility of grade 0, 1, 2, 3
    share_bonus: tuple[float, float, float, float] = (0.05, 0.1, 0.4, 0.0)  # utility; base + bonus at most 1

    @model_validator(mode="after")
    def _in_range(self) -> "UtilityConfig":
        for grade, (base, bonus) in enumerate(zip(self.base, self.share_bonus, strict=True)):
            if base < 0 or bonus < 0 or base + bonus > 1:
                raise ValueError(
                    f"grade {grade}: base {base} and share_bonus {bonus}, expected neither below 0, at most 1 in sum"
                )
        return self

    def utilities(self, grades: Ints, share: Floats | float = 0.0) -> Floats:
        utilities: Floats = np.asarray(self.base)[grades] + np.asarray(self.share_bonus)[grades] * share
        return utilities


class TokenOverlap:
    """The share of a query's tokens that a title holds: what a lexical ranker knows of a pair."""

    def __init__(self, queries: Sequence[str], titles: Sequence[str]) -> None:
        ids: dict[str, int] = {}
        self._query_tokens = _token_matrix(queries, ids, padding=-1)
        self._title_tokens = _token_matrix(titles, ids, padding=-2)  # equals no query token
        self._query_lengths = np.maximum((self._query_tokens >= 0).sum(axis=1), 1)

    def share(self, queries: Ints, items: Ints) -> Floats:
        """queries: [requests]; items: [requests, n]. Returns [requests, n] in [0, 1]."""
        titles = [column[items] for column in self._title_tokens.T]  # a place in the title each: numpy is slow along it
        found = np.zeros(items.shape, dtype=np.int64)
        for wanted in self._query_tokens[queries].T:
            held = np.zeros(items.shape, dtype=bool)
            for title in titles:
                held |= title == wanted[:, None]
            found += held
        share: Floats = found / self._query_lengths[queries][:, None]
        return share


def tokens(text: str) -> list[str]:
    """Lower-cased words and numbers."""
    return WORD.findall(text.lower())


def _token_matrix(texts: Sequence[str], ids: dict[str, int], padding: int) -> npt.NDArray[np.int32]:
    rows = [[ids.setdefault(token, len(ids)) for token in dict.fromkeys(tokens(text))] for text in texts]
    matrix = np.full((len(rows), max((len(row) for row in rows), default=0) or 1), padding, dtype=np.int32)
    for index, row in enumerate(rows):
        matrix[index, : len(row)] = row
    return matrix
