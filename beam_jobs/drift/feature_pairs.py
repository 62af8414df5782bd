"""One feature of two samples -> how far it differs: which measures are taken of which type. Pure: no Beam."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_jobs import drift
from beam_jobs.drift import Codes, Floats, Ints, Measure, Rate
from beam_jobs.group_sample import ITEMS, Column, Sample, axes_of
from features.manifest import DatasetManifest
from features.spec import Feature

TOP_VALUES = 20  # of a feature, whose shares are compared one by one; all others together are one more
OTHERS = "all other values"
HIDDEN = "a value that is not shown"


class Total(NamedTuple):
    """What a manifest counted of one feature over all groups. minimum, maximum, mean: of numbers, else None."""

    values: int
    missing: int
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None


@dataclass(frozen=True)
class Side:
    """What is compared. manifest: what a dataset counted over all its groups; None where the sample alone speaks."""

    sample: Sample
    manifest: DatasetManifest | None = None

    def total(self, feature: Feature) -> Total | None:
        """None where no manifest counted it."""
        if self.manifest is None or feature is ITEMS:
            return None
        found = [split.features[feature.name] for split in self.manifest.splits.values()]
        values, missing = sum(each.count for each in found), sum(each.missing for each in found)
        if not feature.is_numeric or feature.length > 1:
            return Total(values, missing)
        filled: list[Any] = [each for each in found if each.count]
        mean = sum(each.count * each.mean for each in filled) / values
        return Total(values, missing, min(e.minimum for e in filled), max(e.maximum for e in filled), mean)

    def labelled(self) -> float | None:
        """The share of all groups that have a positive label."""
        if self.manifest is None:
            return None
        splits = self.manifest.splits.values()
        return sum(split.groups_with_label for split in splits) / sum(split.groups for split in splits)


@dataclass(frozen=True)
class Pair:
    """One feature's columns in the samples of sides a and b."""

    a: Side
    b: Side
    column_a: Column
    column_b: Column

    @property
    def feature(self) -> Feature:
        return self.column_a.feature

    def name_of(self, code: int) -> str | None:
        """A value by its code, if it may be shown."""
        return self.a.sample.names.get(code) or self.b.sample.names.get(code)

    def counts(self, outcome: Callable[[Column], Ints], kinds: int) -> tuple[Floats, Floats]:
        """outcome: a column's values as whole numbers in [0, kinds). Returns float64 [groups, kinds] of a and b."""
        return (
            drift.count_by_group(outcome(self.column_a), self.column_a.group, self.a.sample.groups, kinds),
            drift.count_by_group(outcome(self.column_b), self.column_b.group, self.b.sample.groups, kinds),
        )

    def top_counts(self) -> tuple[Codes, Floats, Floats]:
        """The commonest values, and how often each occurs in a and b; all others are one outcome more."""
        top = commonest(self.column_a.codes, self.column_b.codes)
        order = np.argsort(top)

        def place(column: Column) -> Ints:
            nearest = order[np.searchsorted(top, column.codes, sorter=order).clip(max=len(top) - 1)]
            return np.where(top[nearest] == column.codes, nearest, len(top))

        return top, *self.counts(place, len(top) + 1)

    def rates(
        self, positive: Callable[[Column], NDArray[np.bool_]], known: Callable[[Total], float | None]
    ) -> tuple[Rate, Rate]:
        """positive: whether each value counts. known: what a manifest tells of the rate over all groups."""
        counts_a, counts_b = self.counts(lambda column: positive(column).astype(np.int64), 2)
        return _rate(self.a, counts_a, self.feature, known), _rate(self.b, counts_b, self.feature, known)


def _rate(side: Side, counts: Floats, feature: Feature, known: Callable[[Total], float | None]) -> Rate:
    total = side.total(feature)
    return rate_of(side, counts[:, 1], counts.sum(axis=1), known(total) if total else None)


def rate_of(side: Side, positives: Floats, sizes: Floats, known: float | None) -> Rate:
    """positives, sizes: float64 [groups], of the sample. known: the rate over all groups."""
    if known is None:
        return Rate(float(positives.sum() / sizes.sum()), positives, sizes)
    return Rate(known, positives, sizes, side.sample.whole)


