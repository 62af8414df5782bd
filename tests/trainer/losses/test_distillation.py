"""Equation 1 against hand arithmetic, on a positive group (A) and an unlabelled one (B)."""

from dataclasses import replace
from math import exp, log, log1p
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainer.losses.distillation import Objective, distillation_loss, is_positive_group, labels_from, objective_of
from trainer.recipes import Recipe, Targets

SCORES = [[2.0, -1.0, 0.5], [1.0, 0.0, 0.0]]
LABELS = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
MASK = [[True, True, True], [True, True, False]]
TEACHERS = [[[3.0, -2.0], [-3.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [-1.0, 0.5], [9.0, 9.0]]]  # the last is padding


def sigma(x: float) -> float:
    return 1.0 / (1.0 + exp(-x))


def cross_entropy(target: float, score: float) -> float:
    return target * log1p(exp(-score)) + (1.0 - target) * log1p(exp(score))


def equation_1(alpha: float, **recipe: Any) -> Objective:
    # a recipe with teachers is refused if alpha leaves them nothing; the objective is defined all the same
    fields = {"name": "student", "teachers": ("one", "two"), "alpha": min(alpha, 0.5), **recipe}
    return replace(objective_of(Recipe.model_validate(fields), "rank_bce"), data_weight=alpha)


def terms(
    objective: Objective, teachers: Any = TEACHERS, scores: Any = SCORES, weights: tuple[float, ...] = (1.0, 1.0)
) -> tuple[float, float]:
    data, teacher = distillation_loss(
        tf.constant(scores),
        tf.constant(LABELS),
        tf.constant(MASK),
        tf.constant(teachers, tf.float32),
        tf.constant(weights),
        objective,
    )
    return float(data), float(teacher)


def total(*arguments: Any, **options: Any) -> float:
    return sum(terms(*arguments, **options))


def data_loss(group: int) -> float:
    return sum(
        cross_entropy(y, s) for y, s, real in zip(LABELS[group], SCORES[group], MASK[group], strict=True) if real
    )


def teacher_loss(teacher: int) -> float:
    return sum(
        cross_entropy(sigma(TEACHERS[g][i][teacher]), SCORES[g][i]) for g in range(2) for i in range(3) if MASK[g][i]
    )


def test_two_teachers_a_positive_and_an_unlabelled_group_by_hand() -> None:
    # data: group A alone; teachers: both groups, averaged over the two teachers; both plain sums over items
    expected = (0.3 * data_loss(0), 0.7 * (teacher_loss(0) + teacher_loss(1)) / 2)
    assert terms(equation_1(0.3)) == pytest.approx(expected, rel=1e-6)


def test_weighted_teachers_share_what_alpha_leaves_by_their_weights() -> None:
    expected = 0.3 * data_loss(0) + 0.7 * (3 * teacher_loss(0) + teacher_loss(1)) / 4
    assert total(equation_1(0.3, teacher_weights=(3.0, 1.0))) == pytest.approx(expected, rel=1e-6)
    assert total(equation_1(0.3, teacher_weights=(2.0, 2.0))) == pytest.approx(total(equation_1(0.3)), rel=1e-6)


def test_both_terms_are_sums_that_leave_one_divisor_to_the_caller() -> None:
    # the same unlabelled group once more: the teachers' term grows by that group's own, the data term not at all
    data, teacher = distillation_loss(
        tf.constant([*SCORES, SCORES[1]]),
        tf.constant([*LABELS, LABELS[1]]),
        tf.constant([*MASK, MASK[1]]),
        tf.constant([*TEACHERS, TEACHERS[1]]),
        tf.ones([3]),
        equation_1(0.5),
    )
    group_b = sum(cross_entropy(sigma(TEACHERS[1][i][t]), SCORES[1][i]) for i in range(2) for t in range(2)) / 2
    once = terms(equation_1(0.5))
    assert float(data) == once[0]
    assert float(teacher) - once[1] == pytest.approx(0.5 * group_b, rel=1e-5)


def test_alpha_one_is_the_data_loss_with_or_without_teachers() -> None:
    assert terms(equation_1(1.0)) == pytest.approx((data_loss(0), 0.0), rel=1e-6)
    assert terms(equation_1(1.0), np.zeros((2, 3, 0))) == pytest.approx((data_loss(0), 0.0), rel=1e-6)


def test_alpha_zero_is_the_teachers_alone() -> None:
    assert terms(equation_1(0.0)) == pytest.approx((0.0, (teacher_loss(0) + teacher_loss(1)) / 2), rel=1e-6)


def test_data_loss_of_all_groups_takes_unlabelled_ones_as_negative() -> None:
    assert total(equation_1(1.0, data_loss_groups="all")) == pytest.approx(data_loss(0) + data_loss(1), rel=1e-6)


def test_one_teacher_twice_counts_once() -> None:
    single = [[[t[0]] for t in group] for group in TEACHERS]
    double = [[[t[0], t[0]] for t in group] for group in TEACHERS]
    assert total(equation_1(0.5), double) == pytest.approx(total(equation_1(0.5), single), rel=1e-6)


def test_teacher_logits_of_padding_do_not_matter() -> None:
    changed = np.array(TEACHERS)
    changed[1, 2] = -50.0
    assert total(equation_1(0.5), changed) == total(equation_1(0.5))


def test_all_padded_batch_has_zero_loss() -> None:
    both = distillation_loss(
        tf.ones([2, 3]), tf.ones([2, 3]), tf.zeros([2, 3], tf.bool), tf.ones([2, 3, 2]), tf.ones([2]), equation_1(0.5)
    )
    assert [float(term) for term in both] == [0.0, 0.0]


def test_teachers_are_constants_for_the_gradient() -> None:
    scores, teachers = tf.Variable(SCORES), tf.Variable(TEACHERS)
    with tf.GradientTape() as tape:
        both = distillation_loss(
            scores, tf.constant(LABELS), tf.constant(MASK), teachers, tf.ones([2]), equation_1(0.5)
        )
        loss = tf.add_n(both)
    to_scores, to_teachers = tape.gradient(loss, [scores, teachers])
    assert to_teachers is None
    # d CE(sigma(s), p) / d s = sigma(s) - p, for the label in group A, and for the mean teacher everywhere
    first = 0.5 * (sigma(2.0) - 1.0) + 0.5 * (sigma(2.0) - (sigma(3.0) + sigma(-2.0)) / 2)
    unlabelled = 0.5 * (sigma(1.0) - (sigma(1.0) + sigma(2.0)) / 2)
    assert to_scores.numpy()[0, 0] == pytest.approx(first, rel=1e-5)
    assert to_scores.numpy()[1, 0] == pytest.approx(unlabelled, rel=1e-5)
    assert to_scores.numpy()[1, 2] == 0.0


def test_a_groups_weight_multiplies_both_of_its_losses() -> None:
    of_a, of_b = total(equation_1(0.3), weights=(1.0, 0.0)), total(equation_1(0.3), weights=(0.0, 1.0))
    assert of_a + of_b == pytest.approx(total(equation_1(0.3)), rel=1e-6)
    assert total(equation_1(0.3), weights=(3.0, 0.5)) == pytest.approx(3.0 * of_a + 0.5 * of_b, rel=1e-6)


def test_the_teacher_loss_may_be_another_than_the_data_loss() -> None:
    # rank_bce of the labels; of the first teacher's logits the squared error on both groups' real items
    squared = sum((t - s) ** 2 for t, s in zip([3.0, -3.0, 0.0, 1.0, -1.0], [2.0, -1.0, 0.5, 1.0, 0.0], strict=True))
    objective = equation_1(0.3, teachers=("one",), teacher_loss="mse", targets={"transform": "score"})
    first = [[[teachers[0]] for teachers in group] for group in TEACHERS]
    assert total(objective, first) == pytest.approx(0.3 * data_loss(0) + 0.7 * squared, rel=1e-6)


# ---- what a teacher's logits become ----


def labels(transform: str, **options: float) -> list[list[float]]:
    teacher = tf.constant([[2.0, -1.0, 9.0]])
    mask = tf.constant([[True, True, False]])
    return labels_from(teacher, mask, Targets.model_validate({"transform": transform, **options})).numpy().tolist()


def test_probabilities_are_sigma_of_the_tempered_logit() -> None:
    assert labels("probability") == [[pytest.approx(sigma(2.0)), pytest.approx(sigma(-1.0)), 0.0]]
    assert labels("probability", temperature=2.0) == [[pytest.approx(sigma(1.0)), pytest.approx(sigma(-0.5)), 0.0]]


def test_the_affine_transform_is_cut_at_zero() -> None:
    # 2 * 2 + 1 and 2 * -1 + 1 = -1, cut
    assert labels("affine", slope=2.0, offset=1.0) == [[5.0, 0.0, 0.0]]


def test_the_softmax_transform_sums_to_one_over_real_items() -> None:
    # at temperature log 2: e^((2 + 1) / 3 * log 2) = 2 between the two items, so 2/3 and 1/3
    assert labels("softmax", temperature=3.0 / log(2.0)) == [[pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0]]


def test_scores_stay_as_they_are() -> None:
    assert labels("score") == [[2.0, -1.0, 0.0]]


def test_gradient_equals_finite_differences() -> None:
    scores = tf.Variable(SCORES)
    with tf.GradientTape() as tape:
        both = distillation_loss(
            scores, tf.constant(LABELS), tf.constant(MASK), tf.constant(TEACHERS), tf.ones([2]), equation_1(0.4)
        )
        loss = tf.add_n(both)
    gradient = tape.gradient(loss, scores).numpy()
    for index in np.ndindex(2, 3):
        up, down = np.array(SCORES, np.float32), np.array(SCORES, np.float32)
        up[index] += 0.01
        down[index] -= 0.01
        slope = (total(equation_1(0.4), scores=up) - total(equation_1(0.4), scores=down)) / 0.02
        assert gradient[index] == pytest.approx(slope, abs=2e-3)


def test_a_label_in_padding_makes_no_group_positive() -> None:
    positive = is_positive_group(tf.constant([[0.0, 1.0], [0.0, 1.0]]), tf.constant([[True, False], [True, True]]))
    assert positive.numpy().tolist() == [False, True]
