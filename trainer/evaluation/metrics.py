"""Metrics of the first k items of query groups, and paired bootstrap intervals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def ndcg(labels: Floats, scores: Floats, mask: Mask, cutoff: int) -> Floats:
    """NDCG@cutoff of each group, gain 2^y - 1, discount 1 / log2(rank + 1).

    labels, scores: [groups, items]; mask: bool [groups, items], False on padding.
    Ties keep the dataset's item order, which is uninformative. Returns float64 [groups]; NaN without a positive label.
    """
    gains = _gains(labels, mask)
    return _normalised_dcg(_sorted_by_score(gains, scores, mask), gains, cutoff)


def precision(labels: Floats, scores: Floats, mask: Mask, cutoff: int) -> Floats:
    """Precision@cutoff of each group: its positive items among the first `cutoff`, divided by `cutoff`.

    This is trec_eval's P_k: a group with fewer items or positives than the cutoff cannot reach 1.
    A label above 0 is positive. Shapes, ties and NaN as `ndcg`.
    """
    hits = _hits(labels, mask)
    return _positives_in_top(_sorted_by_score(hits, scores, mask), hits, cutoff) / cutoff


def recall(labels: Floats, scores: Floats, mask: Mask, cutoff: int) -> Floats:
    """Recall@cutoff of each group: the share of its positive items among the first `cutoff`.

    A label above 0 is positive. Shapes, ties and NaN as `ndcg`.
    """
    hits = _hits(labels, mask)
    return _positives_in_top(_sorted_by_score(hits, scores, mask), hits, cutoff) / _positives_in_top(
        hits, hits, hits.shape[1]
    )


def expected_random_ndcg(labels: Floats, mask: Mask, cutoff: int) -> Floats:
    """NDCG@cutoff expected of a random order, exactly. Shapes as `ndcg`."""
    gains = _gains(labels, mask)
    return _normalised_dcg(_expected_by_rank(gains, mask), gains, cutoff)


def expected_random_precision(labels: Floats, mask: Mask, cutoff: int) -> Floats:
    """Precision@cutoff expected of a random order, exactly; the share of positives if there are enough items."""
    hits = _hits(labels, mask)
    return _positives_in_top(_expected_by_rank(hits, mask), hits, cutoff) / cutoff


def expected_random_recall(labels: Floats, mask: Mask, cutoff: int) -> Floats:
    """Recall@cutoff expected of a random order, exactly: min(cutoff, items) / items."""
    hits = _hits(labels, mask)
    return _positives_in_top(_expected_by_rank(hits, mask), hits, cutoff) / _positives_in_top(hits, hits, hits.shape[1])


class TopKMetric(NamedTuple):
    """A metric, and its expected value for a random order."""

    of: Callable[[Floats, Floats, Mask, int], Floats]  # (labels, scores, mask, cutoff) -> [groups]
    of_random_order: Callable[[Floats, Mask, int], Floats]  # (labels, mask, cutoff) -> [groups]


TOP_K_METRICS = {
    "ndcg": TopKMetric(ndcg, expected_random_ndcg),
    "precision": TopKMetric(precision, expected_random_precision),
    "recall": TopKMetric(recall, expected_random_recall),
}


def _gains(labels: Floats, mask: Mask) -> Floats:
    return np.where(mask, np.exp2(labels) - 1.0, 0.0)


def _hits(labels: Floats, mask: Mask) -> Floats:
    """1 for a positive item, else 0."""
    return (mask & (labels > 0)).astype(np.float64)


def _sorted_by_score(values: Floats, scores: Floats, mask: Mask) -> Floats:
    """Sorts the items' values by descending score, padding last."""
    order = np.argsort(np.where(mask, -scores, np.inf), axis=1, kind="stable")
    ranked: Floats = np.take_along_axis(values, order, axis=1)
    return ranked


def _expected_by_rank(values: Floats, mask: Mask) -> Floats:
    """Expected value at each rank of a random order: the group's mean; 0 on padding."""
    items = mask.sum(axis=1, keepdims=True)
    mean = values.sum(axis=1, keepdims=True) / np.maximum(items, 1)
    return np.where(np.arange(mask.shape[1]) < items, mean, 0.0)


def _normalised_dcg(ranked_gains: Floats, gains: Floats, cutoff: int) -> Floats:
    """DCG of the first ranks divided by the ideal DCG; NaN if that is 0."""
    discounts = 1.0 / np.log2(np.arange(2, min(cutoff, gains.shape[1]) + 2))
    ideal = -np.sort(-gains, axis=1)[:, : len(discounts)] @ discounts
    with np.errstate(invalid="ignore", divide="ignore"):
        values: Floats = np.where(ideal > 0.0, ranked_gains[:, : len(discounts)] @ discounts / ideal, np.nan)
    return values


def _positives_in_top(ranked_hits: Floats, hits: Floats, cutoff: int) -> Floats:
    """Number of positives among the first `cutoff` items; NaN for a group without positives."""
    return np.where(hits.any(axis=1), ranked_hits[:, :cutoff].sum(axis=1), np.nan)


@dataclass(frozen=True)
class Interval:
    """A statistic with its bootstrap confidence interval."""

    value: float
    low: float
    high: float


class PairedBootstrap:
    """Bootstrap that resamples the same groups for every model, so that comparisons are paired.

    groups: number of query groups; samples: resamples; confidence: such as 0.95.
    """

    def __init__(self, groups: int, samples: int, confidence: float, seed: int) -> None:
        generator = np.random.default_rng(seed)
        # counts of each group in each resample: a resampled mean is one matrix product
        draws = generator.multinomial(groups, np.full(groups, 1.0 / groups), size=samples)
        self._weights = draws.astype(np.float64) / groups
        tail = (1.0 - confidence) / 2.0
        self._quantiles = (tail, 1.0 - tail)

    def mean(self, values: Floats) -> Interval:
        """values: [groups]."""
        return self._interval(float(values.mean()), self._weights @ values)

    def relative_gain(self, values: Floats, baseline: Floats) -> Interval:
        """mean(values) / mean(baseline) - 1; both [groups], the same groups."""
        resampled = (self._weights @ values) / (self._weights @ baseline) - 1.0
        return self._interval(float(values.mean() / baseline.mean() - 1.0), resampled)

    def share_of_distance(self, values: Floats, baseline: Floats, oracle: Floats) -> Interval | None:
        """Share of the distance from the baseline's mean to the oracle's: (values - baseline) / (oracle - baseline).

        None if the baseline equals the oracle.
        """
        whole = oracle.mean() - baseline.mean()
        if not whole:
            return None
        gone, way = self._weights @ (values - baseline), self._weights @ (oracle - baseline)
        return self._interval(float((values.mean() - baseline.mean()) / whole), gone[way != 0.0] / way[way != 0.0])

    def _interval(self, value: float, resampled: Floats) -> Interval:
        low, high = np.quantile(resampled, self._quantiles)
        return Interval(value, float(low), float(high))
