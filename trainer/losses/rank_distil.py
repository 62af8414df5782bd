"""RankDistil: the student keeps the teacher's top items on top, and others, those that it rates highest, below them.

Of each query group P are the teacher's top p items, B are m items drawn from the rest, and N are the b items of B that
the student rates highest. Source: Reddi et al. 2021 (RankDistil), algorithms 1 and 2, appendix B.

The minimiser ranks P first, and as the teacher does, where the teacher rates P above the level to which the rest is
pushed down: minus the margin for the squared hinge (theorem 7, whose proof drops the sign), minus the threshold for
coupled scores (theorem 6). The other losses ask for nothing: their rest is pushed below P, or without end.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from trainer.plackett import NOTHING, cross_entropy, gumbel, log_sum, sampled_cross_entropy
from trainer.recipes import RankDistilConfig


@dataclass(frozen=True)
class Chosen:
    """The items that a loss compares, P and N, best first; the masks are False where a group has fewer."""

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
    Returns float32 [groups]. A group that is smaller than P, N or `places` asks for takes part with what it has.
    What is drawn is drawn anew at each call, by the global generator: tf.random.set_seed makes it reproducible.
    """
    return RANK_DISTIL_LOSSES[config.loss](choose(teacher_scores, scores, mask, config), config)


def choose(teacher_scores: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, config: RankDistilConfig) -> Chosen:
    """P and N of each group; arguments as for `rank_distil_loss`. No gradient flows through the choice itself."""
    items = tf.maximum(tf.shape(mask)[1], config.top + config.mined)  # so many that both can be taken
    padding = [[0, 0], [0, items - tf.shape(mask)[1]]]
    teacher, student = (tf.pad(tf.where(mask, tf.cast(s, tf.float32), 0.0), padding) for s in (teacher_scores, scores))
    teacher, mask = tf.stop_gradient(teacher), tf.pad(mask, padding)

    top, in_top = _largest(teacher, mask, config.top)
    is_top = tf.reduce_any(tf.one_hot(top, items, on_value=True, off_value=False), axis=1)
    is_rest = tf.logical_and(mask, tf.logical_not(is_top))
    # the largest of logits + Gumbel noise are draws by softmax, one after another
    likelihood = gumbel(tf.shape(mask)) + (teacher if config.sampling == "softmax" else 0.0)
    drawn, is_drawn = _largest(likelihood, is_rest, tf.minimum(config.sampled, items))
    candidates = tf.gather(student, drawn, batch_dims=1)
    hardest, in_rest = _largest(candidates, is_drawn, config.mined)
    return Chosen(
        teacher=tf.gather(teacher, top, batch_dims=1),
        top=tf.gather(student, top, batch_dims=1),
        in_top=in_top,
        rest=tf.gather(candidates, hardest, batch_dims=1),
        in_rest=in_rest,
    )


def _largest(values: tf.Tensor, eligible: tf.Tensor, count: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Where the largest eligible values are: int32 [groups, count], and bool: False behind a group's last one."""
    _, index = tf.math.top_k(tf.where(eligible, values, -float("inf")), count)
    return index, tf.gather(eligible, index, batch_dims=1)


# --- the parts: what the student learns of P, and how N is kept below

Part = Callable[[Chosen, RankDistilConfig], tf.Tensor]
Penalty = Callable[[tf.Tensor, float], tf.Tensor]  # of (how far something is above where it should be below, margin)


def _logistic(above: tf.Tensor, margin: float) -> tf.Tensor:
    return tf.nn.softplus(above)


def _hinge(above: tf.Tensor, margin: float) -> tf.Tensor:
    return tf.nn.relu(margin + above)


def _squared_hinge(above: tf.Tensor, margin: float) -> tf.Tensor:
    return tf.square(tf.nn.relu(margin + above))


def _teachers_probabilities(chosen: Chosen, config: RankDistilConfig) -> tf.Tensor:
    """Sigmoid cross-entropy of P's items."""
    targets = tf.sigmoid(chosen.teacher)
    return _sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=chosen.top), chosen.in_top)


