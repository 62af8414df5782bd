"""How query and title share words, exactly and by learned similarity: what a small model needs to learn reliably."""

import numpy as np
import tensorflow as tf

SPECIAL_PIECES = 4  # [PAD] [UNK] [CLS] [SEP]: the ids below it match nothing
KERNELS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1)  # similarities at which soft matches are counted
WIDTHS = (0.01, 0.1, 0.1, 0.1, 0.1, 0.1)  # of the kernels; the first counts (nearly) equal pieces
FAR = 100.0  # added to a similarity, it is one that no kernel counts
FAINTEST = 1e-6  # a soft count below it is taken for it, so that its logarithm is finite


class Matches:
    """Which tokens occur on both sides of a batch's pairs.

    context_tokens: int32 [groups, c]; item_tokens: int32 [groups, items, t]; idf: float32 [vocabulary].
    context, item: float32 [groups, items, c] and [groups, items, t], 1 where a token occurs on the other side.
    """

    def __init__(self, context_tokens: tf.Tensor, item_tokens: tf.Tensor, idf: tf.Tensor) -> None:
        # neither newaxis nor logical operations on all pairs of tokens: LiteRT is slow at them
        context, item = tf.expand_dims(context_tokens, 1), item_tokens
        self._words = [tf.cast(tokens >= SPECIAL_PIECES, tf.float32) for tokens in (context, item)]
        self._idf = [tf.gather(idf, tokens) * word for tokens, word in zip((context, item), self._words, strict=True)]
        equal = tf.cast(tf.equal(tf.expand_dims(context, 3), tf.expand_dims(item, 2)), tf.float32)
        # special pieces equal each other, but no word
        self.context, self.item = (
            tf.reduce_max(equal, axis) * word for axis, word in zip((3, 2), self._words, strict=True)
        )

    def shares(self) -> tf.Tensor:
        """The share of each side's tokens that the other has, plain and idf-weighted: float32 [groups, items, 4]."""
        shares = []
        for matched, word, idf in zip((self.context, self.item), self._words, self._idf, strict=True):
            for weight in (word, idf):
                found = tf.reduce_sum(matched * weight, axis=2)
                shares.append(_share(found, tf.reduce_sum(weight, axis=2)))
        return tf.stack(shares, axis=2)

    def soft(self, context_states: tf.Tensor, item_states: tf.Tensor) -> tf.Tensor:
        """Kernel-pooled similarities of the two sides' token states: float32 [groups, items, kernels].

        context_states: [groups, c, width]; item_states: [groups * items, t, width].
        For each kernel, the idf-weighted mean over query tokens of log(soft count of similar title tokens).
        Source: Xiong et al. 2017 (kernel pooling), eq. 4 to 6; on transformer states as in Hofstaetter et al. 2020.
        """
        (groups, items, t), c = tf.unstack(tf.shape(self.item)), tf.shape(self.context)[2]
        context, item = (tf.cast(states, tf.float32) for states in (context_states, item_states))
        context = tf.math.l2_normalize(context, axis=2)
        # one product a group; the items' lengths divide similarities instead of states, of which there are more
        similar = tf.matmul(context, tf.reshape(item, [groups, items * t, item.shape[2]]), transpose_b=True)
        lengths = tf.math.rsqrt(tf.reduce_sum(tf.square(item), axis=2) + 1e-12)
        similar = tf.transpose(tf.reshape(similar, [groups, c, items, t]), [0, 2, 1, 3])
        similar *= tf.reshape(lengths, [groups, items, 1, t])
        similar += FAR * (1.0 - tf.expand_dims(self._words[1], 2))  # a token that is no query word has no weight anyway
        counts = tf.reduce_sum(tf.exp(-tf.square((similar - _along_kernels(KERNELS)) / _along_kernels(WIDTHS)) / 2), 4)
        weight = _share(self._idf[0], tf.reduce_sum(self._idf[0], axis=2, keepdims=True))
        pooled = tf.reduce_sum(tf.math.log(tf.maximum(counts, FAINTEST)) * weight * 0.1, axis=3)
        return tf.transpose(pooled, [1, 2, 0])


def _share(part: tf.Tensor, whole: tf.Tensor) -> tf.Tensor:
    """part / whole, neither negative; 0 of nothing. To LiteRT divide_no_nan is three operations, one of them slow."""
    return part / tf.maximum(whole, np.finfo(np.float32).tiny)


def _along_kernels(values: tuple[float, ...]) -> tf.Tensor:
    return tf.reshape(tf.constant(values), [-1, 1, 1, 1, 1])
