"""How query and title share words, exactly and by learned similarity: what a small model needs to learn reliably."""

import tensorflow as tf

from trainer.encoders import SPECIAL_PIECES

KERNELS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1)  # similarities at which the soft matches are counted
KERNEL_WIDTH = 0.1
EXACT_WIDTH = 0.01  # of the first kernel, which counts (nearly) equal pieces
FAINTEST = 1e-6


class LexicalFeatures(tf.keras.layers.Layer):
    """Shares of matched tokens, plain and idf-weighted, and kernel-pooled similarities of piece embeddings.

    Source of the kernels: Xiong et al. 2017, End-to-End Neural Ad-hoc Ranking with Kernel Pooling, eq. 4 to 6.
    """

    def __init__(self, vocabulary_size: int, width: int) -> None:
        super().__init__(name="lexical")
        self.idf = self.add_weight("idf", [vocabulary_size], initializer="ones", trainable=False)
        self.pieces = self.add_weight("pieces", [vocabulary_size, width], initializer="random_normal")

    def call(self, context_tokens: tf.Tensor, item_tokens: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """context_tokens: int32 [pairs, c]; item_tokens: int32 [pairs, t].

        Returns the features float32 [pairs, 4 + kernels], and which tokens occur on the other side, float32
        [pairs, c] and [pairs, t].
        """
        words = [tokens >= SPECIAL_PIECES for tokens in (context_tokens, item_tokens)]
        both = tf.logical_and(words[0][:, :, tf.newaxis], words[1][:, tf.newaxis, :])
        equal = tf.logical_and(tf.equal(context_tokens[:, :, tf.newaxis], item_tokens[:, tf.newaxis, :]), both)
        matched = [tf.cast(tf.reduce_any(equal, axis=axis), tf.float32) for axis in (2, 1)]
        shares = []
        for tokens, found, real in zip((context_tokens, item_tokens), matched, words, strict=True):
            plain = tf.cast(real, tf.float32)
            for weight in (plain, plain * tf.gather(self.idf, tokens)):
                shares.append(
                    tf.math.divide_no_nan(tf.reduce_sum(found * weight, axis=1), tf.reduce_sum(weight, axis=1))
                )
        soft = self._kernels(context_tokens, item_tokens, tf.cast(both, tf.float32), tf.cast(words[0], tf.float32))
        return tf.concat([tf.stack(shares, axis=1), soft], axis=1), matched[0], matched[1]

    def _kernels(
        self, context_tokens: tf.Tensor, item_tokens: tf.Tensor, both: tf.Tensor, real: tf.Tensor
    ) -> tf.Tensor:
        """For each kernel, the idf-weighted mean over query tokens of log(soft count of similar title tokens)."""
        normal = tf.math.l2_normalize(self.pieces, axis=1)
        similar = tf.matmul(tf.gather(normal, context_tokens), tf.gather(normal, item_tokens), transpose_b=True)
        weight = real * tf.gather(self.idf, context_tokens)
        weight = tf.math.divide_no_nan(weight, tf.reduce_sum(weight, axis=1, keepdims=True))
        pooled = []
        for mean in KERNELS:
            spread = EXACT_WIDTH if mean == 1.0 else KERNEL_WIDTH
            counts = tf.reduce_sum(tf.exp(-tf.square(similar - mean) / (2 * spread**2)) * both, axis=2)
            pooled.append(tf.reduce_sum(tf.math.log(tf.maximum(counts, FAINTEST)) * weight * 0.1, axis=1))
        return tf.stack(pooled, axis=1)
