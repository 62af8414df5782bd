"""The measures of each feature type, applied to one feature of two samples. Pure: no Beam."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_jobs.drift import measures
from beam_jobs.drift.group_sample import GROUP_SIZE, Column, Sample, axes_of
from beam_jobs.drift.measures import Float64Array, Int64Array, Measure, Rate, ValueCodes
from features.manifest import DatasetManifest
from features.spec import Feature

_TOP_VALUES = 20  # values of a feature compared one by one; all others form one more outcome
OTHER_VALUES = "all other values"
HIDDEN_VALUE = "a value that is not shown"


class FeatureTotals(NamedTuple):
    """A manifest's counts of one feature over all groups. minimum, maximum, mean: None unless numeric."""

    values: int
    missing: int
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None


@dataclass(frozen=True)
class ComparisonSide:
    """One side of a comparison. manifest: counts over all groups of the dataset; None to use only the sample."""

    sample: Sample
    manifest: DatasetManifest | None = None

    def total(self, feature: Feature) -> FeatureTotals | None:
        """The manifest's totals of a feature; None if no manifest has them."""
        if self.manifest is None or feature is GROUP_SIZE:
            return None
        result = [split.features[feature.name] for split in self.manifest.splits.values()]
        values, missing = sum(each.count for each in result), sum(each.missing for each in result)
        if not feature.is_numeric or feature.length > 1:
            return FeatureTotals(values, missing)
        filled: list[Any] = [each for each in result if each.count]
        mean = sum(each.count * each.mean for each in filled) / values
        return FeatureTotals(values, missing, min(e.minimum for e in filled), max(e.maximum for e in filled), mean)

    def labelled_share(self) -> float | None:
        """The share of all groups that have a positive label."""
        if self.manifest is None:
            return None
        splits = self.manifest.splits.values()
        return sum(split.groups_with_label for split in splits) / sum(split.groups for split in splits)


@dataclass(frozen=True)
class FeaturePair:
    """One feature's columns in the samples of sides a and b."""

    a: ComparisonSide
    b: ComparisonSide
    column_a: Column
    column_b: Column

    @property
    def feature(self) -> Feature:
        return self.column_a.feature

    def name_of(self, code: int) -> str | None:
        """The value of a code, if it may be shown."""
        return self.a.sample.names.get(code) or self.b.sample.names.get(code)

    def counts(self, outcome: Callable[[Column], Int64Array], kinds: int) -> tuple[Float64Array, Float64Array]:
        """outcome: a column's values as whole numbers in [0, kinds). Returns float64 [groups, kinds] of a and b."""
        return (
            measures.count_by_group(outcome(self.column_a), self.column_a.group, self.a.sample.groups, kinds),
            measures.count_by_group(outcome(self.column_b), self.column_b.group, self.b.sample.groups, kinds),
        )

    def top_counts(self) -> tuple[ValueCodes, Float64Array, Float64Array]:
        """The most frequent values and their counts in a and b; the last outcome counts all other values."""
        top = _most_frequent(self.column_a.codes, self.column_b.codes)
        order = np.argsort(top)

        def outcome(column: Column) -> Int64Array:
            nearest = order[np.searchsorted(top, column.codes, sorter=order).clip(max=len(top) - 1)]
            return np.where(top[nearest] == column.codes, nearest, len(top))

        return top, *self.counts(outcome, len(top) + 1)

    def rates(
        self, positive: Callable[[Column], NDArray[np.bool_]], known: Callable[[FeatureTotals], float | None]
    ) -> tuple[Rate, Rate]:
        """positive: which values count as positive. known: the rate over all groups, from a manifest."""
        counts_a, counts_b = self.counts(lambda column: positive(column).astype(np.int64), 2)
        return _rate(self.a, counts_a, self.feature, known), _rate(self.b, counts_b, self.feature, known)


def _rate(
    side: ComparisonSide, counts: Float64Array, feature: Feature, known: Callable[[FeatureTotals], float | None]
) -> Rate:
    total = side.total(feature)
    return rate_of(side, counts[:, 1], counts.sum(axis=1), known(total) if total else None)


def rate_of(side: ComparisonSide, positives: Float64Array, sizes: Float64Array, known: float | None) -> Rate:
    """positives, sizes: float64 [groups], of the sample. known: the rate over all groups, or None."""
    if known is None:
        return Rate(float(positives.sum() / sizes.sum()), positives, sizes)
    return Rate(known, positives, sizes, side.sample.whole)


def _most_frequent(a: ValueCodes, b: ValueCodes) -> ValueCodes:
    """The most frequent values of a and b pooled, at most _TOP_VALUES.

    Every value has the same weight: a larger weight for the smaller sample would select its chance values.
    """
    codes, times = np.unique(np.concatenate([a, b]), return_counts=True)
    top: ValueCodes = codes[np.argsort(-times, kind="stable")[:_TOP_VALUES]]
    return top


