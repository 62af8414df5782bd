"""How far two samples of query groups differ, and how far chance alone would take them. Pure: numpy.

The items of one query group resemble one another, so the group, not the item, is what was drawn: the sampling error of
a share is made of what each group adds to it (linearised, as in a cluster sample). Every measure comes with its
`chance`: what two samples of one source exceed with probability `alpha`. Counts are float64 [groups, outcomes]: how
often each outcome occurs in each group.
"""

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.uint64]


class Measure(NamedTuple):
    """A difference between samples a and b, and what chance alone exceeds with probability alpha."""

    value: float
    chance: float


class Rate(NamedTuple):
    """The share of positive values, and what its sampling error is made of.

    value: may be counted on `whole` times as many groups as the sample has, the sample being drawn from them.
    positives, sizes: float64 [groups], of the sample: positive values and all values of each group.
    """

    value: float
    positives: Floats
    sizes: Floats
    whole: float = 1.0


class Unseen(NamedTuple):
    """share: of b's values, those that a does not have. expected: the share of another sample of a's source."""

    share: float
    expected: float
    measure: Measure  # share - expected


def count_by_group(outcomes: NDArray[Any], group: Ints, groups: int, kinds: int) -> Floats:
    """outcomes, group: [values], whole numbers; outcomes lie in [0, kinds). Returns float64 [groups, kinds]."""
    cells = np.bincount(group * kinds + outcomes, minlength=groups * kinds)
    return cells.reshape(groups, kinds).astype(np.float64)


def jensen_shannon(a: Floats, b: Floats) -> float:
    """The Jensen-Shannon divergence of two distributions, in bits: 0 when they are the same, 1 when nothing is shared.

    (KL(a || m) + KL(b || m)) / 2 with m = (a + b) / 2. Lin 1991. Small ones are about 0.18 times the population
    stability index, the sum of (b - a) ln(b / a), which has no value when one side lacks an outcome.
    """
    mean = (a + b) / 2
    halves = [float((p[p > 0] * np.log2(p[p > 0] / mean[p > 0])).sum()) for p in (a, b)]
    return max(0.0, sum(halves) / 2)


def divergence(a: Floats, b: Floats, alpha: float) -> Measure:
    """The Jensen-Shannon divergence of the outcomes' shares in counts a and b.

    For samples of one source it is about a sum of squares, sum over k of (a_k - b_k)^2 / (8 ln 2 m_k), distributed much
    like a scaled chi-square of the same mean and variance (Satterthwaite 1946; for clusters Rao and Scott 1981).
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


def share_change(a: Floats, b: Floats, alpha: float) -> tuple[Measure, int]:
    """The largest change of one outcome's share (the L-infinity distance) in counts a and b, and that outcome."""
    change = _shares(b) - _shares(a)
    largest = int(np.argmax(np.abs(change)))
    sizes_a, sizes_b = a.sum(axis=1), b.sum(axis=1)
    rates = Rate(0.0, a[:, largest], sizes_a), Rate(0.0, b[:, largest], sizes_b)
    chance = _difference_by_chance(*rates, change[largest], alpha / len(change))
    return Measure(float(abs(change[largest])), chance), largest


def rate_change(a: Rate, b: Rate, alpha: float) -> Measure:
    """The difference of two rates as a share of their mean, or of what the mean leaves to 1 where that is less.

    So 2% to 3% counts as much as 98% to 97%. 0 when the rates are the same, 2 when one alone is 0, or 1.
    """
    mean = (a.value + b.value) / 2
    rarer = min(mean, 1 - mean)
    if rarer <= 0:
        return Measure(0.0, 0.0)
    difference = b.value - a.value
    return Measure(abs(difference) / rarer, _difference_by_chance(a, b, difference, alpha) / rarer)


def difference(a: Rate, b: Rate, alpha: float) -> Measure:
    """The difference of two rates."""
    change = b.value - a.value
    return Measure(abs(change), _difference_by_chance(a, b, change, alpha))


def unseen(a: Codes, group_a: Ints, b: Codes, group_b: Ints, alpha: float) -> Unseen:
    """How many more of b's values are new to a than chance explains. Values as codes, with their groups (ascending).

    Another sample of a's source has new values too. The expected share is Good and Turing's: of a's values, those that
    occur in one group alone, which the other groups have not seen. Good 1953; its error by leaving each group out.
    """
    sizes_a, sizes_b = (np.bincount(group).astype(np.float64) for group in (group_a, group_b))
    new_a, shared_by_two = _values_of_one_group(a, group_a, len(sizes_a))
    new_b = np.bincount(group_b, ~np.isin(b, a), minlength=len(sizes_b))
    expected, share = new_a.sum() / len(a), new_b.sum() / len(b)
    pooled = (new_a.sum() + new_b.sum()) / (len(a) + len(b))
    # without group h its own new values go, and the values that it shares with one other group become new
    influence = new_a - shared_by_two - expected * sizes_a
    errors_a = (influence - influence.mean()) / len(a)
    errors_b = (new_b - pooled * sizes_b) / len(b)
    variance, third = ((errors_b**power).sum() + ((-errors_a) ** power).sum() for power in (2, 3))
    chance = _reach(variance, third, share - expected, alpha)
    return Unseen(float(share), float(expected), Measure(max(0.0, float(share - expected)), chance))


