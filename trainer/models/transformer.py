"""Query and item text -> one state a pair: a small transformer over `[CLS] query [SEP] title [SEP]`."""

import tensorflow as tf

from trainer.config import StudentConfig
from trainer.lexical import Matches

START_ID, SEPARATOR_ID = 2, 3
MASKED = -1e9  # added to the attention logits of padding

SideStates = tuple[tf.Tensor, tf.Tensor]
"""What the split layers make of a context side and an item side; see `TransformerEncoder`."""


class TransformerEncoder(tf.keras.layers.Layer):
    """Pre-norm transformer, trained from scratch; padding is masked wherever tokens meet.

    The two sides, [CLS] with the context's tokens and the item's tokens, are padded each on its own, and an item's
    positions count from its own start, so that a pair's state does not depend on the bucket it was padded to. The
    lowest `split_layers` run on each side alone: on the context side once a group, and on an item's side
    independently of the query. The rest see both sides together; the last computes the state of [CLS] alone.
    """

    one_product = False  # for all heads when scoring, too; see `Block._all_attend`

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
        self,
        context_tokens: tf.Tensor,
        item_tokens: tf.Tensor,
        matches: Matches,
        training: bool = False,
        states: SideStates | None = None,
    ) -> tf.Tensor:
        """The states of a batch's pairs.

        context_tokens: int32 [groups, c]; item_tokens: int32 [groups, items, t]; 0 is padding.
        states: what `context_states` and `item_states` returned for these tokens; None computes it.
        Returns float32 [groups, items, width + kernels]: the state of [CLS], and the soft matches of the two sides'
        states as they are before they meet.
        """
        groups, items, longest = tf.unstack(tf.shape(item_tokens))
        flat = tf.reshape(item_tokens, [groups * items, longest])
        context, item = states or (self.context_states(context_tokens, training), self.item_states(flat, training))
        soft = matches.soft(tf.slice(context, [0, 1, 0], [-1, -1, -1]), item)
        flags = tf.concat([tf.zeros([groups, items, 1]), matches.context, matches.item], axis=2)
        both = tf.concat([tf.repeat(context, items, axis=0), item], axis=1)
        bias = attention_bias(tf.concat([tf.repeat(_started(context_tokens), items, axis=0), flat], axis=1))
        joint = self.joint_state(both, bias, tf.reshape(flags, tf.shape(bias)), training)
        return tf.concat([tf.reshape(joint, [groups, items, self.config.width]), tf.cast(soft, joint.dtype)], axis=2)

    def context_states(self, tokens: tf.Tensor, training: bool = False) -> tf.Tensor:
        """int32 [n, c] -> states of [CLS] and the tokens [n, 1 + c, width]."""
        return self._split(_started(tokens), 0, training)

    def item_states(self, tokens: tf.Tensor, training: bool = False) -> tf.Tensor:
        """int32 [n, t] -> states [n, t, width], which know nothing of the query."""
        return self._split(tokens, self.config.max_context_tokens + 2, training)

    def joint_state(self, states: tf.Tensor, bias: tf.Tensor, flags: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Both sides' states [n, tokens, width], bias and match flags [n, tokens] -> the state of [CLS] [n, width]."""
        states += tf.cast(tf.expand_dims(flags, 2), states.dtype) * tf.cast(self.matched, states.dtype)
        joint = self.blocks[self.config.split_layers :]
        for block in joint[:-1]:
            states = block(states, bias, training=training, one_product=self.one_product)
        return self.norm(joint[-1](states, bias, training=training, first_only=True))

    def _split(self, tokens: tf.Tensor, first_position: int, training: bool) -> tf.Tensor:
        # padding to a bucket may reach behind the longest side; its positions are looked up, and never looked at
        places = tf.minimum(first_position + tf.range(tf.shape(tokens)[1]), self.positions.input_dim - 1)
        states = self.dropout(self.pieces(tokens) + self.positions(places), training=training)
        for block in self.blocks[: self.config.split_layers]:
            states = block(states, attention_bias(tokens), training=training, one_product=self.one_product)
        return states


def attention_bias(tokens: tf.Tensor) -> tf.Tensor:
    """int32 [n, tokens] -> what is added to attention logits: 0, and MASKED on padding."""
    return tf.where(tokens > 0, 0.0, MASKED)


def _started(tokens: tf.Tensor) -> tf.Tensor:
    """int32 [n, c] -> [n, 1 + c]: [CLS] before them."""
    return tf.pad(tokens, [[0, 0], [1, 0]], constant_values=START_ID)


class RmsNorm(tf.keras.layers.Layer):
    """Scales each state to a root mean square of 1, then by a learned gain; half the time of layer normalisation.

    Source: Zhang and Sennrich 2019, eq. 4.
    """

    def build(self, shape: tf.TensorShape) -> None:
        self.gain = self.add_weight("gain", [shape[-1]], initializer="ones")

    def call(self, states: tf.Tensor) -> tf.Tensor:
        return states * inverse_rms(states) * self.gain


def inverse_rms(states: tf.Tensor) -> tf.Tensor:
    """[..., width] -> [..., 1]: what scales each state to a root mean square of 1."""
    return tf.math.rsqrt(tf.reduce_mean(tf.square(states), axis=-1, keepdims=True) + 1e-6)


class Block(tf.keras.layers.Layer):
    """Attention and a two-layer projection, each on normalised input and added to the states.

    Attention is written out: Keras's own layer takes half as long again for it on CPUs, and ReLU a quarter of GELU.
    Keys have no bias: it would add the same to all of a token's attention logits, and change no weight.
    """

    def __init__(self, config: StudentConfig, dropout: float, name: str) -> None:
        super().__init__(name=name)
        self.width, self.heads, self.head_width = config.width, config.heads, config.width // config.heads
        self.attention_gain = self.add_weight("attention_gain", [config.width], initializer="ones")
        self.queries, self.keys, self.values = (
            self.add_weight(part, [config.width, config.width], initializer="glorot_uniform")
            for part in ("queries", "keys", "values")
        )
        self.query_bias = self.add_weight("query_bias", [config.width], initializer="zeros")
        self.value_bias = self.add_weight("value_bias", [config.width], initializer="zeros")
        self.mixed = tf.keras.layers.Dense(config.width, name="mixed")
        self.inner_norm = RmsNorm(name="inner_norm")
        self.inner = tf.keras.layers.Dense(config.feed_forward, activation="relu", name="inner")
        self.outer = tf.keras.layers.Dense(config.width, name="outer")
        self.dropout = tf.keras.layers.Dropout(dropout)

    def call(
        self,
        states: tf.Tensor,
        bias: tf.Tensor,
        training: bool,
        one_product: bool = False,
        first_only: bool = False,
    ) -> tf.Tensor:
        """New states [n, tokens, width] of all tokens, or [n, width] of the first one alone.

        bias: [n, tokens], MASKED on padding.
        """
        bias = tf.expand_dims(bias, 1)  # the same for each token that attends
        if first_only:
            states, mixed = _first(states), self._first_attends(states, bias)
        else:
            mixed = self._all_attend(states, bias, one_product or training)
        states += self.dropout(self.mixed(mixed), training=training)
        return states + self.dropout(self.outer(self.inner(self.inner_norm(states))), training=training)

    def _all_attend(self, states: tf.Tensor, bias: tf.Tensor, one_product: bool) -> tf.Tensor:
        """The values that each token's attention mixes: [n, tokens, width].

        One product for all heads makes a training step shorter by a tenth, and scoring with 8-bit weights by a fifth:
        each product rounds its input to 8 bits anew. A product for each head needs no transposes, and makes scoring
        with floats shorter by up to a tenth.
        """
        normal = states * inverse_rms(states) * self.attention_gain
        if one_product:
            return self._heads_attend(normal, bias)
        heads = [slice(first, first + self.head_width) for first in range(0, self.width, self.head_width)]
        return tf.concat([self._head_attends(normal, bias, own) for own in heads], axis=-1)

    def _heads_attend(self, normal: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        kernel = tf.concat([self.queries, self.keys, self.values], axis=1)
        added = tf.concat([self.query_bias, tf.zeros_like(self.query_bias), self.value_bias], axis=0)
        rows, tokens = tf.unstack(tf.shape(normal)[:2])
        by_head = tf.reshape(tf.matmul(normal, kernel) + added, [rows, tokens, 3 * self.heads, self.head_width])
        queries, keys, values = tf.split(tf.transpose(by_head, [0, 2, 1, 3]), 3, axis=1)
        weights = self._weights(tf.matmul(queries, keys, transpose_b=True), tf.expand_dims(bias, 1))
        return tf.reshape(tf.transpose(tf.matmul(weights, values), [0, 2, 1, 3]), tf.shape(normal))

    def _head_attends(self, normal: tf.Tensor, bias: tf.Tensor, own: slice) -> tf.Tensor:
        """own: the head's columns. Returns [n, tokens, head width]."""
        queries = tf.matmul(normal, self.queries[:, own]) + self.query_bias[own]
        keys = tf.matmul(normal, self.keys[:, own])
        values = tf.matmul(normal, self.values[:, own]) + self.value_bias[own]
        weights = self._weights(tf.matmul(queries, keys, transpose_b=True), bias)
        return tf.matmul(weights, values)

    def _first_attends(self, states: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """The values that the first token's attention mixes, [n, width], without a key or a value for each token.

        q . (K s) is (K' q) . s, and the sum of weighted values V s is V of the weighted sum of states: with a single
        query two products by matrices of its own take the place of two by the keys' and values' matrices for each
        token; normalisation's scale moves onto logits and weights.
        """
        scale = tf.linalg.matrix_transpose(inverse_rms(states))  # [n, 1, tokens]
        first = _first(states)
        queries = tf.matmul(first * inverse_rms(first) * self.attention_gain, self.queries) + self.query_bias
        looked_for = self._by_matrix(tf.expand_dims(queries, 1) * self._own, self.keys, transpose_b=True)
        logits = tf.matmul(looked_for * self.attention_gain, states, transpose_b=True) * scale
        found = tf.matmul(self._weights(logits, bias) * scale, states) * self.attention_gain
        return tf.reduce_sum(self._by_matrix(found, self.values) * self._own, axis=1) + self.value_bias

    @property
    def _own(self) -> tf.Tensor:
        """[heads, width]: 1 where a column belongs to the head."""
        return tf.repeat(tf.eye(self.heads, dtype=self.compute_dtype), self.head_width, axis=1)

    def _by_matrix(self, vectors: tf.Tensor, matrix: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
        """[n, heads, width] by [width, width], as one product."""
        flat = tf.matmul(tf.reshape(vectors, [-1, self.width]), matrix, transpose_b=transpose_b)
        return tf.reshape(flat, tf.shape(vectors))

    def _weights(self, logits: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Attention weights over the last axis."""
        return tf.nn.softmax(logits * self.head_width**-0.5 + tf.cast(bias, logits.dtype))


def _first(states: tf.Tensor) -> tf.Tensor:
    """[n, tokens, width] -> [n, width]. An index would say the same; LiteRT is slow at it, as at newaxis."""
    return tf.squeeze(tf.slice(states, [0, 0, 0], [-1, 1, -1]), axis=1)


def _small() -> tf.keras.initializers.Initializer:
    return tf.keras.initializers.TruncatedNormal(stddev=0.05)
