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
    Ties keep the dataset's item order, which says nothing. Returns float64 [groups]; NaN without a positive label.
    """
    gains = _gains(labels, mask)
    return _discounted(_ranked(gains, scores, mask), gains, cutoff)


def precision(labels: Floats, scores: Floats, mask: Mask, cutoff: int) -> Floats:
    """Precision@cutoff of each group: its positive items among the first `cutoff`, divided by `cutoff`.

    That is the field's definition (trec_eval's P_k): a group of fewer items divides by the cutoff, too, and cannot
    reach 1, nor can one of fewer positives. A label above 0 is positive. Shapes, ties and NaN as `ndcg`.
    """
    hits = _hits(labels, mask)
    return _found(_ranked(hits, scores, mask), hits, cutoff) / cutoff


def recall(labels: Floats, scores: Floats, mask: Mask, cutoff: int) -> Floats:
    """Recall@cutoff of each group: the share of its positive items among the first `cutoff`.

    A label above 0 is positive. Shapes, ties and NaN as `ndcg`.
    """
    hits = _hits(labels, mask)
    return _found(_ranked(hits, scores, mask), hits, cutoff) / _found(hits, hits, hits.shape[1])


def expected_random_ndcg(labels: Floats, mask: Mask, cutoff: int) -> Floats:
    """NDCG@cutoff expected of a random order, exactly. Shapes as `ndcg`."""
    gains = _gains(labels, mask)
    return _discounted(_ranked_at_random(gains, mask), gains, cutoff)


def expected_random_precision(labels: Floats, mask: Mask, cutoff: int) -> Floats:
    """Precision@cutoff expected of a random order, exactly: the share of positives, where there are enough items."""
    hits = _hits(labels, mask)
    return _found(_ranked_at_random(hits, mask), hits, cutoff) / cutoff


def expected_random_recall(labels: Floats, mask: Mask, cutoff: int) -> Floats:
    """Recall@cutoff expected of a random order, exactly: min(cutoff, items) / items."""
    hits = _hits(labels, mask)
    return _found(_ranked_at_random(hits, mask), hits, cutoff) / _found(hits, hits, hits.shape[1])


class TopKMetric(NamedTuple):
    """A metric of scores, and what it is expected to be of a random order."""

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


def _ranked(values: Floats, scores: Floats, mask: Mask) -> Floats:
    """The items' values in the order of their scores, padding last."""
    order = np.argsort(np.where(mask, -scores, np.inf), axis=1, kind="stable")
    ranked: Floats = np.take_along_axis(values, order, axis=1)
    return ranked


def _ranked_at_random(values: Floats, mask: Mask) -> Floats:
    """What is expected at each rank of a random order: the group's mean value, as far as it has items."""
    items = mask.sum(axis=1, keepdims=True)
    mean = values.sum(axis=1, keepdims=True) / np.maximum(items, 1)
    return np.where(np.arange(mask.shape[1]) < items, mean, 0.0)


def _discounted(ranked_gains: Floats, gains: Floats, cutoff: int) -> Floats:
    """The discounted gain of the first ranks over the largest possible one; NaN where there is none."""
    discounts = 1.0 / np.log2(np.arange(2, min(cutoff, gains.shape[1]) + 2))
    ideal = -np.sort(-gains, axis=1)[:, : len(discounts)] @ discounts
    with np.errstate(invalid="ignore", divide="ignore"):
        values: Floats = np.where(ideal > 0.0, ranked_gains[:, : len(discounts)] @ discounts / ideal, np.nan)
    return values


def _found(ranked_hits: Floats, hits: Floats, cutoff: int) -> Floats:
    """How many positives are among the first `cutoff` as they are ranked; NaN where a group has none at all."""
    return np.where(hits.any(axis=1), ranked_hits[:, :cutoff].sum(axis=1), np.nan)


@dataclass(frozen=True)
class Interval:
    """A statistic with its bootstrap confidence interval."""

    value: float
    low: float
    high: float


class PairedBootstrap:
    """Resamples the same groups for every model, so that comparisons are paired.

    groups: number of query groups; samples: resamples; confidence: such as 0.95.
    """

    def __init__(self, groups: int, samples: int, confidence: float, seed: int) -> None:
        generator = np.random.default_rng(seed)
        # how often each group was drawn in each resample: a resampled mean is then one product
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
        """How much of the way from the baseline's mean to the oracle's the values go: 0 none, 1 all of it.

        None where there is no way: the baseline ranks as well as the oracle.
        """
        whole = oracle.mean() - baseline.mean()
        if not whole:
            return None
        gone, way = self._weights @ (values - baseline), self._weights @ (oracle - baseline)
        return self._interval(float((values.mean() - baseline.mean()) / whole), gone[way != 0.0] / way[way != 0.0])

    def _interval(self, value: float, resampled: Floats) -> Interval:
        low, high = np.quantile(resampled, self._quantiles)
        return Interval(value, float(low), float(high))
