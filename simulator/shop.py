"""The interface of a simulated shop: products, queries, candidates and their true relevance."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from features.task import Section

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

NO_ITEM = -1  # padding for requests with fewer candidates than requested
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class SimulatedProduct:
    """One row of the product table: title and attributes known before any search."""

    item_id: str
    title: str
    attributes: dict[str, Any] = field(default_factory=dict)  # brand, price, rating, ...

    def to_json(self) -> dict[str, Any]:
        return {"item_id": self.item_id, "title": self.title, **self.attributes}


@dataclass(frozen=True, slots=True)
class Candidates:
    """Retrieved candidates of a batch of requests, in no particular order.

    items: [requests, n] indexes into the shop's products; NO_ITEM if a request has fewer than n.
    grades: [requests, n], true relevance 0..3.
    utilities: [requests, n], true utility in [0, 1].
    """

    items: IntArray
    grades: IntArray
    utilities: FloatArray


class Shop(Protocol):
    """A source of products, queries and relevance. Query texts and item ids are distinct."""

    @property
    def products(self) -> Sequence[SimulatedProduct]: ...

    @property
    def queries(self) -> Sequence[str]: ...

    def candidates(self, queries: IntArray, count: int, rng: np.random.Generator) -> Candidates:
        """Draws `count` candidates for each request. queries: [requests], indexes of query texts."""
        ...


class UtilityConfig(Section):
    """True utility in [0, 1] of a query-item pair: base[grade] + share_bonus[grade] * share.

    share: matched attributes / stated attributes of the query, 1 if it states none; 0 if the source has no attributes.
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

    def utilities(self, grades: IntArray, share: FloatArray | float = 0.0) -> FloatArray:
        utilities: FloatArray = np.asarray(self.base)[grades] + np.asarray(self.share_bonus)[grades] * share
        return utilities


class TokenOverlap:
    """The share of a query's tokens that occur in a title: the signal of a lexical ranker."""

    def __init__(self, queries: Sequence[str], titles: Sequence[str]) -> None:
        ids: dict[str, int] = {}
        self._query_tokens = _token_matrix(queries, ids, padding=-1)
        self._title_tokens = _token_matrix(titles, ids, padding=-2)  # never equals a query token
        self._query_lengths = np.maximum((self._query_tokens >= 0).sum(axis=1), 1)

    def share(self, queries: IntArray, items: IntArray) -> FloatArray:
        """queries: [requests]; items: [requests, n]. Returns [requests, n] in [0, 1]."""
        # one array per title position: numpy is slow along that axis
        titles = [column[items] for column in self._title_tokens.T]
        matched = np.zeros(items.shape, dtype=np.int64)
        for query_token in self._query_tokens[queries].T:
            in_title = np.zeros(items.shape, dtype=bool)
            for title in titles:
                in_title |= title == query_token[:, None]
            matched += in_title
        share: FloatArray = matched / self._query_lengths[queries][:, None]
        return share


def tokens(text: str) -> list[str]:
    """Lower-cased words and numbers."""
    return _WORD.findall(text.lower())


def _token_matrix(texts: Sequence[str], ids: dict[str, int], padding: int) -> npt.NDArray[np.int32]:
    rows = [[ids.setdefault(token, len(ids)) for token in dict.fromkeys(tokens(text))] for text in texts]
    matrix = np.full((len(rows), max((len(row) for row in rows), default=0) or 1), padding, dtype=np.int32)
    for index, row in enumerate(rows):
        matrix[index, : len(row)] = row
    return matrix
