"""Relevance from a TSV of judged query-title pairs with the columns of ESCI."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from features.errors import InputError
from simulator.shop import NO_ITEM, Candidates, IntArray, SimulatedProduct, UtilityConfig

_COLUMNS = ("query", "product_id", "title", "gain")  # required columns; others are ignored
_GRADES = range(4)
_REMEDY = "give --judged-pairs a UTF-8 TSV, plain or .gz, with the columns query_id, query, product_id, title, gain"


class JudgedPairsShop:
    """Samples a request's candidates from its query's judged items; utility depends only on the gain.

    Rows with equal query text are one query, whatever their query_id; a pair judged twice keeps its higher gain.
    Errors: InputError naming file and line for a missing column, a gain outside 0..3, or an empty table.
    """

    def __init__(self, path: str, utility: UtilityConfig) -> None:
        self._utility = utility
        titles: dict[str, str] = {}
        judged: dict[str, dict[str, int]] = {}
        for query, product_id, title, gain in read_judged_pairs(path):
            titles.setdefault(product_id, title)
            query_gains = judged.setdefault(query, {})
            query_gains[product_id] = max(gain, query_gains.get(product_id, 0))
        self.products = tuple(SimulatedProduct(item_id, title) for item_id, title in titles.items())
        self.queries = tuple(judged)
        index_of = {item_id: index for index, item_id in enumerate(titles)}
        longest = max(len(items) for items in judged.values())
        self._items = np.full((len(judged), longest), NO_ITEM, dtype=np.int64)
        self._grades = np.zeros_like(self._items)
        for row, items in enumerate(judged.values()):
            self._items[row, : len(items)] = [index_of[item_id] for item_id in items]
            self._grades[row, : len(items)] = list(items.values())

    def candidates(self, queries: IntArray, count: int, rng: np.random.Generator) -> Candidates:
        """Samples `count` of each query's judged items without replacement, or all items if it has fewer."""
        items = self._items[queries]
        keys = np.where(items == NO_ITEM, np.inf, rng.random(items.shape))
        chosen = np.argsort(keys, axis=1, kind="stable")[:, :count]
        items = np.take_along_axis(items, chosen, axis=1)
        grades = np.take_along_axis(self._grades[queries], chosen, axis=1)
        return Candidates(items, grades, self._utility.utilities(grades))


def read_judged_pairs(path: str) -> Iterator[tuple[str, str, str, int]]:
    """(query, product_id, title, gain) of each row. Errors: InputError."""
    rows = 0
    indices: list[int] = []
    width = 0
    for number, line in _lines(path):
        cells = line.split("\t")
        if number == 1:
            indices, width = _column_indices(cells, path), len(cells)
            continue
        if len(cells) != width:
            raise InputError(f"{path}, line {number}: {len(cells)} columns, expected {width} as in line 1; {_REMEDY}")
        query, product_id, title, gain = (cells[index].strip() for index in indices)
        for name, value in (("query", query), ("product_id", product_id), ("title", title)):
            if not value:
                raise InputError(f"{path}, line {number}: {name} is empty, expected text; {_REMEDY}")
        rows += 1
        yield query, product_id, title, _gain(gain, f"{path}, line {number}")
    if not rows:
        raise InputError(f"{path} holds no judged pair, expected one per line below the header; {_REMEDY}")


def _lines(path: str) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with gzip.open(path, "rb") if Path(path).suffix == ".gz" else open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                yield number, line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise InputError(f"{path}, line {number}: not UTF-8; {_REMEDY}") from None
    except (OSError, EOFError) as error:
        raise InputError(f"cannot read judged pairs {path}: {error.__class__.__name__}: {error}; {_REMEDY}") from None


def _column_indices(header: list[str], path: str) -> list[int]:
    missing = [column for column in _COLUMNS if column not in header]
    if missing:
        raise InputError(f"{path}, line 1: no column {', '.join(missing)} among {', '.join(header)}; {_REMEDY}")
    return [header.index(column) for column in _COLUMNS]


def _gain(text: str, where: str) -> int:
    if text not in {str(grade) for grade in _GRADES}:
        raise InputError(f"{where}: gain is {text!r}, expected one of 0, 1, 2, 3; {_REMEDY}")
    return int(text)
