"""The distillation objective, equation 1: data loss over positive groups plus teacher loss over all groups."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

from trainer.losses.rank_distil import rank_distil_loss
from trainer.losses.ranking import LOSSES, Loss
from trainer.recipes import LossName, Recipe, Targets

TeacherLoss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""(a teacher's logits, the student's, mask), each [groups, items] -> float32 [groups]."""


@dataclass(frozen=True)
class Objective:
    """Losses and weights of equation 1."""

    data_loss: Loss
    teacher_loss: TeacherLoss | None = None
    data_weight: float = 1.0  # alpha, in [0, 1]
    data_loss_groups: Literal["positive", "all"] = "positive"
    teacher_weights: tuple[float, ...] = ()  # in the order of the teachers; empty: equal


def objective_of(recipe: Recipe, loss: LossName) -> Objective:
    """A recipe's objective. loss: its data loss, and its teacher loss unless the recipe names another."""
    return Objective(
        LOSSES[loss],
        _teacher_loss(recipe, recipe.teacher_loss or loss),
        recipe.data_weight,
        recipe.data_loss_groups,
        recipe.teacher_weights,
    )


def _teacher_loss(recipe: Recipe, name: LossName) -> TeacherLoss:
    if config := recipe.rank_distil:
        return lambda teacher, scores, mask: rank_distil_loss(teacher, scores, mask, config)
    loss = LOSSES[name]
    return lambda teacher, scores, mask: loss(labels_from(teacher, mask, recipe.targets), scores, mask)


def labels_from(teacher: tf.Tensor, mask: tf.Tensor, targets: Targets) -> tf.Tensor:
    """Transforms a teacher's logits t to labels: float32 [groups, items], 0 on padding.

    probability: sigma(t / temperature), Yang et al. 2022, eq. 1. affine: max(slope * t + offset, 0), Qin et al. 2023
    (SDR), eq. 10. softmax: of t / temperature over a group's items, ibid., 4.4. score: t itself, for `mse`.
    """
    if targets.transform == "probability":
        labels = tf.sigmoid(teacher / targets.temperature)
    elif targets.transform == "affine":
        labels = tf.maximum(targets.slope * teacher + targets.offset, 0.0)
    elif targets.transform == "softmax":
        labels = tf.nn.softmax(tf.where(mask, teacher / targets.temperature, teacher.dtype.min))
    else:
        labels = teacher
    return tf.where(mask, labels, 0.0)


def distillation_loss(
    scores: tf.Tensor,
    labels: tf.Tensor,
    mask: tf.Tensor,
    teacher_logits: tf.Tensor,
    group_weights: tf.Tensor,
    objective: Objective,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The two terms of equation 1: alpha * data loss, and (1 - alpha) * (weighted) mean of the teacher losses.

    Both are sums over the batch's items; the caller divides both by the same number of items. Labels are sparse, so the
    teachers have the larger share, which the method relies on.

    scores, labels: float32 [groups, items]; mask: bool [groups, items]; group_weights: float32 [groups].
    teacher_logits: float32 [groups, items, teachers], constants; teachers may be 0.
    Returns two float32 scalars; without teachers the second is 0.
    Source: Yang et al. 2022, eq. 1; Table 5 for `data_loss_groups`.
    """
    data = objective.data_loss(labels, scores, mask) * group_weights
    if objective.data_loss_groups == "positive":
        data = tf.where(is_positive_group(labels, mask), data, 0.0)
    data_term = objective.data_weight * tf.reduce_sum(data)
    teachers = teacher_logits.shape[-1] or 0
    if not (objective.teacher_loss and teachers and objective.data_weight < 1.0):
        return data_term, tf.constant(0.0)
    constants = tf.unstack(tf.stop_gradient(teacher_logits), axis=2)
    weights = objective.teacher_weights or (1.0,) * teachers
    losses = [
        weight * tf.reduce_sum(objective.teacher_loss(teacher, scores, mask) * group_weights)
        for teacher, weight in zip(constants, weights, strict=True)
    ]
    return data_term, (1.0 - objective.data_weight) * tf.add_n(losses) / sum(weights)


def is_positive_group(labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """bool [groups]: whether a real item has a positive label; other groups are unlabelled, not negative."""
    return tf.reduce_any(tf.logical_and(labels > 0.0, mask), axis=1)
