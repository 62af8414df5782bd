"""RankBCE against hand arithmetic: -log(sigma(s)) = log1p(exp(-s)) for a bought item, log1p(exp(s)) for another."""

from math import exp, log, log1p

import numpy as np
import pytest
import tensorflow as tf

from trainer.losses import LOSSES, rank_bce


def test_three_items_by_hand() -> None:
    loss = rank_bce(tf.constant([[1.0, 0.0, 0.0]]), tf.constant([[2.0, -1.0, 0.0]]), tf.constant([[True] * 3]))
    assert loss.numpy() == pytest.approx([log1p(exp(-2.0)) + log1p(exp(-1.0)) + log(2.0)], rel=1e-6)


def test_a_soft_label_weighs_both_outcomes() -> None:
    # label 0.25, logit 1: a quarter of -log(sigma(1)), three quarters of -log(1 - sigma(1))
    loss = rank_bce(tf.constant([[0.25]]), tf.constant([[1.0]]), tf.constant([[True]]))
    assert loss.numpy() == pytest.approx([0.25 * log1p(exp(-1.0)) + 0.75 * log1p(exp(1.0))], rel=1e-6)


def test_each_group_has_its_own_loss() -> None:
    labels, scores = tf.constant([[1.0, 0.0], [0.0, 0.0]]), tf.constant([[0.0, 0.0], [3.0, 0.0]])
    loss = rank_bce(labels, scores, tf.ones([2, 2], tf.bool))
    assert loss.numpy() == pytest.approx([2 * log(2.0), log1p(exp(3.0)) + log(2.0)], rel=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_padding_contributes_nothing_whatever_it_holds(name: str) -> None:
    labels, scores = tf.constant([[1.0, 0.0]]), tf.constant([[0.3, -0.7]])
    plain = LOSSES[name](labels, scores, tf.constant([[True, True]]))
    for junk in (1e9, float("nan"), float("inf"), -1.0):
        padded = LOSSES[name](
            tf.constant([[1.0, 0.0, junk]]), tf.constant([[0.3, -0.7, junk]]), tf.constant([[True, True, False]])
        )
        assert padded.numpy() == pytest.approx(plain.numpy(), rel=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_junk_in_padding_gives_no_gradient(name: str) -> None:
    scores = tf.Variable([[0.3, float("nan")]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(LOSSES[name](tf.constant([[1.0, 1.0]]), scores, tf.constant([[True, False]])))
    gradient = tape.gradient(loss, scores).numpy()
    assert gradient == pytest.approx(np.array([[1 / (1 + exp(-0.3)) - 1.0, 0.0]]), rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_all_padded_group_has_zero_loss(name: str) -> None:
    loss = LOSSES[name](tf.ones([2, 3]), tf.ones([2, 3]), tf.zeros([2, 3], tf.bool))
    assert loss.numpy().tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_equals_finite_differences(name: str) -> None:
    generator = np.random.default_rng(3)
    labels = tf.constant(generator.random((2, 4)), tf.float32)
    mask = tf.constant([[True, True, True, False], [True, True, True, True]])
    scores = generator.normal(size=(2, 4)).astype(np.float32)

    def total(values: np.ndarray) -> float:
        return float(tf.reduce_sum(LOSSES[name](labels, tf.constant(values, tf.float32), mask)))

    variable = tf.Variable(scores)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(LOSSES[name](labels, variable, mask))
    gradient = tape.gradient(loss, variable).numpy()
    for index in np.ndindex(2, 4):
        step = np.zeros_like(scores)
        step[index] = 0.01
        assert gradient[index] == pytest.approx((total(scores + step) - total(scores - step)) / 0.02, abs=2e-3)


def test_large_logits_and_half_precision_stay_finite() -> None:
    scores = tf.constant([[60000.0, -60000.0]], tf.float16)
    loss = rank_bce(tf.constant([[0.0, 1.0]], tf.float16), scores, tf.ones([1, 2], tf.bool))
    assert loss.dtype == tf.float32
    assert loss.numpy() == pytest.approx([2 * 59999.0], rel=1e-3)
