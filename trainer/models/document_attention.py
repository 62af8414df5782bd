"""Attention among the items of a query group, combined with each item's state (latent cross)."""

import tensorflow as tf
import tensorflow_ranking as tfr

from trainer.architecture import InteractionConfig


class LatentCross(tf.keras.layers.Layer):
    """states * (1 + a projection of the group's document interaction attention): the DASALC form of a ranker.

    Scores then depend on the group's other items, though not on their order.
    Source: Qin et al. 2021 (DASALC), eq. 7 and 8; the attention is TF-Ranking's (Pasumarthi et al. 2020).
    """

    def __init__(self, config: InteractionConfig) -> None:
        super().__init__(name="interaction")
        self.attention = tfr.keras.layers.DocumentInteractionAttention(
            config.heads, config.width, config.layers, config.dropout
        )

    def build(self, shape: tf.TensorShape) -> None:
        # zero initialisation: the untrained layer is the identity
        self.projection = tf.keras.layers.Dense(shape[-1], kernel_initializer="zeros", name="projection")

    def call(self, states: tf.Tensor, inputs: tf.Tensor, mask: tf.Tensor, training: bool = False) -> tf.Tensor:
        """states [groups, items, width], the score head's inputs, mask -> new states of the same shape."""
        attended = self.attention((inputs, mask), training=training)
        return states * (1.0 + self.projection(attended))
