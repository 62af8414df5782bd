"""NDCG over query groups, and paired bootstrap intervals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def ndcg(labels: Floats, scores: Floats, mask: NDArray[np.bool_], cutoff: int) -> Floats:
    """NDCG@cutoff of each group, gain 2^y - 1, discount 1 / log2(rank + 1).

    labels, scores: [groups, items]; mask: bool [groups, items], False on padding.
    Ties keep the dataset's item order, which says nothing. Returns float64 [groups]; NaN without a positive label.
    """
    order = np.argsort(np.where(mask, -scores, np.inf), axis=1, kind="stable")
    gains = np.where(mask, np.exp2(labels) - 1.0, 0.0)
    return _normalised(np.take_along_axis(gains, order, axis=1), gains, cutoff)


def expected_random_ndcg(labels: Floats, mask: NDArray[np.bool_], cutoff: int) -> Floats:
    """NDCG@cutoff expected of a random order, exactly: each rank holds the group's mean gain. Shapes as `ndcg`."""
    gains = np.where(mask, np.exp2(labels) - 1.0, 0.0)
    items = mask.sum(axis=1, keepdims=True)
    mean_gain = gains.sum(axis=1, keepdims=True) / np.maximum(items, 1)
    return _normalised(np.where(np.arange(mask.shape[1]) < items, mean_gain, 0.0), gains, cutoff)


def _normalised(ranked_gains: Floats, gains: Floats, cutoff: int) -> Floats:
    discounts = 1.0 / np.log2(np.arange(2, min(cutoff, gains.shape[1]) + 2))
    ideal = -np.sort(-gains, axis=1)[:, : len(discounts)] @ discounts
    with np.errstate(invalid="ignore", divide="ignore"):
        values: Floats = np.where(ideal > 0.0, ranked_gains[:, : len(discounts)] @ discounts / ideal, np.nan)
    return values


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
