"""NDCG, precision and recall by hand arithmetic, NDCG against TF-Ranking; intervals against what a resample gives."""

from itertools import permutations
from math import log2
from typing import get_args

import numpy as np
import pytest

from features.errors import InputError
from features.task import parse
from trainer.config import EvaluationConfig, MetricName
from trainer.evaluation.metrics import (
    TOP_K_METRICS,
    Interval,
    PairedBootstrap,
    TopKMetric,
    expected_random_precision,
    expected_random_recall,
    ndcg,
    precision,
    recall,
)


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


@pytest.mark.parametrize(("cutoff", "found"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 3), (8, 3)])
def test_precision_and_recall_count_the_positives_in_the_first_places(cutoff: int, found: int) -> None:
    # ranked: no, yes, no, yes, yes; a grade of 2 is as positive as one of 1
    labels, scores = np.array([[2.0, 0.0, 1.0, 1.0, 0.0]]), np.array([[4.0, 5.0, 1.0, 2.0, 3.0]])
    assert precision(labels, scores, full(1, 5), cutoff) == pytest.approx([found / cutoff])
    assert recall(labels, scores, full(1, 5), cutoff) == pytest.approx([found / 3])


def test_a_perfect_order_of_fewer_items_than_the_cutoff_has_not_the_precision_1() -> None:
    labels, scores, mask = np.array([[1.0, 1.0, 7.0]]), np.array([[2.0, 1.0, 9.0]]), np.array([[True, True, False]])
    assert precision(labels, scores, mask, 8) == [2 / 8]  # the padding's label does not count, whatever its score
    assert recall(labels, scores, mask, 8) == recall(labels, scores, mask, 2) == [1.0]
    assert precision(labels, scores, mask, 1) == [1.0]
    assert recall(labels, scores, mask, 1) == [0.5]


@pytest.mark.parametrize("place", [1, 5, 17])
def test_ties_keep_the_item_order_of_precision_and_recall_too(place: int) -> None:
    labels, scores = np.zeros((1, 40)), np.zeros((1, 40))
    labels[0, place] = 1.0
    for metric, whole in ((precision, 1 / (place + 1)), (recall, 1.0)):
        assert metric(labels, scores, full(1, 40), place) == [0.0]
        assert metric(labels, scores, full(1, 40), place + 1) == pytest.approx([whole])


def test_with_binary_labels_precision_at_1_is_ndcg_at_1() -> None:
    generator = np.random.default_rng(2)
    labels, scores = generator.integers(0, 2, (30, 6)).astype(float), generator.random((30, 6))
    np.testing.assert_array_equal(precision(labels, scores, full(30, 6), 1), ndcg(labels, scores, full(30, 6), 1))


def test_precision_and_recall_of_a_group_without_positive_are_nan_and_leave_the_others_alone() -> None:
    labels, scores = np.array([[0.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 2.0], [1.0, 2.0]])
    for metric in TOP_K_METRICS.values():
        for values in (metric.of(labels, scores, full(2, 2), 1), metric.of_random_order(labels, full(2, 2), 1)):
            assert np.isnan(values).tolist() == [True, False]


@pytest.mark.parametrize("cutoff", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("metric", TOP_K_METRICS.values(), ids=list(TOP_K_METRICS))
def test_what_is_expected_of_a_random_order_is_the_mean_over_all_permutations(metric: TopKMetric, cutoff: int) -> None:
    labels, mask = np.array([[2.0, 0.0, 1.0, 0.0, 5.0]]), np.array([[True] * 4 + [False]])
    orders = [[*order, 9.0] for order in permutations([1.0, 2.0, 3.0, 4.0])]
    mean = np.mean([metric.of(labels, np.array([order]), mask, cutoff) for order in orders])
    assert metric.of_random_order(labels, mask, cutoff) == pytest.approx([mean])


def test_a_random_order_finds_its_share_of_the_positives() -> None:
    # 2 of 5 items are positive: any 3 places hold 3/5 of them; 8 places hold both
    labels = np.array([[1.0, 0.0, 0.0, 1.0, 0.0]])
    assert expected_random_precision(labels, full(1, 5), 3) == pytest.approx([2 / 5])
    assert expected_random_recall(labels, full(1, 5), 3) == pytest.approx([3 / 5])
    assert expected_random_precision(labels, full(1, 5), 8) == pytest.approx([2 / 8])
    assert expected_random_recall(labels, full(1, 5), 8) == [1.0]


def test_a_task_file_may_name_every_metric_and_begins_with_ndcg() -> None:
    names = set(get_args(MetricName))
    assert names == set(TOP_K_METRICS), "a metric needs a line in TOP_K_METRICS, and its name in MetricName"
    for metrics in (["precision", "ndcg"], []):
        with pytest.raises(InputError, match="must begin with ndcg"):
            parse({"metrics": metrics}, "evaluation", EvaluationConfig)


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
