"""Query and item text -> one state a pair: a small transformer over `[CLS] query [SEP] title [SEP]`."""

import tensorflow as tf

from trainer.config import StudentConfig
from trainer.lexical import Matches

START_ID, SEPARATOR_ID = 2, 3
MASKED = -1e9  # added to the attention logits of padding


class TransformerEncoder(tf.keras.layers.Layer):
    """Pre-norm transformer, trained from scratch; padding is masked wherever tokens meet.

    The two sides, [CLS] with the context's tokens and the item's tokens, are padded each on its own, and an item's
    positions count from its own start, so that a pair's state does not depend on the bucket it was padded to. The
    lowest `split_layers` run on each side alone: on the context side once a group, and on an item's side
    independently of the query. The rest see both sides together; the last computes the state of [CLS] alone.
    """

    def __init__(self, config: StudentConfig, vocabulary_size: int, dropout: float) -> None:
        super().__init__(name="encoder")
        self.config = config
        positions = config.max_context_tokens + config.max_item_tokens + 3
        self.pieces = tf.keras.layers.Embedding(vocabulary_size, config.width, _small(), name="pieces")
        self.positions = tf.keras.layers.Embedding(positions, config.width, "zeros", name="positions")
        self.matched = self.add_weight("matched", [config.width], initializer=_small())
        self.blocks = [Block(config, dropout, name=f"block_{index}") for index in range(config.layers)]
        self.norm = RmsNorm(name="norm")
        self.dropout = tf.keras.layers.Dropout(dropout)

    def call(
        self, context_tokens: tf.Tensor, item_tokens: tf.Tensor, matches: Matches, training: bool = False
    ) -> tf.Tensor:
        """The states of a batch's pairs, pair p being group p // items.

        context_tokens: int32 [groups, c]; item_tokens: int32 [groups * items, t]; 0 is padding.
        Returns float32 [groups * items, width + kernels]: the state of [CLS], and the soft matches of the two sides'
        states as they are before they meet.
        """
        items = tf.shape(item_tokens)[0] // tf.shape(context_tokens)[0]
        context, context_bias = self.context_states(context_tokens, training)
        item, item_bias = self.item_states(item_tokens, training)
        context, context_bias = tf.repeat(context, items, axis=0), tf.repeat(context_bias, items, axis=0)
        soft = matches.soft(context[:, 1:], item)
        flags = tf.concat([tf.zeros_like(matches.context[:, :1]), matches.context, matches.item], axis=1)
        states, bias = tf.concat([context, item], axis=1), tf.concat([context_bias, item_bias], axis=1)
        return tf.concat([self.joint_state(states, bias, flags, training), soft], axis=1)

    def context_states(self, tokens: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """int32 [n, c] -> states of [CLS] and the tokens [n, 1 + c, width], and their attention bias [n, 1 + c]."""
        tokens = tf.pad(tokens, [[0, 0], [1, 0]], constant_values=START_ID)
        return self._split(tokens, 0, training)

    def item_states(self, tokens: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """int32 [n, t] -> states [n, t, width], which know nothing of the query, and their attention bias [n, t]."""
        return self._split(tokens, self.config.max_context_tokens + 2, training)

    def joint_state(self, states: tf.Tensor, bias: tf.Tensor, flags: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Both sides' states [n, tokens, width], bias and match flags [n, tokens] -> the state of [CLS] [n, width]."""
        states += tf.cast(flags[..., tf.newaxis], states.dtype) * tf.cast(self.matched, states.dtype)
        joint = self.blocks[self.config.split_layers :]
        for block in joint[:-1]:
            states = block(states, states, bias, training=training)
        return self.norm(joint[-1](states[:, :1], states, bias, training=training)[:, 0])

    def _split(self, tokens: tf.Tensor, first_position: int, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        places = first_position + tf.range(tf.shape(tokens)[1])
        states = self.dropout(self.pieces(tokens) + self.positions(places), training=training)
        bias = tf.where(tokens > 0, 0.0, MASKED)
        for block in self.blocks[: self.config.split_layers]:
            states = block(states, states, bias, training=training)
        return states, bias


class RmsNorm(tf.keras.layers.Layer):
    """Scales each state to a root mean square of 1, then by a learned gain; half the time of layer normalisation.

    Source: Zhang and Sennrich 2019, eq. 4.
    """

    def build(self, shape: tf.TensorShape) -> None:
        self.gain = self.add_weight("gain", [shape[-1]], initializer="ones")

    def call(self, states: tf.Tensor) -> tf.Tensor:
        return states * tf.math.rsqrt(tf.reduce_mean(tf.square(states), axis=-1, keepdims=True) + 1e-6) * self.gain


class Block(tf.keras.layers.Layer):
    """Attention and a two-layer projection, each on normalised input and added to the states.

    Attention is written out: Keras's own layer takes half as long again for it on CPUs, and ReLU a quarter of GELU.
    """

    def __init__(self, config: StudentConfig, dropout: float, name: str) -> None:
        super().__init__(name=name)
        self.heads, self.head_width = config.heads, config.width // config.heads
        self.attention_norm = RmsNorm(name="attention_norm")
        self.queries = tf.keras.layers.Dense(config.width, name="queries")
        self.keys_values = tf.keras.layers.Dense(2 * config.width, name="keys_values")
        self.mixed = tf.keras.layers.Dense(config.width, name="mixed")
        self.inner_norm = RmsNorm(name="inner_norm")
        self.inner = tf.keras.layers.Dense(config.feed_forward, activation="relu", name="inner")
        self.outer = tf.keras.layers.Dense(config.width, name="outer")
        self.dropout = tf.keras.layers.Dropout(dropout)

    def call(self, looking: tf.Tensor, states: tf.Tensor, bias: tf.Tensor, training: bool) -> tf.Tensor:
        """New states of the first tokens of `states`, attending to all of it.

        looking: [n, l, width], the first l of states [n, tokens, width]; bias: [n, tokens], MASKED on padding.
        """
        normal = self.attention_norm(states)
        queries = self._by_head(self.queries(normal[:, : tf.shape(looking)[1]]), 1)
        keys, values = tf.split(self._by_head(self.keys_values(normal), 2), 2, axis=1)
        logits = tf.matmul(queries, keys, transpose_b=True) * self.head_width**-0.5
        weights = tf.nn.softmax(logits + tf.cast(bias, logits.dtype)[:, tf.newaxis, tf.newaxis, :])
        mixed = tf.transpose(tf.matmul(weights, values), [0, 2, 1, 3])
        mixed = self.mixed(tf.reshape(mixed, tf.shape(looking)))
        states = looking + self.dropout(mixed, training=training)
        return states + self.dropout(self.outer(self.inner(self.inner_norm(states))), training=training)

    def _by_head(self, states: tf.Tensor, parts: int) -> tf.Tensor:
        """[n, tokens, parts * width] -> [n, parts * heads, tokens, head width]."""
        rows, tokens = tf.unstack(tf.shape(states)[:2])
        by_head = tf.reshape(states, [rows, tokens, parts * self.heads, self.head_width])
        return tf.transpose(by_head, [0, 2, 1, 3])


def _small() -> tf.keras.initializers.Initializer:
    return tf.keras.initializers.TruncatedNormal(stddev=0.05)
