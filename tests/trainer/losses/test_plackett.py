"""The r-Plackett cross-entropy against plain Python over every permutation, and drawn against exact."""

import math
from itertools import permutations

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from trainer.losses.plackett import cross_entropy, log_sum, sampled_cross_entropy

Floats = NDArray[np.float64]


def probability(logits: list[float], order: tuple[int, ...], places: int) -> float:
    """P(order) for the whole set, its constant included; a logit of minus infinity is a weight of 0."""
    product = 1.0 / math.factorial(len(order) - places)
    for j in range(places):
        product *= math.exp(logits[order[j]]) / math.fsum(math.exp(logits[item]) for item in order[j:])
    return product


def brute_force(teacher: list[float], student: list[float], places: int) -> float:
    """-sum over all permutations of P_teacher * log P_student; the student's constant is taken back out."""
    total = 0.0
    for order in permutations(range(len(teacher))):
        chance = probability(teacher, order, places)
        if chance:
            dropped = math.log(math.factorial(len(order) - places))
            total -= chance * (math.log(probability(student, order, places)) + dropped)
    return total


def exact(teacher: list[float], student: list[float], places: int, unranked: list[float] | None = None) -> float:
    """Of one group in which every item is real."""
    others = log_sum(tf.constant([unranked]), tf.ones([1, len(unranked)], tf.bool)) if unranked else -1e30
    mask = tf.ones([1, len(teacher)], tf.bool)
    return float(cross_entropy(tf.constant([teacher]), tf.constant([student]), mask, places, others)[0])


def logits(seed: int, *shape: int) -> Floats:
    return 1.5 * np.random.default_rng(seed).normal(size=shape)


# --- exact


def test_two_items_and_one_place_by_hand() -> None:
    # the teacher gives odds of 3 to 1; of logits 0 and 1 the student gives -log(1 / (1 + e)) and -log(e / (1 + e))
    expected = 0.75 * math.log1p(math.e) + 0.25 * (math.log1p(math.e) - 1.0)
    assert exact([math.log(3.0), 0.0], [0.0, 1.0], places=1) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("items", "places"), [(n, r) for n in range(1, 7) for r in range(1, n + 1)])
def test_exact_equals_every_permutation(items: int, places: int) -> None:
    teacher, student = logits(items, 2, items).tolist()
    assert exact(teacher, student, places) == pytest.approx(brute_force(teacher, student, places), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("items", "others", "places"), [(1, 2, 1), (2, 1, 2), (3, 3, 1), (3, 3, 2), (3, 3, 3), (4, 2, 3)]
)
def test_items_that_the_teacher_never_ranks_count_in_the_students_sums(items: int, others: int, places: int) -> None:
    teacher, student = logits(items, items).tolist(), logits(others, items + others).tolist()
    expected = brute_force([*teacher, *[-math.inf] * others], student, places)
    assert exact(teacher, student[:items], places, student[items:]) == pytest.approx(expected, rel=1e-5)


def test_the_last_place_decides_nothing() -> None:
    teacher, student = logits(1, 2, 4).tolist()
    assert exact(teacher, student, places=4) == pytest.approx(exact(teacher, student, places=3), rel=1e-6)


def test_the_teachers_own_logits_are_the_best_answer() -> None:
    teacher, student = logits(2, 2, 5).tolist()
    assert exact(teacher, teacher, places=3) < exact(teacher, student, places=3)
    assert exact(teacher, [t + 7.0 for t in teacher], places=3) == pytest.approx(
        exact(teacher, teacher, places=3), rel=1e-5
    )


def test_a_score_that_dwarfs_the_others_leaves_their_order_to_count() -> None:
    # in float32 e^40 + e^1 - e^40 is 0: a sum from which the first place's weight were subtracted would be lost
    teacher, student = [30.0, 1.0, 0.0], [40.0, 0.0, 1.0]
    assert exact(teacher, student, places=2) == pytest.approx(brute_force(teacher, student, 2), rel=1e-5)


# --- exact and drawn: padding, gradients


def drawn(teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor, places: int, others: tf.Tensor) -> tf.Tensor:
    tf.random.set_seed(5)
    return sampled_cross_entropy(teacher, student, mask, places, 4, others)


WAYS = pytest.mark.parametrize("way", [cross_entropy, drawn], ids=["exact", "drawn"])


TWO_OF_FIVE = tf.constant([[True, True, False, False, False]])
JUNK = [50.0, -3.0, 99.0]