class FeatureTestResult(NamedTuple):
    """A measure, its subject and the figures of both sides, if any: medians, shares or rates."""

    measure: Measure
    of: str
    a: float | None = None
    b: float | None = None


class FeatureTest(NamedTuple):
    """One measure of a feature. kind: a field of Thresholds. run: computes the result for alpha."""

    feature: Feature
    kind: str
    run: Callable[[float], FeatureTestResult]


def feature_tests(pair: FeaturePair) -> Iterator[FeatureTest]:
    """The tests of a feature; none for an id, which no model sees."""
    feature = pair.feature
    if feature.role == "id":
        return
    if feature.type != "bool":
        for index, axis in enumerate(axes_of(feature)):
            yield FeatureTest(feature, "divergence", partial(_number_divergence, pair, index, axis))
    if not feature.is_numeric:
        yield FeatureTest(feature, "divergence", partial(_value_divergence, pair))
        yield FeatureTest(feature, "share_change", partial(_largest_share_change, pair))
        yield FeatureTest(feature, "unseen", partial(_unseen_values, pair))
    if feature.type == "bool" or feature.role == "label":
        yield FeatureTest(feature, "rate_change", partial(_positive_rate_change, pair))
    if feature.role == "label":
        yield FeatureTest(feature, "rate_change", partial(_labelled_group_change, pair))
    if feature.default is not None and pair.a.manifest and pair.b.manifest:
        yield FeatureTest(feature, "missing_change", partial(_missing_change, pair))


def _number_divergence(pair: FeaturePair, index: int, axis: str, alpha: float) -> FeatureTestResult:
    """The divergence of one axis of numbers, in deciles of the pooled values."""
    a, b = pair.column_a.numbers[:, index], pair.column_b.numbers[:, index]
    edges = measures.quantile_edges(a, b)
    counts = pair.counts(lambda column: np.searchsorted(edges, column.numbers[:, index], side="right"), len(edges) + 1)
    return FeatureTestResult(measures.divergence(*counts, alpha), axis, float(np.median(a)), float(np.median(b)))


def _value_divergence(pair: FeaturePair, alpha: float) -> FeatureTestResult:
    """The divergence of the most frequent values' shares."""
    _, a, b = pair.top_counts()
    return FeatureTestResult(measures.divergence(a, b, alpha), "values")


def _largest_share_change(pair: FeaturePair, alpha: float) -> FeatureTestResult:
    """The largest change in share of one of the most frequent values."""
    top, a, b = pair.top_counts()
    measure, index = measures.share_change(a, b, alpha)
    of = OTHER_VALUES if index == len(top) else pair.name_of(int(top[index])) or HIDDEN_VALUE
    return FeatureTestResult(measure, of, *(float(counts[:, index].sum() / counts.sum()) for counts in (a, b)))


def _unseen_values(pair: FeaturePair, alpha: float) -> FeatureTestResult:
    """The share of B's values that A lacks, beyond the share expected of another sample of A's source."""
    a, b = pair.column_a, pair.column_b
    result = measures.unseen(a.codes, a.group, b.codes, b.group, alpha)
    return FeatureTestResult(result.measure, "share new to A", result.expected, result.share)


def _positive_rate_change(pair: FeaturePair, alpha: float) -> FeatureTestResult:
    """The change in the share of values above 0; for a bool the manifest's mean gives it over all groups."""
    a, b = pair.rates(_positive, lambda total: total.mean if pair.feature.type == "bool" else None)
    return FeatureTestResult(measures.rate_change(a, b, alpha), "rate", a.value, b.value)


def _labelled_group_change(pair: FeaturePair, alpha: float) -> FeatureTestResult:
    """The change in the share of groups with a positive label."""
    rates = pair.rates(_positive, lambda total: None)
    a, b = (
        rate_of(side, (rate.positives > 0).astype(np.float64), np.ones(len(rate.positives)), side.labelled_share())
        for side, rate in zip((pair.a, pair.b), rates, strict=True)
    )
    return FeatureTestResult(measures.rate_change(a, b, alpha), "rate of groups", a.value, b.value)


def _missing_change(pair: FeaturePair, alpha: float) -> FeatureTestResult:
    """The change in the share of missing values; its error is estimated from values equal to the default."""
    a, b = pair.rates(lambda column: column.defaulted, lambda total: total.missing / total.values)
    return FeatureTestResult(measures.difference(a, b, alpha), "share missing", a.value, b.value)


def _positive(column: Column) -> NDArray[np.bool_]:
    return column.numbers[:, 0] > 0
