"""Query and item text -> one state for each pair: a small transformer over `[CLS] query [SEP] title [SEP]`."""

import tensorflow as tf

from trainer.architecture import StudentConfig
from trainer.models.token_matching import TokenMatching

START_ID, SEPARATOR_ID = 2, 3
MASKED_LOGIT = -1e9  # added to the attention logits of padding

SideStates = tuple[tf.Tensor, tf.Tensor]
"""Outputs of the split layers for the context side and the item side; see `TransformerEncoder`."""

EmbeddedSide = tuple[tf.Tensor, tf.Tensor]
"""One side's token embeddings [n, t, width] and attention bias [n, t]."""


class TransformerEncoder(tf.keras.layers.Layer):
    """Pre-norm transformer, trained from scratch; attention masks padding.

    The two sides ([CLS] with the context's tokens, and the item's tokens) are padded separately, and an item's
    positions count from its own start, so that a pair's state does not depend on the padded length. The lowest
    `split_layers` run on each side separately: on the context side once a group, and on the item side independently of
    the query. The other layers attend to both sides; the last one computes only the state of [CLS].
    """

    batched_heads = False  # one product for all heads when scoring, too; see `TransformerBlock._attend_all`
    starts_from_cosine = False  # whether the last feature is a cosine from which a ranker's score starts
    item_start = 0  # rows of an item's states before its first token

    def __init__(self, config: StudentConfig, vocabulary_size: int, dropout: float) -> None:
        super().__init__(name="encoder")
        self.config, self.width = config, config.width
        positions = config.max_context_tokens + config.max_item_tokens + 3
        self.pieces = tf.keras.layers.Embedding(vocabulary_size, config.width, _small_normal(), name="pieces")
        self.positions = tf.keras.layers.Embedding(positions, config.width, "zeros", name="positions")
        self.matched = self.add_weight("matched", [config.width], initializer=_small_normal())
        self.blocks = [TransformerBlock(config, dropout, name=f"block_{index}") for index in range(config.layers)]
        self.norm = RmsNorm(name="norm")
        self.dropout = tf.keras.layers.Dropout(dropout)

    def call(
        self,
        context_tokens: tf.Tensor,
        item_tokens: tf.Tensor,
        matches: TokenMatching,
        training: bool = False,
        states: SideStates | None = None,
    ) -> tf.Tensor:
        """Computes the states of a batch's pairs.

        context_tokens: int32 [groups, c]; item_tokens: int32 [groups, items, t]; 0 is padding.
        states: what `context_states` and `item_states` returned for these tokens; None computes them.
        Returns float32 [groups, items, width + kernels]: the state of [CLS], and the soft matches of the sides' states
        after the split layers. Soft matches are computed without dropout in training, too: dropout masks differ
        between the sides, so that equal tokens would not have equal states while the kernels' weights are learned.
        """
        groups, items, longest = tf.unstack(tf.shape(item_tokens))
        flat = tf.reshape(item_tokens, [groups * items, longest])
        sides = () if states else (self._embed_context(context_tokens), self._embed_items(flat))
        context, item = states or (self._run_split_layers(*side, batched_heads=training) for side in sides)
        soft = matches.soft(tf.slice(context, [0, 1, 0], [-1, -1, -1]), item)
        if training and sides and self.dropout.rate:
            context, item = (self._run_split_layers(*side, training=True) for side in sides)
        flags = tf.concat([tf.zeros([groups, items, 1]), matches.context, matches.item], axis=2)
        both = tf.concat([tf.repeat(context, items, axis=0), item], axis=1)
        bias = attention_bias(tf.concat([tf.repeat(with_cls(context_tokens), items, axis=0), flat], axis=1))
        joint = self.joint_state(both, bias, tf.reshape(flags, tf.shape(bias)), training)
        return tf.concat([tf.reshape(joint, [groups, items, self.config.width]), tf.cast(soft, joint.dtype)], axis=2)

    def context_states(self, tokens: tf.Tensor) -> tf.Tensor:
        """int32 [n, c] -> states of [CLS] and the tokens [n, 1 + c, width], without dropout."""
        return self._run_split_layers(*self._embed_context(tokens))

    def item_states(self, tokens: tf.Tensor) -> tf.Tensor:
        """int32 [n, t] -> states [n, t, width], independent of the query, without dropout."""
        return self._run_split_layers(*self._embed_items(tokens))

    def joint_state(self, states: tf.Tensor, bias: tf.Tensor, flags: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Both sides' states [n, tokens, width], bias and match flags [n, tokens] -> the state of [CLS] [n, width]."""
        states += tf.cast(tf.expand_dims(flags, 2), states.dtype) * tf.cast(self.matched, states.dtype)
        joint = self.blocks[self.config.split_layers :]
        for block in joint[:-1]:
            states = block(states, bias, training=training, batched_heads=self.batched_heads)
        return self.norm(joint[-1](states, bias, training=training, first_only=True))

    def _embed_context(self, tokens: tf.Tensor) -> EmbeddedSide:
        return self._embed_side(with_cls(tokens), 0)

    def _embed_items(self, tokens: tf.Tensor) -> EmbeddedSide:
        return self._embed_side(tokens, self.config.max_context_tokens + 2)

    def _embed_side(self, tokens: tf.Tensor, first_position: int) -> EmbeddedSide:
        """One side's tokens [n, t] -> their embeddings [n, t, width], and the attention bias [n, t]."""
        # padding to a bucket may exceed the longest side; its positions are looked up, then masked
        places = tf.minimum(first_position + tf.range(tf.shape(tokens)[1]), self.positions.input_dim - 1)
        return self.pieces(tokens) + self.positions(places), attention_bias(tokens)

    def _run_split_layers(
        self, states: tf.Tensor, bias: tf.Tensor, training: bool = False, batched_heads: bool = False
    ) -> tf.Tensor:
        """Runs the split layers on one side's embeddings. training: with dropout."""
        states = self.dropout(states, training=training)
        for block in self.blocks[: self.config.split_layers]:
            states = block(states, bias, training=training, batched_heads=batched_heads or self.batched_heads)
        return states


def attention_bias(tokens: tf.Tensor) -> tf.Tensor:
    """int32 [n, tokens] -> the term added to attention logits: 0, or MASKED_LOGIT on padding."""
    return tf.where(tokens > 0, 0.0, MASKED_LOGIT)


def with_cls(tokens: tf.Tensor) -> tf.Tensor:
    """int32 [n, c] -> [n, 1 + c]: [CLS] before them."""
    return tf.pad(tokens, [[0, 0], [1, 0]], constant_values=START_ID)


class RmsNorm(tf.keras.layers.Layer):
    """Scales each state to a root mean square of 1, then by a learned gain; takes half the time of layer normalisation.

    Source: Zhang and Sennrich 2019, eq. 4.
    """

    def build(self, shape: tf.TensorShape) -> None:
        self.gain = self.add_weight("gain", [shape[-1]], initializer="ones")

    def call(self, states: tf.Tensor) -> tf.Tensor:
        return states * inverse_rms(states) * self.gain


def inverse_rms(states: tf.Tensor) -> tf.Tensor:
    """[..., width] -> [..., 1]: the factor that scales each state to a root mean square of 1."""
    return tf.math.rsqrt(tf.reduce_mean(tf.square(states), axis=-1, keepdims=True) + 1e-6)


class TransformerBlock(tf.keras.layers.Layer):
    """Attention and a two-layer projection, each on normalised input and added to the states.

    Attention is implemented here because Keras's layer takes 1.5 times as long on CPUs; ReLU takes a quarter of GELU's
    time. Keys have no bias: it would add one constant to all of a token's attention logits and change no weight.
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

    @property
    def attention_kernels(self) -> list[tf.Variable]:
        """The matrices of attention that no Keras layer holds."""
        return [self.queries, self.keys, self.values]

    def call(
        self,
        states: tf.Tensor,
        bias: tf.Tensor,
        training: bool,
        batched_heads: bool = False,
        first_only: bool = False,
    ) -> tf.Tensor:
        """New states [n, tokens, width] of all tokens, or [n, width] of the first one alone.

        bias: [n, tokens], MASKED_LOGIT on padding.
        """
        bias = tf.expand_dims(bias, 1)  # broadcast over the attending tokens
        if first_only:
            states, mixed = _first(states), self._attend_first(states, bias)
        else:
            mixed = self._attend_all(states, bias, batched_heads or training)
        states += self.dropout(self.mixed(mixed), training=training)
        return states + self.dropout(self.outer(self.inner(self.inner_norm(states))), training=training)

    def _attend_all(self, states: tf.Tensor, bias: tf.Tensor, batched_heads: bool) -> tf.Tensor:
        """Attention outputs of all tokens, before the output projection: [n, tokens, width].

        One product for all heads makes a training step a tenth faster, and scoring with 8-bit weights a fifth faster,
        because each product quantises its input again. One product for each head needs no transposes and makes scoring
        with floats up to a tenth faster.
        """
        normal = states * inverse_rms(states) * self.attention_gain
        if batched_heads:
            return self._attend_batched(normal, bias)
        heads = [slice(first, first + self.head_width) for first in range(0, self.width, self.head_width)]
        return tf.concat([self._attend_head(normal, bias, columns) for columns in heads], axis=-1)

    def _attend_batched(self, normal: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        kernel = tf.concat([self.queries, self.keys, self.values], axis=1)
        added = tf.concat([self.query_bias, tf.zeros([self.width], normal.dtype), self.value_bias], axis=0)
        rows, tokens = tf.unstack(tf.shape(normal)[:2])
        by_head = tf.reshape(tf.matmul(normal, kernel) + added, [rows, tokens, 3 * self.heads, self.head_width])
        queries, keys, values = tf.split(tf.transpose(by_head, [0, 2, 1, 3]), 3, axis=1)
        weights = self._weights(tf.matmul(queries, keys, transpose_b=True), tf.expand_dims(bias, 1))
        return tf.reshape(tf.transpose(tf.matmul(weights, values), [0, 2, 1, 3]), tf.shape(normal))

    def _attend_head(self, normal: tf.Tensor, bias: tf.Tensor, columns: slice) -> tf.Tensor:
        """columns: the head's columns. Returns [n, tokens, head width]."""
        queries = tf.matmul(normal, self.queries[:, columns]) + self.query_bias[columns]
        keys = tf.matmul(normal, self.keys[:, columns])
        values = tf.matmul(normal, self.values[:, columns]) + self.value_bias[columns]
        weights = self._weights(tf.matmul(queries, keys, transpose_b=True), bias)
        return tf.matmul(weights, values)

    def _attend_first(self, states: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Attention output of the first token, [n, width], without computing keys and values for each token.

        Folds the key projection into the query, q . (K s) = (K' q) . s, and applies the value projection after the
        weighted sum of states. With a single query, this replaces two matrix products for each token by two for each
        pair. The normalisation's scale moves to the logits and the weights.
        """
        scale = tf.linalg.matrix_transpose(inverse_rms(states))  # [n, 1, tokens]
        first = _first(states)
        queries = tf.matmul(first * inverse_rms(first) * self.attention_gain, self.queries) + self.query_bias
        projected_queries = self._multiply(tf.expand_dims(queries, 1) * self._head_columns, self.keys, transpose_b=True)
        logits = tf.matmul(projected_queries * self.attention_gain, states, transpose_b=True) * scale
        found = tf.matmul(self._weights(logits, bias) * scale, states) * self.attention_gain
        return tf.reduce_sum(self._multiply(found, self.values) * self._head_columns, axis=1) + self.value_bias

    @property
    def _head_columns(self) -> tf.Tensor:
        """[heads, width]: 1 where a column belongs to the head."""
        return tf.repeat(tf.eye(self.heads, dtype=self.compute_dtype), self.head_width, axis=1)

    def _multiply(self, vectors: tf.Tensor, matrix: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
        """[n, heads, width] by [width, width], as one product."""
        flat = tf.matmul(tf.reshape(vectors, [-1, self.width]), matrix, transpose_b=transpose_b)
        return tf.reshape(flat, tf.shape(vectors))

    def _weights(self, logits: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Attention weights over the last axis."""
        return tf.nn.softmax(logits * self.head_width**-0.5 + tf.cast(bias, logits.dtype))


def _first(states: tf.Tensor) -> tf.Tensor:
    """[n, tokens, width] -> [n, width]. Not by an index: indexing and newaxis are slow in LiteRT."""
    return tf.squeeze(tf.slice(states, [0, 0, 0], [-1, 1, -1]), axis=1)


def _small_normal() -> tf.keras.initializers.Initializer:
    return tf.keras.initializers.TruncatedNormal(stddev=0.05)
