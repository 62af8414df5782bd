"""Equation 1: the data loss over positive groups beside the teachers' loss over all groups."""

from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

from trainer.losses import Loss


@dataclass(frozen=True)
class Objective:
    """Equation 1's choices."""

    data_weight: float = 1.0  # alpha, in [0, 1]
    data_loss_groups: Literal["positive", "all"] = "positive"
    teacher_weights: tuple[float, ...] = ()  # in the teachers' order; empty: equal


def distillation_loss(
    loss: Loss,
    scores: tf.Tensor,
    labels: tf.Tensor,
    mask: tf.Tensor,
    teacher_logits: tf.Tensor,
    objective: Objective,
) -> tf.Tensor:
    """alpha * data loss + (1 - alpha) * (weighted) mean over teachers of the teacher loss, summed over the batch.

    Both terms are sums over items; the caller divides the result by the batch's items, so that labels, being sparse,
    leave the greater part to the teachers: that is what makes the method work.

    scores, labels: float32 [groups, items]; mask: bool [groups, items].
    teacher_logits: float32 [groups, items, teachers], constants; teachers may be 0.
    objective: alpha, the teachers' weights, and whether the data loss counts positive groups only or all.
    Returns a float32 scalar. Source: Yang et al. 2022, eq. 1; Table 5 for the groups.
    """
    data = loss(labels, scores, mask)
    if objective.data_loss_groups == "positive":
        data = tf.where(is_positive_group(labels, mask), data, 0.0)
    total = objective.data_weight * tf.reduce_sum(data)
    teachers = teacher_logits.shape[-1] or 0
    if teachers and objective.data_weight < 1.0:
        targets = tf.stop_gradient(tf.sigmoid(teacher_logits))
        weights = objective.teacher_weights or (1.0,) * teachers
        losses = [weight * tf.reduce_sum(loss(targets[..., t], scores, mask)) for t, weight in enumerate(weights)]
        total += (1.0 - objective.data_weight) * tf.add_n(losses) / sum(weights)
    return total


def is_positive_group(labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """bool [groups]: whether some real item has a positive label; all other groups are unlabelled, not negative."""
    return tf.reduce_any(tf.logical_and(labels > 0.0, mask), axis=1)
