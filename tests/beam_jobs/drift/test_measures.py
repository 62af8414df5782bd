"""Drift measures: by hand, against independent computations, and on samples of one source."""

from math import log, log2, sqrt
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import chi2

from beam_jobs.drift.measures import (
    Rate,
    chi_square_quantile,
    count_by_group,
    difference,
    divergence,
    jensen_shannon,
    quantile_edges,
    rate_change,
    share_change,
    unseen,
)


def array(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float64)


def codes(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def rate_of(positives: np.ndarray, sizes: np.ndarray, whole: float = 1.0) -> Rate:
    return Rate(float(positives.sum() / sizes.sum()), positives, sizes, whole)


# --- by hand


def test_jensen_shannon_is_1_bit_for_disjoint_and_0_for_equal_distributions():
    assert jensen_shannon(array(1, 0), array(0, 1)) == 1
    assert jensen_shannon(array(0.2, 0.8), array(0.2, 0.8)) == 0


def test_jensen_shannon_by_hand():
    # m = (3/4, 1/4): KL(a || m) = (log2(2/3) + log2(2)) / 2, KL(b || m) = log2(4/3)
    expected = ((log2(2 / 3) + 1) / 2 + log2(4 / 3)) / 2
    assert jensen_shannon(array(0.5, 0.5), array(1, 0)) == pytest.approx(expected)


def test_a_small_divergence_is_about_a_fifth_of_the_population_stability_index():
    a, b = array(0.30, 0.40, 0.30), array(0.33, 0.38, 0.29)
    stability = float(((b - a) * np.log(b / a)).sum())
    assert jensen_shannon(a, b) / stability == pytest.approx(1 / (8 * log(2)), rel=0.01)  # 0.18


def test_counts_by_group():
    counted = count_by_group(np.array([0, 2, 2, 1]), np.array([0, 0, 0, 2]), groups=3, kinds=3)
    assert counted.tolist() == [[1, 0, 2], [0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(("a", "b"), [(0.02, 0.03), (0.03, 0.02), (0.98, 0.97)])
def test_a_rate_changes_by_its_difference_over_the_mean_of_the_rarer_outcome(a, b):
    one = np.ones(4)
    assert rate_change(Rate(a, one, one), Rate(b, one, one), 0.05).value == pytest.approx(0.01 / 0.025)


def test_a_rate_that_leaves_0_changes_by_2_and_one_that_stays_at_0_or_1_by_nothing():
    one = np.ones(4)
    assert rate_change(Rate(0, 0 * one, one), Rate(0.25, one, one), 0.05).value == 2
    assert rate_change(Rate(0, 0 * one, one), Rate(0, 0 * one, one), 0.05) == (0, 0)
    assert rate_change(Rate(1, one, one), Rate(1, one, one), 0.05) == (0, 0)


def test_the_chance_of_a_difference_by_hand():
    # four groups of one value a side, one positive in each four. Pooled rate 1/4: residuals 3/4 twice and -1/4 six
    # times, their squares sum to 1.5, over 7 for the variance of a group; the two means of four have 1/4 of it each
    side = rate_of(array(1, 0, 0, 0), np.ones(4))
    deviation = sqrt(1.5 / 7 * (1 / 4 + 1 / 4))
    assert difference(side, side, 0.05).chance == pytest.approx(NormalDist().inv_cdf(0.975) * deviation)


def test_the_chance_bound_of_a_rare_event_is_skewed_upwards_for_few_groups_against_many():
    # 1 of 10 groups against 10 of 100 (rate 1/10 each): residuals 9/10 and -1/10
    many, few = rate_of(np.repeat([1.0, 0], [10, 90]), np.ones(100)), rate_of(array(1, *[0] * 9), np.ones(10))
    second, third = (11 * 0.81 + 99 * 0.01) / 109, (11 * 0.729 - 99 * 0.001) / 110
    variance, skew = second * (1 / 100 + 1 / 10), third * (1 / 10**2 - 1 / 100**2)
    z = NormalDist().inv_cdf(0.975)
    upwards = sqrt(variance) * (z + skew / variance**1.5 * (z * z - 1) / 6)
    few_rises = difference(many._replace(value=0.1), few._replace(value=0.11), 0.05)
    few_falls = difference(many._replace(value=0.1), few._replace(value=0.09), 0.05)
    assert few_rises.chance == pytest.approx(upwards)
    assert few_falls.chance == pytest.approx(sqrt(variance) * z)


def test_share_change_returns_the_largest_change_and_its_outcome():
    measure, place = share_change(array(2, 1, 1)[None], array(1, 3, 0)[None], 0.05)
    assert (measure.value, place) == (0.5, 1)  # 1/4 to 3/4; the others change by a quarter


def test_the_chance_of_a_divergence_of_two_outcomes_by_hand():
    # groups of one value, half and half on both sides: variance of a group 1/4 * 40/39, of the difference (1/20 + 1/20)
    # of that; each outcome weighs 1 / (8 ln 2 * 1/2); one degree of freedom, since the two changes are opposite
    counts = np.tile(np.eye(2), (10, 1))
    expected = 2 / (4 * log(2)) * 0.25 * 40 / 39 / 10
    measure = divergence(counts, counts, 0.05)
    assert measure.value == 0
    assert measure.chance == pytest.approx(expected * chi_square_quantile(0.95, 1))


def test_new_values_by_hand():
    # a: {x, y}, {x, z}, {w}. y, z and w occur in one group alone: another group is expected to bring 3/5 new values
    found = unseen(codes(1, 2, 1, 3, 4), np.array([0, 0, 1, 1, 2]), codes(1, 9, 8, 7), np.array([0, 0, 1, 1]), 0.05)
    assert (found.expected, found.share) == (3 / 5, 3 / 4)
    assert found.measure.value == pytest.approx(3 / 4 - 3 / 5)


def test_all_ids_are_new_as_expected():
    found = unseen(codes(*range(50)), np.arange(50), codes(*range(50, 100)), np.arange(50), 0.05)
    assert (found.expected, found.share, found.measure.value) == (1, 1, 0)


def test_fewer_new_values_than_expected_are_not_drift():
    found = unseen(codes(1, 2, 3, 4), np.arange(4), codes(1, 1, 1, 1), np.arange(4), 0.05)
    assert (found.share, found.measure.value) == (0, 0)


def test_distinct_values_give_ten_bins_of_equal_size():
    values = np.arange(100.0)
    bins = np.bincount(np.searchsorted(quantile_edges(values, values), values, side="right"))
    assert len(bins) == 10
    assert bins.min() >= 9
    assert bins.max() <= 11


def test_a_frequent_value_has_its_own_bin():
    values = array(*[0] * 60, *range(1, 41))
    edges = quantile_edges(values, values)
    (zero,) = set(np.searchsorted(edges, array(0, 0), side="right"))
    assert zero not in np.searchsorted(edges, array(-1e-9, 1e-9, 1), side="right")


# --- against other ways


SHARES = st.lists(st.integers(0, 50), min_size=2, max_size=8).filter(any)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_jensen_shannon_equals_scipys(data):
    a = array(*data.draw(SHARES))
    b = array(*data.draw(st.lists(st.integers(0, 50), min_size=len(a), max_size=len(a)).filter(any)))
    expected = jensenshannon(a, b, base=2) ** 2
    assert jensen_shannon(a / a.sum(), b / b.sum()) == pytest.approx(0 if np.isnan(expected) else expected, abs=1e-9)


@pytest.mark.parametrize("freedom", [1, 2, 5, 9, 20])
@pytest.mark.parametrize("alpha", [0.01, 1e-3, 1e-5])
def test_the_chi_square_quantile_is_equal_to_scipys_or_slightly_larger(freedom, alpha):
    exact = chi2.isf(alpha, freedom)
    assert exact * 0.99 < chi_square_quantile(1 - alpha, freedom) < exact * 1.15


def clustered(rng: np.random.Generator, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """(group, value) of groups of 2 to 15 values; half of the variance is between groups."""
    sizes = rng.integers(2, 16, groups)
    group = np.repeat(np.arange(groups), sizes)
    return group, rng.normal(size=groups)[group] + rng.normal(size=len(group))


def binned(edges: np.ndarray, sample: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    group, values = sample
    return count_by_group(np.searchsorted(edges, values, side="right"), group, group[-1] + 1, len(edges) + 1)


def test_the_chance_bound_agrees_with_a_permutation_test_of_groups():
    # independent computation: permute the groups of both samples 2,000 times and take the 95% quantile
    rng = np.random.default_rng(3)
    a, b = clustered(rng, 150), clustered(rng, 100)
    edges = quantile_edges(a[1], b[1])
    counts = np.concatenate([binned(edges, a), binned(edges, b)])
    dealt, largest = [], []
    for _ in range(2000):
        order = rng.permutation(250)
        one, other = counts[order[:150]], counts[order[150:]]
        shares = one.sum(axis=0) / one.sum(), other.sum(axis=0) / other.sum()
        dealt.append(jensen_shannon(*shares))
        largest.append(abs(shares[1] - shares[0])[3])
    assert divergence(counts[:150], counts[150:], 0.05).chance == pytest.approx(np.quantile(dealt, 0.95), rel=0.1)
    positives, sizes = counts[:, 3], counts.sum(axis=1)
    one, other = Rate(0, positives[:150], sizes[:150]), Rate(0, positives[150:], sizes[150:])
    assert difference(one, other, 0.05).chance == pytest.approx(np.quantile(largest, 0.95), rel=0.1)


def test_values_repeated_within_a_group_do_not_lower_the_chance_bound():
    rng = np.random.default_rng(4)
    single = [np.eye(3)[rng.integers(0, 3, 200)] for _ in range(2)]
    assert divergence(*single, 0.01) == pytest.approx(divergence(*(8 * counts for counts in single), 0.01))


def test_a_rate_over_the_population_has_the_chance_bound_of_the_population():
    rng = np.random.default_rng(5)
    group, values = clustered(rng, 20_000)
    positives, sizes = np.bincount(group, values > 1.5), np.bincount(group).astype(np.float64)
    one, other = (Rate(0.1, positives[k::2], sizes[k::2]) for k in (0, 1))
    few = [Rate(0.1, rate.positives[:1000], rate.sizes[:1000], whole=10) for rate in (one, other)]
    assert difference(*few, 0.01).chance == pytest.approx(difference(one, other, 0.01).chance, rel=0.1)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_unseen_values_equal_a_computation_with_sets(seed):
    rng = np.random.default_rng(seed)
    samples = []
    for _ in range(2):
        group = np.sort(rng.integers(0, 6, 20))
        group = np.unique(group, return_inverse=True)[1]
        samples.append((rng.integers(0, 12, 20).astype(np.uint64), group))
    (a, group_a), (b, group_b) = samples
    found = unseen(a, group_a, b, group_b, 0.05)
    assert found.share == pytest.approx(np.mean([value not in set(a) for value in b]))
    others = [set(a[group_a != group]) for group in group_a]
    assert found.expected == pytest.approx(np.mean([value not in rest for value, rest in zip(a, others, strict=True)]))


# --- samples of one source


def alarms(trials: int, groups: tuple[int, int], alpha: float) -> dict[str, int]:
    """How often each measure of two samples of one source exceeds its chance bound."""
    rng = np.random.default_rng(6)
    found = dict.fromkeys(("divergence", "share", "rate", "unseen"), 0)
    for _ in range(trials):
        samples = [clustered(rng, count) for count in groups]
        counts = [binned(quantile_edges(samples[0][1], samples[1][1]), sample) for sample in samples]
        rates = [rate_of(np.bincount(g, v > 2.5), np.bincount(g).astype(np.float64)) for g, v in samples]
        words = [np.floor(np.abs(v * 30) ** 1.5).astype(np.uint64) for _, v in samples]
        taken = {
            "divergence": divergence(*counts, alpha),
            "share": share_change(*counts, alpha)[0],
            "rate": rate_change(*rates, alpha),
            "unseen": unseen(words[0], samples[0][0], words[1], samples[1][0], alpha).measure,
        }
        for name, measure in taken.items():
            found[name] += measure.value > measure.chance
    return found


@pytest.mark.parametrize("groups", [(30, 30), (200, 200), (1000, 40), (40, 1000)])
def test_samples_of_one_source_rarely_exceed_the_chance_bound(groups):
    # 200 trials at 1%: 2 expected, and 9 or more happen once in 3,000 such tests
    found = alarms(200, groups, 0.01)
    assert all(count < 9 for count in found.values()), found
