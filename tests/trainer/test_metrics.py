"""NDCG against hand arithmetic and TF-Ranking; intervals against what a resample must give."""

from itertools import permutations
from math import log2

import numpy as np
import pytest

from trainer.metrics import Interval, PairedBootstrap, expected_random_ndcg, ndcg


def full(*shape: int) -> np.ndarray:
    return np.ones(shape, bool)


def test_three_items_by_hand() -> None:
    # ranked: grade 0, grade 2 (gain 3), grade 1 (gain 1); ideal: 3 then 1
    value = ndcg(np.array([[1.0, 0.0, 2.0]]), np.array([[0.1, 0.9, 0.5]]), full(1, 3), 8)
    ideal = 3 / log2(2) + 1 / log2(3)
    assert value == pytest.approx([(3 / log2(3) + 1 / log2(4)) / ideal])


def test_what_stands_behind_the_cutoff_counts_neither_way() -> None:
    labels, scores = np.array([[1.0, 0.0, 1.0]]), np.array([[3.0, 2.0, 1.0]])
    assert ndcg(labels, scores, full(1, 3), 2) == pytest.approx([1.0 / (1.0 + 1 / log2(3))])
    assert ndcg(labels, scores, full(1, 3), 1) == pytest.approx([1.0])


def test_a_cutoff_beyond_the_list_is_the_whole_list() -> None:
    labels, scores = np.array([[0.0, 1.0]]), np.array([[2.0, 1.0]])
    assert ndcg(labels, scores, full(1, 2), 1000) == pytest.approx([1 / log2(3)])


def test_ties_keep_the_item_order() -> None:
    scores = np.zeros((1, 40))  # longer than what an unstable sort happens to keep in order
    for place in (0, 5, 17):
        labels = np.zeros((1, 40))
        labels[0, place] = 1.0
        assert ndcg(labels, scores, full(1, 40), 40) == pytest.approx([1 / log2(place + 2)])


def test_padding_is_ranked_last_and_has_no_gain() -> None:
    labels, scores = np.array([[0.0, 1.0, 7.0]]), np.array([[-5.0, -9.0, 99.0]])
    mask = np.array([[True, True, False]])
    assert ndcg(labels, scores, mask, 8) == pytest.approx([1 / log2(3)])


def test_a_group_without_positive_is_nan_and_leaves_the_others_alone() -> None:
    values = ndcg(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 2.0], [2.0, 1.0]]), full(2, 2), 8)
    assert np.isnan(values[0])
    assert values[1] == 1.0


@pytest.mark.parametrize("cutoff", [1, 2, 3, 4, 8])
def test_expected_random_ndcg_is_the_mean_over_all_permutations(cutoff: int) -> None:
    labels, mask = np.array([[2.0, 0.0, 1.0, 0.0, 5.0]]), np.array([[True] * 4 + [False]])
    orders = [[*order, 9.0] for order in permutations([1.0, 2.0, 3.0, 4.0])]
    mean = np.mean([ndcg(labels, np.array([order]), mask, cutoff) for order in orders])
    assert expected_random_ndcg(labels, mask, cutoff) == pytest.approx([mean])


def test_agrees_with_tf_ranking_where_nothing_is_tied() -> None:
    import tensorflow as tf
    import tensorflow_ranking as tfr

    generator = np.random.default_rng(11)
    labels = generator.integers(0, 4, (20, 12)).astype(float)
    labels[:, 0] = 1.0
    scores = generator.permuted(np.tile(np.arange(12.0), (20, 1)), axis=1)
    mask = np.arange(12) < generator.integers(2, 13, (20, 1))
    for cutoff in (1, 5, 8, 12):
        metric = tfr.keras.metrics.NDCGMetric(topn=cutoff)
        metric.update_state(tf.constant(np.where(mask, labels, -1.0), tf.float32), tf.constant(scores, tf.float32))
        assert ndcg(labels, scores, mask, cutoff).mean() == pytest.approx(float(metric.result()), abs=1e-5)


def bootstrap(groups: int = 400, seed: int = 1) -> PairedBootstrap:
    return PairedBootstrap(groups, samples=1000, confidence=0.95, seed=seed)


def test_identical_models_gain_exactly_nothing() -> None:
    values = np.random.default_rng(0).random(400)
    assert bootstrap().relative_gain(values, values.copy()) == Interval(0.0, 0.0, 0.0)


def test_a_constant_relative_gain_has_no_spread() -> None:
    # every group is better by 10%: so is every resample, for the comparison is paired
    baseline = np.random.default_rng(0).random(400)
    gain = bootstrap().relative_gain(1.1 * baseline, baseline)
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.1, 0.1, 0.1))


def test_the_interval_covers_a_known_difference_and_excludes_none() -> None:
    generator = np.random.default_rng(4)
    baseline = generator.random(400)
    gain = bootstrap().relative_gain(baseline + 0.05 + generator.normal(0, 0.1, 400), baseline)
    assert 0.0 < gain.low < 0.05 / baseline.mean() < gain.high


def test_the_interval_is_as_wide_as_the_standard_error_says() -> None:
    values = np.random.default_rng(5).random(400)
    interval = bootstrap().mean(values)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_intervals_are_decided_by_the_seed() -> None:
    values = np.random.default_rng(6).random(400)
    assert bootstrap(seed=1).mean(values) == bootstrap(seed=1).mean(values)
    assert bootstrap(seed=1).mean(values) != bootstrap(seed=2).mean(values)


def test_share_of_distance_by_hand() -> None:
    baseline, oracle = np.full(400, 0.4), np.full(400, 0.8)
    share = bootstrap().share_of_distance(np.full(400, 0.5), baseline, oracle)
    assert share is not None
    assert (share.value, share.low, share.high) == pytest.approx((0.25, 0.25, 0.25))


def test_there_is_no_share_of_no_distance() -> None:
    perfect = np.ones(400)
    assert bootstrap().share_of_distance(perfect, perfect, perfect) is None


def test_a_resample_that_draws_no_distance_is_left_out_of_the_share() -> None:
    # one group of three has a distance: a third of the draws' resamples miss it
    baseline, oracle = np.array([0.5, 1.0, 1.0]), np.ones(3)
    share = bootstrap(groups=3).share_of_distance(np.array([0.75, 1.0, 1.0]), baseline, oracle)
    assert share is not None
    assert (share.value, share.low, share.high) == pytest.approx((0.5, 0.5, 0.5))