def commonest(a: Codes, b: Codes) -> Codes:
    """The values that a and b together have most often, TOP_VALUES at most.

    Each of their values weighs the same: were a smaller sample to weigh more, what it has by chance would be chosen.
    """
    codes, times = np.unique(np.concatenate([a, b]), return_counts=True)
    top: Codes = codes[np.argsort(-times, kind="stable")[:TOP_VALUES]]
    return top


class Measured(NamedTuple):
    """A measure, of what, and the two figures behind it, where there are two: medians, shares or rates."""

    measure: Measure
    of: str
    a: float | None = None
    b: float | None = None


class Question(NamedTuple):
    """One measure to take. kind: a field of Thresholds; ask: takes alpha."""

    feature: Feature
    kind: str
    ask: Callable[[float], Measured]


def questions(pair: Pair) -> Iterator[Question]:
    """All that is asked of a feature; nothing of an id, which no model sees."""
    feature = pair.feature
    if feature.role == "id":
        return
    if feature.type != "bool":
        for place, axis in enumerate(axes_of(feature)):
            yield Question(feature, "divergence", partial(numbers_differ, pair, place, axis))
    if not feature.is_numeric:
        yield Question(feature, "divergence", partial(values_differ, pair))
        yield Question(feature, "share_change", partial(one_value_differs, pair))
        yield Question(feature, "unseen", partial(values_are_new, pair))
    if feature.type == "bool" or feature.role == "label":
        yield Question(feature, "rate_change", partial(rates_differ, pair))
    if feature.role == "label":
        yield Question(feature, "rate_change", partial(labelled_groups_differ, pair))
    if feature.default is not None and pair.a.manifest and pair.b.manifest:
        yield Question(feature, "missing_change", partial(missing_differs, pair))


def numbers_differ(pair: Pair, place: int, axis: str, alpha: float) -> Measured:
    """The divergence of one axis of numbers, cut into tenths of what both sides have."""
    a, b = pair.column_a.numbers[:, place], pair.column_b.numbers[:, place]
    edges = drift.quantile_edges(a, b)
    counts = pair.counts(lambda column: np.searchsorted(edges, column.numbers[:, place], side="right"), len(edges) + 1)
    return Measured(drift.divergence(*counts, alpha), axis, float(np.median(a)), float(np.median(b)))


def values_differ(pair: Pair, alpha: float) -> Measured:
    """The divergence of the commonest values' shares."""
    _, a, b = pair.top_counts()
    return Measured(drift.divergence(a, b, alpha), "values")


def one_value_differs(pair: Pair, alpha: float) -> Measured:
    """The largest change of the share of one of the commonest values."""
    top, a, b = pair.top_counts()
    measure, place = drift.share_change(a, b, alpha)
    of = OTHERS if place == len(top) else pair.name_of(int(top[place])) or HIDDEN
    return Measured(measure, of, *(float(counts[:, place].sum() / counts.sum()) for counts in (a, b)))


def values_are_new(pair: Pair, alpha: float) -> Measured:
    """The share of B's values that A does not have, beyond the share that another sample of A's source would have."""
    a, b = pair.column_a, pair.column_b
    found = drift.unseen(a.codes, a.group, b.codes, b.group, alpha)
    return Measured(found.measure, "share new to A", found.expected, found.share)


def rates_differ(pair: Pair, alpha: float) -> Measured:
    """The change of the share of values above 0; of a bool, whose mean it is, it is known of all values."""
    a, b = pair.rates(_positive, lambda total: total.mean if pair.feature.type == "bool" else None)
    return Measured(drift.rate_change(a, b, alpha), "rate", a.value, b.value)


def labelled_groups_differ(pair: Pair, alpha: float) -> Measured:
    """The change of the share of groups that have a positive label."""
    rates = pair.rates(_positive, lambda total: None)
    a, b = (
        rate_of(side, (rate.positives > 0).astype(np.float64), np.ones(len(rate.positives)), side.labelled())
        for side, rate in zip((pair.a, pair.b), rates, strict=True)
    )
    return Measured(drift.rate_change(a, b, alpha), "rate of groups", a.value, b.value)


def missing_differs(pair: Pair, alpha: float) -> Measured:
    """The change of the share of missing values; its error is that of values that equal the default."""
    a, b = pair.rates(lambda column: column.defaulted, lambda total: total.missing / total.values)
    return Measured(drift.difference(a, b, alpha), "share missing", a.value, b.value)


def _positive(column: Column) -> NDArray[np.bool_]:
    return column.numbers[:, 0] > 0
