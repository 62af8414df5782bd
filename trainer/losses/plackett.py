"""The r-Plackett model of permutations: r places are filled one by one, each by the softmax over what remains.

An order pi of a set S has the probability prod_{j <= r} exp(s_pi(j)) / sum_{l >= j} exp(s_pi(l)) / (|S| - r)!: what
comes behind the r places is in no particular order. Source: Reddi et al. 2021 (RankDistil), definition 4.
"""

import itertools
from functools import lru_cache

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

NOTHING = -1e30  # log of a weight that is none; finite, so that a set of nothing gives no NaN


def cross_entropy(
    teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor, places: int, unranked: tf.Tensor | float = NOTHING
) -> tf.Tensor:
    """-sum over permutations of P_teacher * log P_student, exactly, without its constant log((|S| - r)!).

    By the chain rule: the softmax cross-entropy of each place, for each way in which the places before it may be
    filled, weighed with the teacher's probability of that way. O(n^r) for n items; and nothing is subtracted from a
    sum of exponentials, so that no score, however large, drowns the others.

    teacher, student: float32 [groups, n], n static: logits of the items that may come to a place.
    mask:     bool    [groups, n], False where a group has no such item.
    places:   r, at most n; a group of fewer items ranks those that it has.
    unranked: float32 [groups], log_sum of the student's logits over the set's other items, if there are any: those
              that the teacher puts behind the r places for certain.
    Returns float32 [groups]; 0 for a group without items.
    """
    groups, items, real = tf.shape(mask)[0], mask.shape[1], tf.transpose(mask)
    teacher, student = (tf.where(real, tf.transpose(logits), NOTHING) for logits in (teacher, student))
    unranked = tf.broadcast_to(unranked, [groups])
    reached, total = tf.ones([1, groups]), tf.zeros([groups])
    for remaining in _remaining(items, places):
        # [ways, left, groups]: with the groups last, what is gathered lies in one piece
        of_teacher, of_student, are_real = (tf.gather(values, remaining) for values in (teacher, student, real))
        chance = tf.exp(of_teacher - tf.reduce_logsumexp(of_teacher, axis=1, keepdims=True))
        chance *= tf.cast(are_real, tf.float32)  # all 0 once the group's items are used up
        behind = tf.broadcast_to(unranked, [len(remaining), 1, groups])
        log_sums = tf.reduce_logsumexp(tf.concat([of_student, behind], axis=1), axis=1, keepdims=True)
        total -= tf.reduce_sum(reached * tf.reduce_sum(chance * (of_student - log_sums), axis=1), axis=0)
        reached = tf.reshape(reached[:, tf.newaxis] * chance, [remaining.size, groups])
    return total


def sampled_cross_entropy(
    teacher: tf.Tensor,
    student: tf.Tensor,
    mask: tf.Tensor,
    places: int,
    permutations: int,
    unranked: tf.Tensor | float = NOTHING,
) -> tf.Tensor:
    """`cross_entropy`, estimated without bias: the mean of -log P_student over permutations that the teacher draws.

    permutations: how many are drawn for each group, anew at each call.
    The rest, shapes included, is `cross_entropy`'s. Source: Reddi et al. 2021, algorithm 2.
    """
    teacher, student = (tf.where(mask, logits, NOTHING) for logits in (teacher, student))
    groups, items = tf.unstack(tf.shape(mask))
    # sorted by logit + Gumbel noise, items come in the order of successive draws by softmax
    order = tf.argsort(teacher[:, tf.newaxis] + gumbel([groups, permutations, items]), direction="DESCENDING")
    scores, real = (tf.gather(values, order, batch_dims=1) for values in (student, mask))
    unranked = tf.broadcast_to(unranked, [groups])
    behind = tf.broadcast_to(unranked[:, tf.newaxis, tf.newaxis], [groups, permutations, 1])
    remaining = tf.math.cumulative_logsumexp(tf.concat([scores, behind], axis=2), axis=2, reverse=True)
    log_chance = tf.where(real, scores - remaining[..., :-1], 0.0)[..., :places]
    return -tf.reduce_mean(tf.reduce_sum(log_chance, axis=2), axis=1)


def log_sum(logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """log of the sum of exp(logits) over a group's real items: float32 [groups]; near NOTHING without any."""
    return tf.reduce_logsumexp(tf.where(mask, logits, NOTHING), axis=1)


def gumbel(shape: tf.Tensor) -> tf.Tensor:
    """Independent standard Gumbel noise, by the global generator: tf.random.set_seed makes it reproducible."""
    return -tf.math.log(-tf.math.log(tf.random.uniform(shape, minval=np.finfo(np.float32).tiny)))


@lru_cache
def _remaining(items: int, places: int) -> tuple[NDArray[np.int32], ...]:
    """For each place, the items that remain after each way of filling the places before it: int32 [ways, left].

    Ways are in lexicographic order: way w, followed by its i-th remaining item, is way w * left + i of the next place.
    """
    remaining = []
    for left in range(items, items - places, -1):
        tuples = np.array(list(itertools.permutations(range(items), items - left + 1)), np.int32)
        remaining.append(tuples[:, -1].reshape(-1, left))
    return tuple(remaining)
