"""How query and title share words, exactly and by learned similarity: what a small model needs to learn reliably."""

import tensorflow as tf

SPECIAL_PIECES = 4  # [PAD] [UNK] [CLS] [SEP]: the ids below it match nothing
KERNELS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1)  # similarities at which soft matches are counted
KERNEL_WIDTH = 0.1
EXACT_WIDTH = 0.01  # of the first kernel, which counts (nearly) equal pieces
FAINTEST = 1e-6  # a soft count below it is taken for it, so that its logarithm is finite


class Matches:
    """Which tokens occur on both sides of a batch's pairs.

    context_tokens: int32 [pairs, c]; item_tokens: int32 [pairs, t]; idf: float32 [vocabulary].
    context, item: float32 [pairs, c] and [pairs, t], 1 where a token occurs on the other side.
    """

    def __init__(self, context_tokens: tf.Tensor, item_tokens: tf.Tensor, idf: tf.Tensor) -> None:
        self._words = [tf.cast(tokens >= SPECIAL_PIECES, tf.float32) for tokens in (context_tokens, item_tokens)]
        self._idf = [
            tf.gather(idf, tokens) * word
            for tokens, word in zip((context_tokens, item_tokens), self._words, strict=True)
        ]
        self.both = self._words[0][:, :, tf.newaxis] * self._words[1][:, tf.newaxis, :]
        equal = (
            tf.cast(tf.equal(context_tokens[:, :, tf.newaxis], item_tokens[:, tf.newaxis, :]), tf.float32) * self.both
        )
        self.context, self.item = tf.reduce_max(equal, axis=2), tf.reduce_max(equal, axis=1)

    def shares(self) -> tf.Tensor:
        """The share of each side's tokens that the other has, plain and idf-weighted: float32 [pairs, 4]."""
        shares = []
        for matched, word, idf in zip((self.context, self.item), self._words, self._idf, strict=True):
            for weight in (word, idf):
                found = tf.reduce_sum(matched * weight, axis=1)
                shares.append(tf.math.divide_no_nan(found, tf.reduce_sum(weight, axis=1)))
        return tf.stack(shares, axis=1)

    def soft(self, context_states: tf.Tensor, item_states: tf.Tensor) -> tf.Tensor:
        """Kernel-pooled similarities of the two sides' token states: float32 [pairs, kernels].

        context_states: [pairs, c, width]; item_states: [pairs, t, width].
        For each kernel, the idf-weighted mean over query tokens of log(soft count of similar title tokens).
        Source: Xiong et al. 2017 (kernel pooling), eq. 4 to 6; on transformer states as in Hofstaetter et al. 2020.
        """
        sides = [tf.math.l2_normalize(tf.cast(states, tf.float32), axis=2) for states in (context_states, item_states)]
        similar = tf.matmul(*sides, transpose_b=True)
        weight = tf.math.divide_no_nan(self._idf[0], tf.reduce_sum(self._idf[0], axis=1, keepdims=True))
        pooled = []
        for mean in KERNELS:
            spread = EXACT_WIDTH if mean == KERNELS[0] else KERNEL_WIDTH
            counts = tf.reduce_sum(tf.exp(-tf.square(similar - mean) / (2 * spread**2)) * self.both, axis=2)
            pooled.append(tf.reduce_sum(tf.math.log(tf.maximum(counts, FAINTEST)) * weight * 0.1, axis=1))
        return tf.stack(pooled, axis=1)
