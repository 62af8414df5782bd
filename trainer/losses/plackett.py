"""The r-Plackett model of permutations: r positions are filled in turn, each by the softmax over the remaining items.

A permutation pi of a set S has the probability prod_{j <= r} exp(s_pi(j)) / sum_{l >= j} exp(s_pi(l)) / (|S| - r)!: all
orders of the items after position r are equally likely. Source: Reddi et al. 2021 (RankDistil), definition 4.
"""

import itertools
from functools import lru_cache

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

LOG_ZERO = -1e30  # stands for log(0); finite, so that an empty set gives no NaN


def cross_entropy(
    teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor, places: int, unranked: tf.Tensor | float = LOG_ZERO
) -> tf.Tensor:
    """-sum over permutations of P_teacher * log P_student, exactly, without its constant log((|S| - r)!).

    Uses the chain rule: the softmax cross-entropy of each position, for each way to fill the earlier positions,
    weighted by the teacher's probability of that way. O(n^r) for n items. It never subtracts from a sum of
    exponentials, so one large score does not cancel the others numerically.

    teacher, student: float32 [groups, n], n static: logits of the items that can fill a position.
    mask:     bool    [groups, n], False on padding.
    places:   r, at most n; a group with fewer items ranks all of them.
    unranked: float32 [groups], log_sum of the student's logits over the set's other items: those that the teacher
              ranks after position r with certainty.
    Returns float32 [groups]; 0 for a group without items.
    """
    groups, items, real = tf.shape(mask)[0], mask.shape[1], tf.transpose(mask)
    teacher, student = (tf.where(real, tf.transpose(logits), LOG_ZERO) for logits in (teacher, student))
    unranked = tf.broadcast_to(unranked, [groups])
    path_probability, total = tf.ones([1, groups]), tf.zeros([groups])
    for remaining in _remaining_items(items, places):
        # [ways, left, groups]: with the groups last, each gathered slice is contiguous in memory
        of_teacher, of_student, are_real = (tf.gather(values, remaining) for values in (teacher, student, real))
        probability = tf.exp(of_teacher - tf.reduce_logsumexp(of_teacher, axis=1, keepdims=True))
        probability *= tf.cast(are_real, tf.float32)  # all 0 when the group has no item left
        unranked_logits = tf.broadcast_to(unranked, [len(remaining), 1, groups])
        log_sums = tf.reduce_logsumexp(tf.concat([of_student, unranked_logits], axis=1), axis=1, keepdims=True)
        total -= tf.reduce_sum(path_probability * tf.reduce_sum(probability * (of_student - log_sums), axis=1), axis=0)
        path_probability = tf.reshape(path_probability[:, tf.newaxis] * probability, [remaining.size, groups])
    return total


def sampled_cross_entropy(
    teacher: tf.Tensor,
    student: tf.Tensor,
    mask: tf.Tensor,
    places: int,
    permutations: int,
    unranked: tf.Tensor | float = LOG_ZERO,
) -> tf.Tensor:
    """Unbiased estimate of `cross_entropy`: mean -log P_student over permutations sampled from the teacher.

    permutations: number of samples for each group, drawn again at each call.
    All other arguments and shapes are as in `cross_entropy`. Source: Reddi et al. 2021, algorithm 2.
    """
    teacher, student = (tf.where(mask, logits, LOG_ZERO) for logits in (teacher, student))
    groups, items = tf.unstack(tf.shape(mask))
    # sorting by logit + Gumbel noise is sampling by softmax without replacement
    order = tf.argsort(teacher[:, tf.newaxis] + gumbel([groups, permutations, items]), direction="DESCENDING")
    scores, real = (tf.gather(values, order, batch_dims=1) for values in (student, mask))
    unranked = tf.broadcast_to(unranked, [groups])
    unranked_logits = tf.broadcast_to(unranked[:, tf.newaxis, tf.newaxis], [groups, permutations, 1])
    remaining = tf.math.cumulative_logsumexp(tf.concat([scores, unranked_logits], axis=2), axis=2, reverse=True)
    log_probability = tf.where(real, scores - remaining[..., :-1], 0.0)[..., :places]
    return -tf.reduce_mean(tf.reduce_sum(log_probability, axis=2), axis=1)


def log_sum(logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """logsumexp of the logits of a group's real items: float32 [groups]; about LOG_ZERO without items."""
    return tf.reduce_logsumexp(tf.where(mask, logits, LOG_ZERO), axis=1)


def gumbel(shape: tf.Tensor) -> tf.Tensor:
    """Independent standard Gumbel noise from the global generator; tf.random.set_seed makes it reproducible."""
    return -tf.math.log(-tf.math.log(tf.random.uniform(shape, minval=np.finfo(np.float32).tiny)))


@lru_cache
def _remaining_items(items: int, places: int) -> tuple[NDArray[np.int32], ...]:
    """For each position, the items that remain after each way to fill the earlier positions: int32 [ways, left].

    Ways are in lexicographic order: way w, then its i-th remaining item, is way w * left + i of the next position.
    """
    remaining = []
    for left in range(items, items - places, -1):
        tuples = np.array(list(itertools.permutations(range(items), items - left + 1)), np.int32)
        remaining.append(tuples[:, -1].reshape(-1, left))
    return tuple(remaining)
