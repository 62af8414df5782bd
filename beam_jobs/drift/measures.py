"""Differences between two samples of query groups, each with its bound under chance. Pure: numpy.

Items of one query group are correlated, so the group, not the item, is the sampling unit: the sampling error of a share
is computed from each group's contribution (linearised, as in a cluster sample). Every measure has a `chance` bound: two
samples of one source exceed it with probability `alpha`. Counts are float64 [groups, outcomes]: how often each outcome
occurs in each group.
"""

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]
ValueCodes = NDArray[np.uint64]


class Measure(NamedTuple):
    """A difference of samples a and b. chance: samples of one source exceed it with probability alpha."""

    value: float
    chance: float


class Rate(NamedTuple):
    """The share of positive values, with the counts for its sampling error.

    value: the share; may be counted on the whole population, which has `whole` times the groups of the sample.
    positives, sizes: float64 [groups], the positive values and all values of each sampled group.
    """

    value: float
    positives: Float64Array
    sizes: Float64Array
    whole: float = 1.0


class Unseen(NamedTuple):
    """share: of b's values that a lacks. expected: the same share for another sample of a's source."""

    share: float
    expected: float
    measure: Measure  # share - expected


def count_by_group(outcomes: NDArray[Any], group: Int64Array, groups: int, kinds: int) -> Float64Array:
    """outcomes, group: [values], whole numbers; outcomes lie in [0, kinds). Returns float64 [groups, kinds]."""
    cells = np.bincount(group * kinds + outcomes, minlength=groups * kinds)
    return cells.reshape(groups, kinds).astype(np.float64)


def jensen_shannon(a: Float64Array, b: Float64Array) -> float:
    """The Jensen-Shannon divergence of two distributions, in bits: 0 when they are the same, 1 when nothing is shared.

    (KL(a || m) + KL(b || m)) / 2 with m = (a + b) / 2. Lin 1991. Small values are about 0.18 times the
    population stability index, the sum of (b - a) ln(b / a), which is undefined when one side lacks an outcome.
    """
    mean = (a + b) / 2
    halves = [float((p[p > 0] * np.log2(p[p > 0] / mean[p > 0])).sum()) for p in (a, b)]
    return max(0.0, sum(halves) / 2)


def divergence(a: Float64Array, b: Float64Array, alpha: float) -> Measure:
    """The Jensen-Shannon divergence of the outcomes' shares in counts a and b.

    For samples of one source it is close to the sum over k of (a_k - b_k)^2 / (8 ln 2 m_k). Its distribution is
    approximated by a scaled chi-square of the same mean and variance (Satterthwaite 1946; for
    clusters Rao and Scott 1981).
    """
    shares = _shares(a), _shares(b)
    value = jensen_shannon(*shares)
    mean = (shares[0] + shares[1]) / 2
    weights = np.divide(1, 8 * math.log(2) * mean, out=np.zeros_like(mean), where=mean > 0)
    spread = _covariance(a, b) * weights
    expected = float(np.trace(spread))  # of the sum of squares
    if not expected > 0:
        return Measure(value, 0.0)
    freedom = expected**2 / float((spread * spread.T).sum())
    return Measure(value, expected / freedom * chi_square_quantile(1 - alpha, freedom))


def share_change(a: Float64Array, b: Float64Array, alpha: float) -> tuple[Measure, int]:
    """The largest change of one outcome's share (L-infinity distance) between counts a and b, and the outcome."""
    change = _shares(b) - _shares(a)
    largest = int(np.argmax(np.abs(change)))
    sizes_a, sizes_b = a.sum(axis=1), b.sum(axis=1)
    rates = Rate(0.0, a[:, largest], sizes_a), Rate(0.0, b[:, largest], sizes_b)
    chance = _chance_of_difference(*rates, change[largest], alpha / len(change))
    return Measure(float(abs(change[largest])), chance), largest


def rate_change(a: Rate, b: Rate, alpha: float) -> Measure:
    """The difference of two rates divided by min(mean, 1 - mean).

    So 2% to 3% counts as much as 98% to 97%. 0 for equal rates; 2 when only one of them is 0, or only one is 1.
    """
    mean = (a.value + b.value) / 2
    rarer = min(mean, 1 - mean)
    if rarer <= 0:
        return Measure(0.0, 0.0)
    difference = b.value - a.value
    return Measure(abs(difference) / rarer, _chance_of_difference(a, b, difference, alpha) / rarer)


def difference(a: Rate, b: Rate, alpha: float) -> Measure:
    """The difference of two rates."""
    change = b.value - a.value
    return Measure(abs(change), _chance_of_difference(a, b, change, alpha))