def _teachers_softmax(chosen: Chosen, config: RankDistilConfig) -> tf.Tensor:
    """Softmax cross-entropy within P: that of the order's first place."""
    return cross_entropy(chosen.teacher, chosen.top, chosen.in_top, places=1)


def _teachers_scores(chosen: Chosen, config: RankDistilConfig) -> tf.Tensor:
    """Squared error of P's logits."""
    return _sum(tf.square(chosen.teacher - chosen.top), chosen.in_top)


def _teachers_order(penalty: Penalty) -> Part:
    """Each pair within P, the worse item's lead; a tie of the teacher's costs nothing.

    The paper sums over ordered pairs i != j and both signs z, which meets every pair twice.
    """

    def part(chosen: Chosen, config: RankDistilConfig) -> tf.Tensor:
        first_is_better = chosen.teacher[:, :, tf.newaxis] > chosen.teacher[:, tf.newaxis]
        pairs = tf.logical_and(chosen.in_top[:, :, tf.newaxis], chosen.in_top[:, tf.newaxis])
        leads = chosen.top[:, tf.newaxis] - chosen.top[:, :, tf.newaxis]
        return 2.0 * _sum(penalty(leads, config.margin), tf.logical_and(pairs, first_is_better))

    return part


def _rest_low(penalty: Penalty) -> Part:
    """Each item of N, its logit: below 0, and with a margin below minus that."""

    def part(chosen: Chosen, config: RankDistilConfig) -> tf.Tensor:
        return _sum(penalty(chosen.rest, config.margin), chosen.in_rest)

    return part


def _rest_below_top(penalty: Penalty) -> Part:
    """Each item of N against each of P, its lead."""

    def part(chosen: Chosen, config: RankDistilConfig) -> tf.Tensor:
        leads = chosen.rest[:, :, tf.newaxis] - chosen.top[:, tf.newaxis]
        return _sum(penalty(leads, config.margin), chosen.in_rest[:, :, tf.newaxis])  # where there is a rest, P is full

    return part


def _both(of_top: Part, of_rest: Part) -> Part:
    return lambda chosen, config: of_top(chosen, config) + of_rest(chosen, config)


def _coupled(chosen: Chosen, config: RankDistilConfig) -> tf.Tensor:
    """Cross-entropy of r-Plackett models over P and N, where the teacher gives N's items minus the threshold."""
    teacher, student, mask = config.teacher_scale * chosen.teacher, chosen.top, chosen.in_top
    if math.isinf(config.threshold):
        unranked = log_sum(chosen.rest, chosen.in_rest)
    else:
        unranked = NOTHING
        teacher = tf.concat([teacher, tf.fill(tf.shape(chosen.rest), -config.threshold)], axis=1)
        student, mask = tf.concat([student, chosen.rest], axis=1), tf.concat([mask, chosen.in_rest], axis=1)
    if config.permutations:
        return sampled_cross_entropy(teacher, student, mask, config.places, config.permutations, unranked)
    return cross_entropy(teacher, student, mask, config.places, unranked)


def _sum(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """[groups, ...] -> [groups], over what is not masked; the mask has as many axes."""
    return tf.reduce_sum(tf.where(mask, values, 0.0), axis=range(1, len(mask.shape)))


RANK_DISTIL_LOSSES: dict[str, Part] = {
    "binary_sigmoid_logistic": _both(_teachers_probabilities, _rest_low(_logistic)),
    "binary_softmax_logistic": _both(_teachers_softmax, _rest_low(_logistic)),
    "binary_regression_hinge": _both(_teachers_scores, _rest_low(_squared_hinge)),
    "pairwise_softmax_hinge": _both(_teachers_softmax, _rest_below_top(_hinge)),
    "pairwise_hinge_hinge": _both(_teachers_order(_hinge), _rest_below_top(_hinge)),
    "pairwise_logistic_logistic": _both(_teachers_order(_logistic), _rest_below_top(_logistic)),
    "coupled": _coupled,
}