def _values_of_one_group(codes: Codes, group: Ints, groups: int) -> tuple[Floats, Floats]:
    """Of each group, float64 [groups]: its values that no other has; others' values that it alone shares."""
    order = np.lexsort((group, codes))
    codes, group = codes[order], group[order]
    starts = np.flatnonzero(np.r_[True, (codes[1:] != codes[:-1]) | (group[1:] != group[:-1])])
    times = np.diff(np.r_[starts, len(codes)])  # how often each code occurs in each group that has it
    codes, group = codes[starts], group[starts]
    _, inverse, having = np.unique(codes, return_inverse=True, return_counts=True)
    alone, pairs = having[inverse] == 1, np.flatnonzero(having[inverse] == 2)
    one, other = pairs[::2], pairs[1::2]  # a code's groups stand side by side
    new, shared = (np.zeros(groups) for _ in range(2))
    np.add.at(new, group[alone], times[alone])
    np.add.at(shared, group[one], times[other])
    np.add.at(shared, group[other], times[one])
    return new, shared


def quantile_edges(a: Floats, b: Floats, bins: int = 10) -> Floats:
    """Edges that cut the values of two samples together into about `bins` equal shares.

    Values v with edges[k - 1] <= v < edges[k] belong to bin k. A value that holds several shares by itself has a bin of
    its own. Returns float64 [at most 2 * (bins - 1)], ascending.
    """
    cuts = np.quantile(np.concatenate([a, b]), np.arange(1, bins) / bins, method="inverted_cdf")
    edges, times = np.unique(cuts, return_counts=True)
    found: Floats = np.unique(np.concatenate([edges, np.nextafter(edges[times > 1], np.inf)]))
    return found


def chi_square_quantile(probability: float, freedom: float) -> float:
    """Wilson and Hilferty 1931: the cube root of a chi-square is nearly normal."""
    part = 2 / (9 * freedom)
    return float(freedom * (1 - part + NormalDist().inv_cdf(probability) * math.sqrt(part)) ** 3)


def _shares(counts: Floats) -> Floats:
    shares: Floats = counts.sum(axis=0) / counts.sum()
    return shares


def _residuals(a: Floats, b: Floats) -> Floats:
    """What each group has beyond its fair part, were a and b of one source: float64 [groups of both, outcomes]."""
    both = np.concatenate([a, b])
    residuals: Floats = both - both.sum(axis=1, keepdims=True) * _shares(both)
    return residuals


def _covariance(a: Floats, b: Floats) -> Floats:
    """Of the difference of the shares, for samples of one source: float64 [outcomes, outcomes]."""
    residuals = _residuals(a, b)
    covariance: Floats = residuals.T @ residuals / max(len(residuals) - 1, 1)
    covariance *= len(a) / a.sum() ** 2 + len(b) / b.sum() ** 2
    return covariance


def _difference_by_chance(a: Rate, b: Rate, observed: float, alpha: float) -> float:
    residuals = _residuals(*(np.stack([rate.positives, rate.sizes - rate.positives], axis=1) for rate in (a, b)))[:, 0]
    second, third = (residuals**2).sum() / max(len(residuals) - 1, 1), (residuals**3).mean()
    groups = [len(rate.sizes) * rate.whole for rate in (a, b)]
    values = [rate.sizes.sum() * rate.whole for rate in (a, b)]
    return _reach(
        second * (groups[0] / values[0] ** 2 + groups[1] / values[1] ** 2),
        third * (groups[1] / values[1] ** 3 - groups[0] / values[0] ** 3),
        observed,
        alpha,
    )


def _reach(variance: float, third: float, observed: float, alpha: float) -> float:
    """How far a difference goes by chance, two-sided, in the direction observed. variance, third: central moments.

    A normal quantile with the first correction for skewness (Cornish and Fisher 1938) where that takes it further:
    counts of rare events have a long upper tail.
    """
    if not variance > 0:
        return 0.0
    deviation, z = math.sqrt(variance), NormalDist().inv_cdf(1 - alpha / 2)
    skewness = math.copysign(1.0, observed) * third / deviation**3
    return float(deviation * (z + max(0.0, skewness) * (z * z - 1) / 6))
