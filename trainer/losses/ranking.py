"""Ranking losses under one signature: loss(labels, scores, mask) -> float32 [groups], one value a query group.

A loss does not depend on a group's padding or, except for equal scores in lambda_rank, on the order of its items; it
is 0 for a group of padding. TF-Ranking 0.5.5 has most of these losses, and the tests compare ours with it; but in it
padding changes softmax, ListMLE and the lambda weights, and labels around 1e-6 make its ApproxNDCG 2% wrong.
"""

from collections.abc import Callable
from math import log

import tensorflow as tf

from trainer.losses.plackett import gumbel

Loss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]

RANK_TEMPERATURE = 0.1  # in logits; ApproxNDCG's ranks are sharp for scores that differ by more
_LN2 = log(2.0)


def rank_bce(labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Sigmoid cross-entropy, summed over the items of each query group: sum_i CE(sigma(s_i), y_i).

    labels: float32 [groups, items], probabilities in [0, 1]; soft labels welcome. Beyond 1 the loss has no minimum.
    scores: float32 [groups, items], logits.
    mask:   bool    [groups, items], False on padding, which contributes nothing.
    Returns float32 [groups].
    Source: Yang et al. 2022, A.2 (RankBCE).
    """
    labels, scores = _real(labels, mask), _real(scores, mask)
    item_losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=scores)
    return tf.reduce_sum(_real(item_losses, mask), axis=1)


def mse(labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Squared error, summed over the items of each query group: sum_i (s_i - y_i)^2.

    labels: float32 [groups, items], on the scale of the scores. scores: float32 [groups, items].
    mask: bool [groups, items], False on padding. Returns float32 [groups].
    Source: Qin et al. (SDR), eq. 12.
    """
    return tf.reduce_sum(tf.square(_real(scores, mask) - _real(labels, mask)), axis=1)


def rank_net(labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Cross-entropy of each ordered pair of items: sum_{i != j} CE(sigma(s_i - s_j), (y_i - y_j + 1) / 2).

    A pair with equal labels also counts, and pulls its scores together.

    labels: float32 [groups, items], probabilities in [0, 1]; soft labels welcome. Beyond 1 the loss has no minimum.
    scores: float32 [groups, items], logits. mask: bool [groups, items], False on padding. Returns float32 [groups].
    Source: Yang et al. 2022, A.2 (RankNet).
    """
    labels, scores = _real(labels, mask), _real(scores, mask)
    targets = (_differences(labels) + 1.0) / 2.0
    pair_losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=_differences(scores))
    of_two_items = tf.linalg.set_diag(_pairs(mask), tf.zeros_like(mask))
    return tf.reduce_sum(tf.where(of_two_items, pair_losses, 0.0), axis=[1, 2])


def lambda_rank(labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Pairwise logistic loss, weighted by the change in NDCG if the two items were swapped.

    sum over pairs with y_i > y_j of |dNDCG_ij| log(1 + exp(s_j - s_i)), where
    |dNDCG_ij| = (2^y_i - 2^y_j) |1 / log2(1 + r_i) - 1 / log2(1 + r_j)| / ideal DCG.
    r_i is the rank by score, without gradient. Equal scores rank in item order, which is uninformative (a shared rank
    would leave a tied pair without gradient).

    labels: float32 [groups, items], not negative: graded, binary or soft. scores: float32 [groups, items].
    mask: bool [groups, items], False on padding. Returns float32 [groups]; 0 where all labels are equal.
    Source: Burges 2010 (LambdaRank). TF-Ranking multiplies it by the padded size of the group.
    """
    labels, scores = _real(labels, mask), _real(scores, mask)
    by_score = tf.argsort(tf.where(mask, scores, scores.dtype.min), axis=1, direction="DESCENDING", stable=True)
    ranks = tf.argsort(by_score, axis=1) + 1
    weights = tf.nn.relu(_differences(_gains(labels))) * tf.abs(_differences(_discounts(ranks)))
    pair_losses = weights * tf.math.softplus(-_differences(scores))
    return tf.reduce_sum(tf.where(_pairs(mask), pair_losses, 0.0), axis=[1, 2])


def softmax(labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Listwise softmax cross-entropy: -sum_i y_i log(exp(s_i) / sum_j exp(s_j)).

    Labels are not normalised: a group's weight is the sum of its labels, 0 without a positive label.

    labels: float32 [groups, items], not negative. scores: float32 [groups, items].
    mask: bool [groups, items], False on padding. Returns float32 [groups].
    Source: Qin et al. (SDR), eq. 5; Cao et al. 2007 (ListNet).
    """
    labels, scores = _real(labels, mask), _real(scores, mask)
    # not TensorFlow's fused cross-entropy: its gradient is right only where labels sum to 1
    log_shares = tf.nn.log_softmax(tf.where(mask, scores, scores.dtype.min))
    return -tf.reduce_sum(labels * log_shares, axis=1)


def list_mle(labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Negative log-likelihood of the labels' order: sum_i [log(sum of exp(s_j) over y_j <= y_i) - s_i].

    Each item competes with all items whose label is not higher. Without equal labels this is ListMLE's Plackett-Luce
    likelihood. Items with equal labels compete with each other (Breslow's rule), so that no order among them is
    assumed and their scores are pulled together.

    labels: float32 [groups, items]; only their order counts. scores: float32 [groups, items].
    mask: bool [groups, items], False on padding. Returns float32 [groups].
    Source: Xia et al. 2008 (ListMLE); Breslow 1974 for ties, which TF-Ranking shuffles.
    """
    labels, scores = _real(labels, mask), _real(scores, mask)
    not_above = tf.logical_and(_pairs(mask), _differences(labels) >= 0.0)  # [i, j]: item i's label is at least j's
    competition = tf.where(not_above, scores[:, tf.newaxis, :], scores.dtype.min)
    return tf.reduce_sum(_real(tf.reduce_logsumexp(competition, axis=2) - scores, mask), axis=1)


def approx_ndcg(labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """-NDCG with smooth ranks: -sum_i (2^y_i - 1) / log2(1 + r_i) / ideal DCG.

    r_i = 1 + sum_{j != i} sigma((s_j - s_i) / RANK_TEMPERATURE).

    labels: float32 [groups, items], not negative: graded, binary or soft. scores: float32 [groups, items].
    mask: bool [groups, items], False on padding. Returns float32 [groups], in [-1, 0]; 0 without a positive label.
    Source: Qin et al. 2010; Bruch et al. 2019. The temperature is TF-Ranking's.
    """
    labels, scores = _real(labels, mask), _real(scores, mask)
    ahead = tf.sigmoid(_differences(scores) / -RANK_TEMPERATURE)  # [i, j]: soft indicator that j ranks before i
    ranks = 0.5 + tf.reduce_sum(tf.where(mask[:, tf.newaxis, :], ahead, 0.0), axis=2)  # the sum counts i itself as 1/2
    return -tf.reduce_sum(_gains(labels) * _discounts(ranks), axis=1)


def gumbel_approx_ndcg(labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """ApproxNDCG of scores with Gumbel(0, 1) noise: orders are drawn from the scores' Plackett-Luce model.

    One sample for each group and call: its gradient is an unbiased estimate of the expected loss's (TF-Ranking averages
    eight samples, which takes eight times the memory). `tf.random.set_seed` makes the samples reproducible.

    labels: float32 [groups, items], not negative: graded, binary or soft. scores: float32 [groups, items].
    mask: bool [groups, items], False on padding. Returns float32 [groups], in [-1, 0]; 0 without a positive label.
    Source: Bruch et al. 2020.
    """
    return approx_ndcg(labels, tf.cast(scores, tf.float32) + gumbel(tf.shape(scores)), mask)


LOSSES: dict[str, Loss] = {
    "rank_bce": rank_bce,
    "mse": mse,
    "rank_net": rank_net,
    "lambda_rank": lambda_rank,
    "softmax": softmax,
    "list_mle": list_mle,
    "approx_ndcg": approx_ndcg,
    "gumbel_approx_ndcg": gumbel_approx_ndcg,
}


def _real(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """float32 [groups, items]; 0 on padding, which may hold any value, even NaN."""
    return tf.where(mask, tf.cast(values, tf.float32), 0.0)


def _pairs(mask: tf.Tensor) -> tf.Tensor:
    """bool [groups, items, items]: whether both items are real; includes an item with itself."""
    return tf.logical_and(mask[:, :, tf.newaxis], mask[:, tf.newaxis, :])


def _differences(values: tf.Tensor) -> tf.Tensor:
    """[groups, items] -> [groups, items, items]: [i, j] is item i's value minus item j's."""
    return values[:, :, tf.newaxis] - values[:, tf.newaxis, :]


def _gains(labels: tf.Tensor) -> tf.Tensor:
    """(2^y - 1) / ideal DCG, [groups, items]; 0 without a positive label."""
    best = tf.reduce_max(labels, axis=1, keepdims=True)
    # (2^y - 1) / 2^best: no overflow for large labels, no loss of precision for small ones
    gains = -tf.math.expm1(-_LN2 * labels) * tf.exp(_LN2 * (labels - best))
    ranks = tf.cumsum(tf.ones_like(gains), axis=1)
    ideal = tf.sort(gains, axis=1, direction="DESCENDING") * _discounts(ranks)
    return tf.math.divide_no_nan(gains, tf.reduce_sum(ideal, axis=1, keepdims=True))


def _discounts(ranks: tf.Tensor) -> tf.Tensor:
    """1 / log2(1 + rank), ranks from 1."""
    return _LN2 / tf.math.log1p(tf.cast(ranks, tf.float32))