def unseen(a: ValueCodes, group_a: Int64Array, b: ValueCodes, group_b: Int64Array, alpha: float) -> Unseen:
    """The share of b's values that are new to a, beyond the expected share. a, b: codes; group_a, group_b: ascending.

    Another sample of a's source has new values too. The expected share is the Good-Turing estimate (Good 1953): the
    share of a's values that occur in only one group. Its error is estimated by leaving out each group in turn.
    """
    sizes_a, sizes_b = (np.bincount(group).astype(np.float64) for group in (group_a, group_b))
    new_a, shared_by_two = _values_by_rarity(a, group_a, len(sizes_a))
    new_b = np.bincount(group_b, ~np.isin(b, a), minlength=len(sizes_b))
    expected, share = new_a.sum() / len(a), new_b.sum() / len(b)
    pooled = (new_a.sum() + new_b.sum()) / (len(a) + len(b))
    # leaving out a group removes its own new values and makes the values shared with one other group new
    influence = new_a - shared_by_two - expected * sizes_a
    errors_a = (influence - influence.mean()) / len(a)
    errors_b = (new_b - pooled * sizes_b) / len(b)
    variance, third = ((errors_b**power).sum() + ((-errors_a) ** power).sum() for power in (2, 3))
    chance = _chance_bound(variance, third, share - expected, alpha)
    return Unseen(float(share), float(expected), Measure(max(0.0, float(share - expected)), chance))


def _values_by_rarity(codes: ValueCodes, group: Int64Array, groups: int) -> tuple[Float64Array, Float64Array]:
    """float64 [groups] each: values that only this group has; other groups' values shared with this group alone."""
    order = np.lexsort((group, codes))
    codes, group = codes[order], group[order]
    starts = np.flatnonzero(np.r_[True, (codes[1:] != codes[:-1]) | (group[1:] != group[:-1])])
    counts = np.diff(np.r_[starts, len(codes)])  # how often each code occurs in each group that has it
    codes, group = codes[starts], group[starts]
    _, inverse, group_counts = np.unique(codes, return_inverse=True, return_counts=True)
    alone, pairs = group_counts[inverse] == 1, np.flatnonzero(group_counts[inverse] == 2)
    first, second = pairs[::2], pairs[1::2]  # the two groups of a code are adjacent
    new, shared = (np.zeros(groups) for _ in range(2))
    np.add.at(new, group[alone], counts[alone])
    np.add.at(shared, group[first], counts[second])
    np.add.at(shared, group[second], counts[first])
    return new, shared


def quantile_edges(a: Float64Array, b: Float64Array, bins: int = 10) -> Float64Array:
    """Edges of about `bins` bins with equal shares of the pooled values.

    Values v with edges[k - 1] <= v < edges[k] belong to bin k. A value that fills several bins gets a bin of its own.
    Returns float64 [at most 2 * (bins - 1)], ascending.
    """
    cuts = np.quantile(np.concatenate([a, b]), np.arange(1, bins) / bins, method="inverted_cdf")
    edges, counts = np.unique(cuts, return_counts=True)
    found: Float64Array = np.unique(np.concatenate([edges, np.nextafter(edges[counts > 1], np.inf)]))
    return found


def chi_square_quantile(probability: float, freedom: float) -> float:
    """Wilson and Hilferty 1931: the cube root of a chi-square is nearly normal."""
    part = 2 / (9 * freedom)
    return float(freedom * (1 - part + NormalDist().inv_cdf(probability) * math.sqrt(part)) ** 3)


def _shares(counts: Float64Array) -> Float64Array:
    shares: Float64Array = counts.sum(axis=0) / counts.sum()
    return shares


def _residuals(a: Float64Array, b: Float64Array) -> Float64Array:
    """Counts minus their expectation if a and b have one source: float64 [groups of both, outcomes]."""
    both = np.concatenate([a, b])
    residuals: Float64Array = both - both.sum(axis=1, keepdims=True) * _shares(both)
    return residuals


def _covariance(a: Float64Array, b: Float64Array) -> Float64Array:
    """Covariance of the difference of shares for samples of one source: float64 [outcomes, outcomes]."""
    residuals = _residuals(a, b)
    covariance: Float64Array = residuals.T @ residuals / max(len(residuals) - 1, 1)
    covariance *= len(a) / a.sum() ** 2 + len(b) / b.sum() ** 2
    return covariance


def _chance_of_difference(a: Rate, b: Rate, observed: float, alpha: float) -> float:
    residuals = _residuals(*(np.stack([rate.positives, rate.sizes - rate.positives], axis=1) for rate in (a, b)))[:, 0]
    second, third = (residuals**2).sum() / max(len(residuals) - 1, 1), (residuals**3).mean()
    groups = [len(rate.sizes) * rate.whole for rate in (a, b)]
    values = [rate.sizes.sum() * rate.whole for rate in (a, b)]
    return _chance_bound(
        second * (groups[0] / values[0] ** 2 + groups[1] / values[1] ** 2),
        third * (groups[1] / values[1] ** 3 - groups[0] / values[0] ** 3),
        observed,
        alpha,
    )


def _chance_bound(variance: float, third: float, observed: float, alpha: float) -> float:
    """Two-sided bound of a difference by chance, in the observed direction. variance, third: central moments.

    A normal quantile plus the first skewness correction (Cornish and Fisher 1938) if that widens the bound: counts of
    rare events have a long upper tail.
    """
    if not variance > 0:
        return 0.0
    deviation, z = math.sqrt(variance), NormalDist().inv_cdf(1 - alpha / 2)
    skewness = math.copysign(1.0, observed) * third / deviation**3
    return float(deviation * (z + max(0.0, skewness) * (z * z - 1) / 6))
