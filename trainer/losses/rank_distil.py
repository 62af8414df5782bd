"""RankDistil losses: the student ranks the teacher's top items first and mined negatives below them.

For each query group, P is the teacher's top p items, B is m items sampled from the rest, and N is the b items of B
that the student scores highest. Source: Reddi et al. 2021 (RankDistil), algorithms 1 and 2, appendix B.

The minimiser ranks P first, in the teacher's order, if the teacher's scores of P are above the level to which the rest
is pushed: minus the margin for the squared hinge (theorem 7, whose proof drops the sign), minus the threshold for
coupled scores (theorem 6). The other losses have no such condition: they push the rest below P, or without bound.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from trainer.losses.plackett import LOG_ZERO, cross_entropy, gumbel, log_sum, sampled_cross_entropy
from trainer.recipes import RankDistilConfig


@dataclass(frozen=True)
class SelectedItems:
    """P and N of each group, best item first; the masks are False on padding."""

    teacher: tf.Tensor  # float32 [groups, p], the teacher's logits of P
    top: tf.Tensor  # float32 [groups, p], the student's
    in_top: tf.Tensor  # bool [groups, p]
    rest: tf.Tensor  # float32 [groups, b], the student's logits of N
    in_rest: tf.Tensor  # bool [groups, b]


def rank_distil_loss(
    teacher_scores: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, config: RankDistilConfig
) -> tf.Tensor:
    """The loss of each query group, a sum over items or pairs of items, or over the orders of P and N (coupled).

    teacher_scores: float32 [groups, items], the teacher's logits, constants.
    scores: float32 [groups, items], the student's logits.
    mask:   bool    [groups, items], False on padding, which contributes nothing.
    Returns float32 [groups]. A group with fewer items than P, N or `places` needs uses the items that it has.
    Items are sampled again at each call, from the global generator: tf.random.set_seed makes them reproducible.
    """
    return RANK_DISTIL_LOSSES[config.loss](select_items(teacher_scores, scores, mask, config), config)


def select_items(
    teacher_scores: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, config: RankDistilConfig
) -> SelectedItems:
    """P and N of each group; arguments as for `rank_distil_loss`. The selection has no gradient."""
    items = tf.maximum(tf.shape(mask)[1], config.top + config.mined)  # padded, so that top_k can take both
    padding = [[0, 0], [0, items - tf.shape(mask)[1]]]
    teacher, student = (tf.pad(tf.where(mask, tf.cast(s, tf.float32), 0.0), padding) for s in (teacher_scores, scores))
    teacher, mask = tf.stop_gradient(teacher), tf.pad(mask, padding)

    top, in_top = _largest(teacher, mask, config.top)
    is_top = tf.reduce_any(tf.one_hot(top, items, on_value=True, off_value=False), axis=1)
    is_rest = tf.logical_and(mask, tf.logical_not(is_top))
    # the largest of logits + Gumbel noise are a sample by softmax, without replacement
    likelihood = gumbel(tf.shape(mask)) + (teacher if config.sampling == "softmax" else 0.0)
    drawn, is_drawn = _largest(likelihood, is_rest, tf.minimum(config.sampled, items))
    candidates = tf.gather(student, drawn, batch_dims=1)
    hardest, in_rest = _largest(candidates, is_drawn, config.mined)
    return SelectedItems(
        teacher=tf.gather(teacher, top, batch_dims=1),
        top=tf.gather(student, top, batch_dims=1),
        in_top=in_top,
        rest=tf.gather(candidates, hardest, batch_dims=1),
        in_rest=in_rest,
    )


def _largest(values: tf.Tensor, eligible: tf.Tensor, count: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Indices of the largest eligible values, int32 [groups, count], and their mask, False on padding."""
    _, index = tf.math.top_k(tf.where(eligible, values, -float("inf")), count)
    return index, tf.gather(eligible, index, batch_dims=1)


# --- loss terms: one over P, one that keeps N below it

LossTerm = Callable[[SelectedItems, RankDistilConfig], tf.Tensor]
Penalty = Callable[[tf.Tensor, float], tf.Tensor]  # (how far a score is above its bound, margin) -> penalty


def _logistic(above: tf.Tensor, margin: float) -> tf.Tensor:
    return tf.nn.softplus(above)


def _hinge(above: tf.Tensor, margin: float) -> tf.Tensor:
    return tf.nn.relu(margin + above)


def _squared_hinge(above: tf.Tensor, margin: float) -> tf.Tensor:
    return tf.square(tf.nn.relu(margin + above))