def test_a_group_of_fewer_items_than_places_ranks_those_it_has() -> None:
    teacher, student = logits(3, 2, 2).tolist()
    loss = cross_entropy(tf.constant([teacher + JUNK]), tf.constant([student + JUNK]), TWO_OF_FIVE, places=3)
    assert float(loss[0]) == pytest.approx(brute_force(teacher, student, places=2), rel=1e-5)


def test_drawn_orders_of_a_group_of_fewer_items_than_places_hold_those_it_has() -> None:
    # each of the four drawn orders is one of the two that there are
    teacher, student = logits(3, 2, 2).tolist()
    one, other = (-math.log(probability(student, order, 2)) for order in permutations(range(2)))
    loss = drawn(tf.constant([teacher + JUNK]), tf.constant([student + JUNK]), TWO_OF_FIVE, 3, -1e30)
    assert min(abs(float(loss[0]) - (k * one + (4 - k) * other) / 4) for k in range(5)) < 1e-5


@WAYS
def test_a_group_without_items_has_no_loss_and_no_gradient(way: object) -> None:
    teacher, student = tf.constant(logits(1, 2, 4), tf.float32), tf.Variable(logits(2, 2, 4), dtype=tf.float32)
    mask = tf.constant([[False] * 4, [True] * 4])
    with tf.GradientTape() as tape:
        loss = way(teacher, student, mask, 3, tf.constant([-1e30, 0.5]))
    gradient = tape.gradient(loss, student).numpy()
    assert loss.numpy()[0] == 0.0
    assert loss.numpy()[1] > 0.0
    assert gradient[0].tolist() == [0.0] * 4
    assert np.isfinite(gradient).all()
    assert np.abs(gradient[1]).min() > 0.0


@WAYS
def test_gradient_equals_finite_differences(way: object) -> None:
    teacher, scores = tf.constant(logits(1, 2, 4), tf.float32), logits(2, 2, 4).astype(np.float32)
    mask = tf.constant([[True, True, False, False], [True] * 4])

    def total(values: NDArray[np.float32] | tf.Variable) -> tf.Tensor:
        ranked = tf.convert_to_tensor(values)
        return tf.reduce_sum(way(teacher, ranked, mask, 3, 0.5 * tf.reduce_sum(ranked, axis=1)))

    variable = tf.Variable(scores)
    with tf.GradientTape() as tape:
        loss = total(variable)
    gradient = tape.gradient(loss, variable).numpy()
    for index in np.ndindex(2, 4):
        step = np.zeros_like(scores)
        step[index] = 0.01
        slope = (float(total(scores + step)) - float(total(scores - step))) / 0.02
        assert gradient[index] == pytest.approx(slope, abs=2e-3)


# --- drawn against exact


@pytest.mark.parametrize("others", [None, 0.7])
@pytest.mark.parametrize("places", [1, 2, 3, 4])
def test_drawn_orders_estimate_loss_and_gradient_without_bias(places: int, others: float | None) -> None:
    copies, unranked = 4000, -1e30 if others is None else others
    teacher, student = (tf.constant(values[np.newaxis], tf.float32) for values in logits(8, 2, 4))
    mask = tf.ones([1, 4], tf.bool)
    with tf.GradientTape() as tape:
        tape.watch(student)
        expected = cross_entropy(teacher, student, mask, places, tf.constant([unranked]))
    expected_gradient = tape.gradient(expected, student).numpy()[0]

    tf.random.set_seed(places)
    repeated = [tf.repeat(values, copies, axis=0) for values in (teacher, student, mask)]
    with tf.GradientTape() as tape:
        tape.watch(repeated[1])
        loss = sampled_cross_entropy(*repeated, places, 2, tf.fill([copies], unranked))
    gradient = tape.gradient(loss, repeated[1]).numpy()
    for draws, value in ((loss.numpy(), expected.numpy()[0]), *zip(gradient.T, expected_gradient, strict=True)):
        standard_error = draws.std(ddof=1) / math.sqrt(copies)
        assert draws.mean() == pytest.approx(value, abs=3 * standard_error + 1e-6)


def test_more_permutations_bring_the_estimate_nearer() -> None:
    teacher, student = (tf.repeat(tf.constant(v[np.newaxis], tf.float32), 500, axis=0) for v in logits(9, 2, 5))
    mask = tf.ones([500, 5], tf.bool)
    tf.random.set_seed(1)
    one, hundred = (sampled_cross_entropy(teacher, student, mask, 3, count).numpy().var() for count in (1, 100))
    assert hundred == pytest.approx(one / 100, rel=0.3)
