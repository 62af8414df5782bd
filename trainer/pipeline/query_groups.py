"""A split's query groups as evaluation reads them: labels, texts, identifiers and true relevance."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from features.errors import InputError
from trainer.evaluation.metrics import Floats, Mask
from trainer.evaluation.relevance import read_relevance
from trainer.pipeline.run import Run

MIN_RELEVANT_SHARE = 0.1  # of positive test groups with a relevant item; below it, the file belongs to other logs
_POSITION = "position"  # the feature that beam_jobs writes for an item's place in the shown order, 0 first


@dataclass(frozen=True)
class QueryGroups:
    """Query groups in file order, padded. texts, items: [groups][items].

    positions: [groups, items], the shop's own order; None where the spec has none.
    """

    labels: Floats
    mask: Mask
    queries: list[str]
    titles: list[list[str]]
    item_ids: list[list[str]]  # empty where the spec has no item identifier
    positions: Floats | None

    @property
    def positive(self) -> NDArray[np.bool_]:
        """bool [groups]: whether a group has a positive label."""
        labelled: NDArray[np.bool_] = ((self.labels > 0) & self.mask).any(axis=1)
        return labelled

    def padded(self, rows: list[Floats]) -> Floats:
        """Values of the real items of each group -> [groups, items], 0 on padding."""
        padded = np.zeros(self.mask.shape)
        padded[self.mask] = np.concatenate(rows)
        return padded

    def where(self, chosen: NDArray[np.bool_]) -> "QueryGroups":
        """The chosen groups."""
        rows = np.flatnonzero(chosen)
        return QueryGroups(
            self.labels[rows],
            self.mask[rows],
            [self.queries[row] for row in rows],
            [self.titles[row] for row in rows],
            [self.item_ids[row] for row in rows],
            None if self.positions is None else self.positions[rows],
        )


def distinct_titles(run: Run, split: str) -> set[str]:
    """The titles of a split's items."""
    names = _item_texts(run)
    titles: set[str] = set()
    for raw, counts in run.split(split).raw((*names, run.config.spec.label.name)).as_numpy_iterator():
        real = np.arange(raw[names[0]].shape[1]) < counts[:, None]
        titles.update(b" ".join(parts).decode() for parts in zip(*(raw[name][real] for name in names), strict=True))
    return titles


def _item_texts(run: Run) -> list[str]:
    spec = run.config.spec
    return [f.name for f in spec.at("item", spec.regular) if f.is_text]


def read_groups(run: Run, split: str) -> QueryGroups:
    """Every group of a split, in file order, as `score_batches` returns their scores."""
    spec = run.config.spec
    # BM25 and true relevance use the query, even if it is an identifier, and no other context text
    context = ["query"] if "query" in spec else [f.name for f in spec.at("context", spec.regular) if f.is_text]
    texts = _item_texts(run)
    identifiers = [f.name for f in spec.at("item") if f.role == "id"][:1]
    shown = [_POSITION] if _POSITION in spec and spec[_POSITION].is_numeric else []
    label = spec.label.name
    queries, titles, item_ids, labels, positions = [], [], [], [], []
    names = (*context, *texts, *identifiers, *shown, label)
    for raw, counts in run.split(split).raw(names).as_numpy_iterator():
        for g, n in enumerate(counts):
            queries.append(" ".join(raw[name][g].decode() for name in context))
            titles.append([" ".join(raw[name][g, i].decode() for name in texts) for i in range(n)])
            item_ids.append([raw[identifiers[0]][g, i].decode() for i in range(n)] if identifiers else [])
            labels.append(raw[label][g, :n].astype(np.float64))
            positions.append(raw[_POSITION][g, :n].astype(np.float64) if shown else np.zeros(n))
    counted = np.array([len(row) for row in labels])
    mask = np.arange(counted.max(initial=1)) < counted[:, None]
    groups = QueryGroups(np.zeros(mask.shape), mask, queries, titles, item_ids, None)
    return QueryGroups(
        groups.padded(labels), mask, queries, titles, item_ids, groups.padded(positions) if shown else None
    )


def positive_test_groups(run: Run) -> QueryGroups:
    """The test groups with a positive label. Errors: InputError where there is none."""
    groups = read_groups(run, "test")
    if not groups.positive.any():
        raise InputError(
            f"dataset {run.data.dataset}: test has no group with a {run.config.spec.label.name}, expected some to "
            "measure on: bring logs of more requests, or give the test split a larger share in `dataset:`"
        )
    return groups.where(groups.positive)


def check_relevance(run: Run) -> str | None:
    """Describes how much of the test split the relevance file covers; None without a file.

    Errors: InputError when the coverage is too low for the file to belong to these logs.
    """
    if run.data.relevance is None:
        return None
    groups = read_groups(run, "test")
    return _coverage(run.data.relevance, groups, _known_relevance(run.data.relevance, groups))


def relevance_of(run: Run, groups: QueryGroups) -> Floats | None:
    """True relevance of each test item, 0 if unknown; None without a relevance file. Errors: InputError."""
    if run.data.relevance is None:
        return None
    known = _known_relevance(run.data.relevance, groups)
    _coverage(run.data.relevance, groups, known)
    return np.nan_to_num(known)


def _known_relevance(path: str, groups: QueryGroups) -> Floats:
    """True relevance, [groups, items]; NaN where the file has none. Errors: InputError."""
    if not groups.item_ids[0]:
        raise InputError(
            f"--relevance is {path}, but no feature of the items is an id, by which it is found: leave it out"
        )
    known = read_relevance(path)
    pairs = zip(groups.queries, groups.item_ids, strict=True)
    return groups.padded([np.array([known.get((query, item), np.nan) for item in items]) for query, items in pairs])


def _coverage(path: str, groups: QueryGroups, relevance: Floats) -> str:
    positive, known = groups.positive, ~np.isnan(relevance) & groups.mask
    relevant = (np.nan_to_num(relevance) > 0.0).any(axis=1)
    coverage = (
        f"{known[positive].sum():,} of {groups.mask[positive].sum():,} items, and an item above 0 for "
        f"{relevant[positive].sum():,} of {positive.sum():,} groups, of the positive groups of the test split"
    )
    if relevant[positive].mean() < MIN_RELEVANT_SHARE:
        raise InputError(
            f"--relevance {path} has the relevance of {coverage}, expected at least {MIN_RELEVANT_SHARE:.0%} of these "
            "groups: give the file that belongs to these logs, or leave it out"
        )
    return f"relevance {path}: {coverage}"