def _sigmoid_term(selected: SelectedItems, config: RankDistilConfig) -> tf.Tensor:
    """Sigmoid cross-entropy of P's items."""
    targets = tf.sigmoid(selected.teacher)
    return _sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=selected.top), selected.in_top)


def _softmax_term(selected: SelectedItems, config: RankDistilConfig) -> tf.Tensor:
    """Softmax cross-entropy within P, which is the cross-entropy of the first position."""
    return cross_entropy(selected.teacher, selected.top, selected.in_top, places=1)


def _squared_error_term(selected: SelectedItems, config: RankDistilConfig) -> tf.Tensor:
    """Squared error of P's logits."""
    return _sum(tf.square(selected.teacher - selected.top), selected.in_top)


def _pairs_within_top(penalty: Penalty) -> LossTerm:
    """Penalty on each pair within P, on the worse item's logit minus the better's; teacher ties cost nothing.

    The paper sums over ordered pairs i != j and both signs z, which counts every pair twice.
    """

    def part(selected: SelectedItems, config: RankDistilConfig) -> tf.Tensor:
        first_is_better = selected.teacher[:, :, tf.newaxis] > selected.teacher[:, tf.newaxis]
        pairs = tf.logical_and(selected.in_top[:, :, tf.newaxis], selected.in_top[:, tf.newaxis])
        leads = selected.top[:, tf.newaxis] - selected.top[:, :, tf.newaxis]
        return 2.0 * _sum(penalty(leads, config.margin), tf.logical_and(pairs, first_is_better))

    return part


def _rest_below_zero(penalty: Penalty) -> LossTerm:
    """Penalty on each logit of N above 0, or above minus the margin."""

    def part(selected: SelectedItems, config: RankDistilConfig) -> tf.Tensor:
        return _sum(penalty(selected.rest, config.margin), selected.in_rest)

    return part


def _rest_below_top(penalty: Penalty) -> LossTerm:
    """Penalty on each pair of an item of N and one of P, on the former's logit minus the latter's."""

    def part(selected: SelectedItems, config: RankDistilConfig) -> tf.Tensor:
        leads = selected.rest[:, :, tf.newaxis] - selected.top[:, tf.newaxis]
        return _sum(penalty(leads, config.margin), selected.in_rest[:, :, tf.newaxis])  # if N is not empty, P is full

    return part


def _sum_of_terms(of_top: LossTerm, of_rest: LossTerm) -> LossTerm:
    return lambda selected, config: of_top(selected, config) + of_rest(selected, config)


def _coupled(selected: SelectedItems, config: RankDistilConfig) -> tf.Tensor:
    """Cross-entropy of r-Plackett models over P and N; the teacher's logit on N is minus the threshold."""
    teacher, student, mask = config.teacher_scale * selected.teacher, selected.top, selected.in_top
    if math.isinf(config.threshold):
        unranked = log_sum(selected.rest, selected.in_rest)
    else:
        unranked = LOG_ZERO
        teacher = tf.concat([teacher, tf.fill(tf.shape(selected.rest), -config.threshold)], axis=1)
        student, mask = tf.concat([student, selected.rest], axis=1), tf.concat([mask, selected.in_rest], axis=1)
    if config.permutations:
        return sampled_cross_entropy(teacher, student, mask, config.places, config.permutations, unranked)
    return cross_entropy(teacher, student, mask, config.places, unranked)


def _sum(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Masked sum, [groups, ...] -> [groups]; the mask has as many axes as the values."""
    return tf.reduce_sum(tf.where(mask, values, 0.0), axis=range(1, len(mask.shape)))


RANK_DISTIL_LOSSES: dict[str, LossTerm] = {
    "binary_sigmoid_logistic": _sum_of_terms(_sigmoid_term, _rest_below_zero(_logistic)),
    "binary_softmax_logistic": _sum_of_terms(_softmax_term, _rest_below_zero(_logistic)),
    "binary_regression_hinge": _sum_of_terms(_squared_error_term, _rest_below_zero(_squared_hinge)),
    "pairwise_softmax_hinge": _sum_of_terms(_softmax_term, _rest_below_top(_hinge)),
    "pairwise_hinge_hinge": _sum_of_terms(_pairs_within_top(_hinge), _rest_below_top(_hinge)),
    "pairwise_logistic_logistic": _sum_of_terms(_pairs_within_top(_logistic), _rest_below_top(_logistic)),
    "coupled": _coupled,
}
