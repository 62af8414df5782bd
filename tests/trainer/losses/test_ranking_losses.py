"""Every loss of the registry against hand arithmetic, float64 numpy, TF-Ranking, and what no loss may do.

A loss joins `LOSSES` only with an entry in `BY_HAND` and one in `REFERENCES`: the tests below look each name up.
"""

from collections.abc import Callable
from math import exp, log, log1p, log2
from typing import Any, get_args

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr
from numpy.typing import NDArray

from trainer.losses.ranking import LOSSES, list_mle, rank_bce, rank_net
from trainer.recipes import LossName

Array = NDArray[np.float64]

STOCHASTIC = ["gumbel_approx_ndcg"]
EXACT = [name for name in LOSSES if name not in STOCHASTIC]
SEED = 5


def test_a_task_file_may_name_every_loss_and_no_other() -> None:
    assert set(get_args(LossName)) == set(LOSSES), "a loss needs a line in LOSSES, and its name in LossName"


def evaluated(name: str, labels: object, scores: object, mask: object) -> tuple[NDArray[np.float32], Array]:
    """The loss [groups] and the gradient of its sum [groups, items], with the same draws for the same shape."""
    tf.random.set_seed(SEED)
    variable = tf.constant(scores, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(variable)
        loss = LOSSES[name](tf.constant(labels, tf.float32), variable, tf.constant(mask))
    assert loss.dtype == tf.float32
    return loss.numpy(), tape.gradient(loss, variable).numpy()


def noise_of(name: str, *shape: int) -> Array:
    """What the loss adds to the scores that `evaluated` gives it: nothing, or the seed's first Gumbel draw."""
    if name not in STOCHASTIC:
        return np.zeros(shape)
    tf.random.set_seed(SEED)
    return -np.log(-np.log(tf.random.uniform(shape, minval=np.finfo(np.float32).tiny).numpy().astype(np.float64)))


# --- by hand: three items


def sigma(x: float) -> float:
    return 1.0 / (1.0 + exp(-x))


IDEAL_2_0_1 = 3 / log2(2) + 1 / log2(3)  # grades 2, 0, 1: gains 3, 0, 1
# labels, scores, loss
BY_HAND: dict[str, tuple[list[float], list[float], float]] = {
    # -log(sigma(s)) = log1p(exp(-s)) for a bought item, log1p(exp(s)) for another
    "rank_bce": ([1.0, 0.0, 0.0], [2.0, -1.0, 0.0], log1p(exp(-2.0)) + log1p(exp(-1.0)) + log(2.0)),
    "mse": ([1.0, 0.0, 0.5], [3.0, -1.0, 0.0], 4.0 + 1.0 + 0.25),
    # 1 over 2: target 1, margin 3; 1 over 3: target 1, margin 2; 2 over 3: target 1/2, margin -1; each in both orders
    "rank_net": (
        [1.0, 0.0, 0.0],
        [2.0, -1.0, 0.0],
        2 * (log1p(exp(-3.0)) + log1p(exp(-2.0)) + 0.5 * log1p(exp(1.0)) + 0.5 * log1p(exp(-1.0))),
    ),
    # by score: item 3, 1, 2; so the ranks are 2, 3, 1. Pairs: 1 over 2, 1 over 3, 3 over 2
    "lambda_rank": (
        [2.0, 0.0, 1.0],
        [0.0, -1.0, 2.0],
        (
            (3 - 0) * (1 / log2(3) - 1 / log2(4)) * log1p(exp(-1.0))
            + (3 - 1) * (1 / log2(2) - 1 / log2(3)) * log1p(exp(2.0))
            + (1 - 0) * (1 / log2(2) - 1 / log2(4)) * log1p(exp(-3.0))
        )
        / IDEAL_2_0_1,
    ),
    # shares are e^s / (e^2 + e^-1 + 1)
    "softmax": ([1.0, 0.0, 0.5], [2.0, -1.0, 0.0], 1.5 * log(exp(2.0) + exp(-1.0) + 1.0) - 1.0 * 2.0 - 0.5 * 0.0),
    # first item 1 of all, then item 3 of the two left, then item 2 of itself
    "list_mle": (
        [2.0, 0.0, 1.0],
        [2.0, -1.0, 0.0],
        (log(exp(2.0) + exp(0.0) + exp(-1.0)) - 2.0) + (log(exp(0.0) + exp(-1.0)) - 0.0) + (-1.0 + 1.0),
    ),
    # scores a tenth apart are one temperature apart: item 1 has two temperatures to item 2 and one to item 3
    "approx_ndcg": (
        [2.0, 0.0, 1.0],
        [0.1, 0.3, 0.2],
        -(3 / log2(1 + 1 + sigma(2) + sigma(1)) + 1 / log2(1 + 1 + sigma(-1) + sigma(1))) / IDEAL_2_0_1,
    ),
    # Gumbel noise stays within -5 and 20: scores this far apart keep their order, so the ranks are 3, 1, 2
    "gumbel_approx_ndcg": ([2.0, 0.0, 1.0], [0.0, 100.0, 50.0], -(3 / log2(4) + 1 / log2(3)) / IDEAL_2_0_1),
}


@pytest.mark.parametrize("name", LOSSES)
def test_three_items_by_hand(name: str) -> None:
    labels, scores, expected = BY_HAND[name]
    loss, _ = evaluated(name, [labels], [scores], [[True] * 3])
    assert loss == pytest.approx([expected], rel=1e-6)


def test_a_soft_label_weighs_both_outcomes() -> None:
    # label 0.25, logit 1: a quarter of -log(sigma(1)), three quarters of -log(1 - sigma(1))
    loss = rank_bce(tf.constant([[0.25]]), tf.constant([[1.0]]), tf.constant([[True]]))
    assert loss.numpy() == pytest.approx([0.25 * log1p(exp(-1.0)) + 0.75 * log1p(exp(1.0))], rel=1e-6)


def test_rank_net_aims_a_soft_pair_between_win_and_tie() -> None:
    # labels 0.7 and 0.2: the first wins with probability 3/4; scores 1 apart; both orders say the same
    loss = rank_net(tf.constant([[0.7, 0.2]]), tf.constant([[1.5, 0.5]]), tf.ones([1, 2], tf.bool))
    assert loss.numpy() == pytest.approx([2 * (0.75 * log1p(exp(-1.0)) + 0.25 * log1p(exp(1.0)))], rel=1e-6)


def test_list_mle_lets_equal_labels_compete_with_each_other() -> None:
    # item 1 competes with all three; items 2 and 3, of equal label, each with both of them: log(e^-1 + e^0) twice
    loss = list_mle(tf.constant([[1.0, 0.0, 0.0]]), tf.constant([[2.0, -1.0, 0.0]]), tf.ones([1, 3], tf.bool))
    first = log(exp(2.0) + exp(-1.0) + exp(0.0)) - 2.0
    assert loss.numpy() == pytest.approx([first + 2 * log(exp(-1.0) + exp(0.0)) + 1.0 - 0.0], rel=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_each_group_has_its_own_loss(name: str) -> None:
    labels, scores, _ = BY_HAND[name]
    both, _ = evaluated(name, [labels, [0.0] * 3], [scores, [0.0] * 3], [[True] * 3] * 2)
    changed, _ = evaluated(name, [labels, [1.0, 0.0, 0.0]], [scores, [-3.0, 1.0, 0.0]], [[True] * 3] * 2)
    assert both[0] == changed[0]
    assert both[1] != changed[1]


# --- against float64 numpy: each reference takes one group without padding, and loops


def cross_entropy(p: float, target: float) -> float:
    return -target * log(p) - (1.0 - target) * log(1.0 - p)


def reference_rank_net(y: Array, s: Array) -> float:
    items = range(len(y))
    return sum(cross_entropy(sigma(s[i] - s[j]), (y[i] - y[j] + 1) / 2) for i in items for j in items if i != j)


def reference_dcg(y: Array, ranks: Array) -> float:
    return sum((2.0**label - 1.0) / log2(rank + 1.0) for label, rank in zip(y, ranks, strict=True))


def reference_ideal_dcg(y: Array) -> float:
    return reference_dcg(np.sort(y)[::-1], np.arange(1.0, len(y) + 1))


def reference_approx_ndcg(y: Array, s: Array) -> float:
    if not y.any():
        return 0.0
    items = range(len(y))
    ranks = [1.0 + sum(sigma((s[j] - s[i]) / 0.1) for j in items if j != i) for i in items]
    return -reference_dcg(y, np.array(ranks)) / reference_ideal_dcg(y)


def reference_lambda_rank(y: Array, s: Array) -> float:
    """By its definition: swaps the ranks of each pair and looks how far NDCG moves."""
    if not y.any():
        return 0.0
    ranks = np.array([1.0 + np.sum(s > score) for score in s])
    before, total = reference_dcg(y, ranks), 0.0
    for i, j in np.argwhere(y[:, None] > y[None, :]):
        swapped = ranks.copy()
        swapped[[i, j]] = ranks[[j, i]]
        total += abs(reference_dcg(y, swapped) - before) / reference_ideal_dcg(y) * -log(sigma(s[i] - s[j]))
    return total


def reference_list_mle(y: Array, s: Array) -> float:
    """Chooses the items one after another by label, those of equal label with replacement."""
    return -sum(log(exp(s[i]) / np.sum(np.exp(s[y <= y[i]]))) for i in range(len(y)))


REFERENCES: dict[str, Callable[[Array, Array], float]] = {
    "rank_bce": lambda y, s: sum(cross_entropy(sigma(score), label) for label, score in zip(y, s, strict=True)),
    "mse": lambda y, s: float(np.sum((y - s) ** 2)),
    "rank_net": reference_rank_net,
    "lambda_rank": reference_lambda_rank,
    "softmax": lambda y, s: float(-y @ np.log(np.exp(s) / np.exp(s).sum())),
    "list_mle": reference_list_mle,
    "approx_ndcg": reference_approx_ndcg,
    "gumbel_approx_ndcg": reference_approx_ndcg,  # of scores that have their noise
}
LABELS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    "soft": lambda generator, shape: generator.random(shape),
    "small": lambda generator, shape: 1e-6 * generator.random(shape),
    "binary": lambda generator, shape: (generator.random(shape) < 0.3).astype(float),
    "graded": lambda generator, shape: generator.integers(0, 5, shape).astype(float),
    "transformed": lambda generator, shape: np.maximum(3.0 * generator.normal(size=shape) + 1.0, 0.0),
}


def random_groups(kind: str) -> tuple[Array, Array, NDArray[np.bool_]]:
    """8 groups of 1 to 6 real items among 6, padding anywhere; the last has no positive label."""
    generator = np.random.default_rng(3)
    labels = LABELS[kind](generator, (8, 6)).astype(np.float32).astype(float)
    labels[-1] = 0.0
    scores = generator.normal(size=(8, 6)).astype(np.float32).astype(float)
    return labels, scores, generator.permuted(np.arange(6) <= np.arange(8)[:, None], axis=1)


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", LOSSES)
def test_random_groups_agree_with_numpy(name: str, kind: str) -> None:
    labels, scores, mask = random_groups(kind)
    noisy = scores + noise_of(name, *scores.shape)
    loss, _ = evaluated(name, np.where(mask, labels, -1.0), np.where(mask, scores, np.nan), mask)
    expected = [REFERENCES[name](y[real], s[real]) for y, s, real in zip(labels, noisy, mask, strict=True)]
    assert loss == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", LOSSES)
def test_gradient_equals_finite_differences(name: str, kind: str) -> None:
    labels, scores, mask = random_groups(kind)
    noisy = scores + noise_of(name, *scores.shape)
    _, gradient = evaluated(name, np.where(mask, labels, -1.0), np.where(mask, scores, np.nan), mask)

    def total(changed: Array) -> float:
        return sum(REFERENCES[name](y[real], s[real]) for y, s, real in zip(labels, changed, mask, strict=True))

    for index in np.ndindex(*scores.shape):
        step = np.zeros_like(scores)
        step[index] = 1e-5
        slope = (total(noisy + step) - total(noisy - step)) / 2e-5
        assert gradient[index] == pytest.approx(slope, rel=1e-4, abs=1e-5), index


# --- against TF-Ranking, where it is right: full groups, no equal labels or scores


EACH = tf.keras.losses.Reduction.NONE
# LambdaRank's own weights; TF-Ranking's default looks at the distance of two ranks instead
SWAP = tfr.keras.losses.NDCGLambdaWeight(smooth_fraction=1.0)
IN_TF_RANKING: dict[str, Any] = {
    "rank_bce": tfr.keras.losses.SigmoidCrossEntropyLoss(EACH),
    "mse": tfr.keras.losses.MeanSquaredLoss(EACH),
    "lambda_rank": tfr.keras.losses.PairwiseLogisticLoss(EACH, lambda_weight=SWAP),
    "softmax": tfr.keras.losses.SoftmaxLoss(EACH),
    "list_mle": tfr.keras.losses.ListMLELoss(EACH),
    "approx_ndcg": tfr.keras.losses.ApproxNDCGLoss(EACH),
    "gumbel_approx_ndcg": tfr.keras.losses.GumbelApproxNDCGLoss(EACH, sample_size=1),
}


def in_tf_ranking(name: str, labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """[groups]: TF-Ranking's loss, summed over items."""
    summed = tf.reduce_sum(tf.reshape(IN_TF_RANKING[name](labels, scores), [scores.shape[0], -1]), axis=1)
    return summed / scores.shape[1] if name == "lambda_rank" else summed  # it scales the weights by the list's size


@pytest.mark.parametrize("name", [name for name in EXACT if name in IN_TF_RANKING])
def test_agrees_with_tf_ranking(name: str) -> None:
    generator = np.random.default_rng(8)
    labels = tf.constant(generator.permuted(np.tile(np.arange(12) / 11, (20, 1)), axis=1), tf.float32)
    scores = tf.constant(generator.normal(size=(20, 12)), tf.float32)
    loss = LOSSES[name](labels, scores, tf.ones([20, 12], tf.bool))
    assert loss.numpy() == pytest.approx(in_tf_ranking(name, labels, scores).numpy(), rel=1e-4)


# --- what no loss may do


@pytest.mark.parametrize("junk", [0.0, -1.0, 1e9, float("nan"), float("inf")])
@pytest.mark.parametrize("name", EXACT)
def test_padding_contributes_nothing_whatever_it_holds(name: str, junk: float) -> None:
    # scores far below what a padded score could hold: a fixed stand-in for padding would win
    labels, scores = [0.9, 0.0, 0.4], [-70.3, -71.0, -70.5]
    loss, gradient = evaluated(name, [labels], [scores], [[True] * 3])
    padded_loss, padded_gradient = evaluated(
        name, [[junk, *labels, junk, junk]], [[junk, *scores, junk, junk]], [[False] + [True] * 3 + [False] * 2]
    )
    assert padded_loss == pytest.approx(loss, rel=1e-6)
    assert padded_gradient[0, 1:4] == pytest.approx(gradient[0], rel=1e-5)
    assert padded_gradient[0, [0, 4, 5]].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", EXACT)
def test_the_order_of_items_does_not_matter(name: str, kind: str) -> None:
    labels, scores, mask = random_groups(kind)
    order = np.random.default_rng(2).permutation(labels.shape[1])
    loss, gradient = evaluated(name, labels, scores, mask)
    shuffled_loss, shuffled_gradient = evaluated(name, labels[:, order], scores[:, order], mask[:, order])
    assert shuffled_loss == pytest.approx(loss, rel=1e-5)
    assert shuffled_gradient == pytest.approx(gradient[:, order], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_all_padded_group_has_zero_loss_and_gradient(name: str) -> None:
    loss, gradient = evaluated(name, [[1.0, 0.0, np.nan]] * 2, [[0.3, np.nan, np.inf]] * 2, [[False] * 3] * 2)
    assert loss.tolist() == [0.0, 0.0]
    assert not gradient.any()


@pytest.mark.parametrize("name", LOSSES)
def test_all_zero_labels_are_finite(name: str) -> None:
    loss, gradient = evaluated(name, [[0.0] * 3], [[0.3, -0.7, 5.0]], [[True, True, False]])
    assert np.isfinite(loss).all()
    assert np.isfinite(gradient).all()
    if name in {"softmax", "lambda_rank", "approx_ndcg", "gumbel_approx_ndcg"}:  # they ask what stands above what
        assert loss.tolist() == [0.0]
        assert not gradient.any()


@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_and_extremes_stay_finite(name: str) -> None:
    scores = tf.constant([[30000.0, -30000.0, 0.0]], tf.float16)
    for labels in ([[0.0, 1.0, 0.5]], [[0.0, 300.0, 4.0]]):  # 2^300 is beyond float32
        with tf.GradientTape() as tape:
            tape.watch(scores)
            loss = LOSSES[name](tf.constant(labels, tf.float16), scores, tf.ones([1, 3], tf.bool))
        assert loss.dtype == tf.float32
        assert np.isfinite(loss.numpy()).all()
        assert np.isfinite(tape.gradient(loss, scores).numpy()).all()


@pytest.mark.parametrize("bought", [0, 1, 2])
@pytest.mark.parametrize("name", LOSSES)
def test_the_first_step_raises_the_bought_item_above_tied_ones(name: str, bought: int) -> None:
    _, gradient = evaluated(name, [np.eye(3)[bought]], [[0.0] * 3], [[True] * 3])
    assert gradient[0, bought] < 0.0
    assert (gradient[0, bought] < np.delete(gradient[0], bought)).all()


# --- as the trainer calls them: in a loop in a graph, whose shapes are not known when it is traced


def in_a_loop(name: str, labels: Array, scores: Array, mask: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The losses of two steps, as training loops, [2, groups], and the last step's gradient, [groups, items]."""
    shapes = [tf.TensorSpec([None, None], dtype) for dtype in (tf.float32, tf.float32, tf.bool)]

    def two_steps(labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def one_more(step: tf.Tensor, losses: tf.TensorArray, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
            with tf.GradientTape() as tape:
                tape.watch(scores)
                loss = LOSSES[name](labels, scores, mask)
            return step + 1, losses.write(step, loss), tape.gradient(loss, scores)

        start = (0, tf.TensorArray(tf.float32, 2), tf.zeros_like(scores))
        _, losses, gradient = tf.while_loop(lambda step, *_: step < 2, one_more, start, parallel_iterations=1)
        return losses.stack(), gradient

    graph = tf.function(two_steps, shapes, autograph=False)
    losses, gradient = graph(tf.constant(labels, tf.float32), tf.constant(scores, tf.float32), tf.constant(mask))
    return losses.numpy(), gradient.numpy()


@pytest.mark.parametrize("name", EXACT)
def test_a_loop_in_a_graph_gives_what_a_plain_call_gives(name: str) -> None:
    groups = random_groups("soft")
    loss, gradient = evaluated(name, *groups)
    losses, last_gradient = in_a_loop(name, *groups)
    assert losses == pytest.approx(np.stack([loss, loss]), rel=1e-5, abs=1e-6)
    assert last_gradient == pytest.approx(gradient, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", STOCHASTIC)
def test_each_step_draws_anew_and_the_seed_decides_the_draws(name: str) -> None:
    groups = random_groups("graded")
    runs = []
    for seed in (1, 1, 2):
        tf.random.set_seed(seed)
        runs.append(in_a_loop(name, *groups)[0])
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-5)  # threads may add up in another order
    assert (runs[0] != runs[2]).any()
    assert (runs[0][0] != runs[0][1]).any()


# --- a stochastic loss keeps its promises in the mean over many draws


def assert_same_mean(one: tf.Tensor, other: tf.Tensor) -> None:
    """Within five standard errors of their difference, which are small beside what padding or order could do."""
    difference = float(tf.reduce_mean(one) - tf.reduce_mean(other))
    error = float(tf.sqrt((tf.math.reduce_variance(one) + tf.math.reduce_variance(other)) / one.shape[0]))
    assert 0.0 < error < 0.002
    assert abs(difference) < 5 * error


@pytest.mark.parametrize("name", STOCHASTIC)
def test_the_mean_knows_neither_padding_nor_order_and_is_that_of_tf_ranking(name: str) -> None:
    def copies(*group: float | bool) -> tf.Tensor:
        return tf.repeat(tf.constant([group]), 20_000, axis=0)

    tf.random.set_seed(SEED)
    junk, every = float("nan"), copies(True, True, True)
    loss = LOSSES[name](copies(2.0, 0.0, 1.0), copies(0.5, 0.0, -0.5), every)
    shuffled = LOSSES[name](copies(1.0, 2.0, 0.0), copies(-0.5, 0.5, 0.0), every)
    padded = LOSSES[name](
        copies(2.0, junk, 0.0, 1.0, junk), copies(0.5, junk, 0.0, -0.5, 9.0), copies(True, False, True, True, False)
    )
    assert_same_mean(loss, shuffled)
    assert_same_mean(loss, padded)
    assert_same_mean(loss, in_tf_ranking(name, copies(2.0, 0.0, 1.0), copies(0.5, 0.0, -0.5)))
