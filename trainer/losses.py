"""Ranking losses under one signature: loss(labels, scores, mask) -> float32 [groups], one value a query group."""

from collections.abc import Callable

import tensorflow as tf

Loss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def rank_bce(labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Sigmoid cross-entropy, summed over the items of each query group.

    labels: float32 [groups, items], probabilities in [0, 1]; soft labels welcome.
    scores: float32 [groups, items], logits.
    mask:   bool    [groups, items], False on padding, which contributes nothing.
    Returns float32 [groups].
    Source: Yang et al. 2022, A.2 (RankBCE).
    """
    scores = tf.where(mask, tf.cast(scores, tf.float32), 0.0)
    labels = tf.where(mask, tf.cast(labels, tf.float32), 0.0)
    an_item = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=scores)
    return tf.reduce_sum(tf.where(mask, an_item, 0.0), axis=1)


LOSSES: dict[str, Loss] = {"rank_bce": rank_bce}
