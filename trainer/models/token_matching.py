"""Token matches between query and title, exact and by learned similarity: inputs that help a small model."""

import numpy as np
import tensorflow as tf

_SPECIAL_PIECES = 4  # [PAD] [UNK] [CLS] [SEP]: ids below this never match
KERNEL_CENTRES = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1)  # similarities at the kernels' centres
_KERNEL_WIDTHS = (0.01, 0.1, 0.1, 0.1, 0.1, 0.1)  # standard deviations; the first kernel counts (nearly) equal pieces
_OUT_OF_KERNEL_RANGE = 100.0  # added to a similarity to exclude it from all kernels
_MIN_SOFT_COUNT = 1e-6  # lower bound of a soft count, so that its logarithm is finite


class TokenMatching:
    """Exact and soft token matches of a batch's pairs.

    context_tokens: int32 [groups, c]; item_tokens: int32 [groups, items, t]; idf: float32 [vocabulary].
    context, item: float32 [groups, items, c] and [groups, items, t], 1 where a token occurs on the other side.
    """

    def __init__(self, context_tokens: tf.Tensor, item_tokens: tf.Tensor, idf: tf.Tensor) -> None:
        # no newaxis and no logical operations on token pairs: both are slow in LiteRT
        context, item = tf.expand_dims(context_tokens, 1), item_tokens
        self._is_word = [tf.cast(tokens >= _SPECIAL_PIECES, tf.float32) for tokens in (context, item)]
        self._idf = [tf.gather(idf, tokens) * word for tokens, word in zip((context, item), self._is_word, strict=True)]
        equal = tf.cast(tf.equal(tf.expand_dims(context, 3), tf.expand_dims(item, 2)), tf.float32)
        # special pieces are equal to each other but do not match
        self.context, self.item = (
            tf.reduce_max(equal, axis) * word for axis, word in zip((3, 2), self._is_word, strict=True)
        )

    def shares(self) -> tf.Tensor:
        """Share of a side's tokens that occur on the other, plain and idf-weighted: float32 [groups, items, 4]."""
        shares = []
        for matched, word, idf in zip((self.context, self.item), self._is_word, self._idf, strict=True):
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
        return self._kernel_pooled(self._cosines(context_states, item_states))

    def similarities(self, context_states: tf.Tensor, item_states: tf.Tensor) -> tf.Tensor:
        """How well the tokens of one side are found on the other: float32 [groups, items, 4].

        Each query token has its most similar title token. The four: their mean, their idf-weighted mean, the weakest
        of them, and, the other way, the idf-weighted mean of each title token's most similar query token.
        Source: Khattab and Zaharia 2020 (ColBERT), eq. 3, as a mean.
        """
        similar = self._cosines(context_states, item_states)
        far = 2 * _OUT_OF_KERNEL_RANGE
        of_words = similar - far * (1.0 - tf.expand_dims(self._is_word[1], 2))
        best = tf.maximum(tf.reduce_max(of_words, axis=3), -1.0)  # -1 where a title has no word
        weakest = tf.reduce_min(best + far * (1.0 - self._is_word[0]), axis=2)
        back = tf.reduce_max(of_words - far * (1.0 - tf.expand_dims(self._is_word[0], 3)), axis=2)
        return tf.stack(
            [
                _weighted_mean(best, self._is_word[0]),
                _weighted_mean(best, self._idf[0]),
                tf.minimum(weakest, 1.0),  # 1 where a query has no word
                _weighted_mean(tf.maximum(back, -1.0), self._idf[1]),
            ],
            axis=2,
        )

    def _cosines(self, context_states: tf.Tensor, item_states: tf.Tensor) -> tf.Tensor:
        """Cosines of each query token and each title token: float32 [groups, items, c, t].

        _OUT_OF_KERNEL_RANGE is added where the title token is no word.
        """
        (groups, items, t), c = tf.unstack(tf.shape(self.item)), tf.shape(self.context)[2]
        context, item = (tf.cast(states, tf.float32) for states in (context_states, item_states))
        context = tf.math.l2_normalize(context, axis=2)
        # one product for each group; dividing the similarities by the items' norms is cheaper than dividing the states
        similar = tf.matmul(context, tf.reshape(item, [groups, items * t, item.shape[2]]), transpose_b=True)
        lengths = tf.math.rsqrt(tf.reduce_sum(tf.square(item), axis=2) + 1e-12)
        similar = tf.transpose(tf.reshape(similar, [groups, c, items, t]), [0, 2, 1, 3])
        similar *= tf.reshape(lengths, [groups, items, 1, t])
        # special query pieces have idf weight 0
        return similar + _OUT_OF_KERNEL_RANGE * (1.0 - tf.expand_dims(self._is_word[1], 2))

    def _kernel_pooled(self, similar: tf.Tensor) -> tf.Tensor:
        counts = tf.reduce_sum(
            tf.exp(-tf.square((similar - _along_kernels(KERNEL_CENTRES)) / _along_kernels(_KERNEL_WIDTHS)) / 2), 4
        )
        weight = _share(self._idf[0], tf.reduce_sum(self._idf[0], axis=2, keepdims=True))
        pooled = tf.reduce_sum(tf.math.log(tf.maximum(counts, _MIN_SOFT_COUNT)) * weight * 0.1, axis=3)
        return tf.transpose(pooled, [1, 2, 0])


def _weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """The mean over the last axis; 0 where all weights are."""
    return tf.reduce_sum(values * _share(weights, tf.reduce_sum(weights, axis=2, keepdims=True)), axis=2)


def _share(part: tf.Tensor, whole: tf.Tensor) -> tf.Tensor:
    """part / whole, both non-negative; 0 / 0 is 0. LiteRT runs divide_no_nan as three operations, one of them slow."""
    return part / tf.maximum(whole, np.finfo(np.float32).tiny)


def _along_kernels(values: tuple[float, ...]) -> tf.Tensor:
    return tf.reshape(tf.constant(values), [-1, 1, 1, 1, 1])
