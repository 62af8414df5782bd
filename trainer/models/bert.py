"""The parts of BERT: embeddings and post-norm transformer layers, with weights from a pretrained encoder."""

import numpy as np
import tensorflow as tf

from trainer.models.encoder_directory import BertConfig
from trainer.models.safetensors_file import Array

Weights = dict[str, Array]


class BertEmbeddings(tf.keras.layers.Layer):
    """Pieces, positions and token types, added and normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(name="embeddings")
        width = config.hidden_size
        self.last_position = config.max_position_embeddings - 1
        self.pieces = self.add_weight("pieces", [config.vocab_size, width])
        self.positions = self.add_weight("positions", [config.max_position_embeddings, width])
        self.types = self.add_weight("types", [config.type_vocab_size, width])
        self.norm = tf.keras.layers.LayerNormalization(epsilon=config.layer_norm_eps, name="norm")

    def call(self, tokens: tf.Tensor, positions: tf.Tensor, token_type: int) -> tf.Tensor:
        """tokens int32 [n, t]; positions int32 [t] or [n, t] -> states [n, t, width]."""
        # padding may reach behind the last position; its states are masked wherever they are read
        placed = tf.gather(self.positions, tf.minimum(positions, self.last_position))
        return self.norm(tf.gather(self.pieces, tokens) + placed + self.types[token_type])

    def assign(self, weights: Weights) -> None:
        self.pieces.assign(weights["embeddings.word_embeddings.weight"])
        self.positions.assign(weights["embeddings.position_embeddings.weight"])
        self.types.assign(weights["embeddings.token_type_embeddings.weight"])
        assign_norm(self.norm, weights, "embeddings.LayerNorm")


class BertLayer(tf.keras.layers.Layer):
    """Attention and a two-layer projection, each added to its input and normalised after it (post-norm).

    Keys have no bias: it would add the same to all of a token's attention logits, and change no weight.
    Source: Devlin et al. 2019; Vaswani et al. 2017.
    """

    def __init__(self, config: BertConfig, dropout: float, name: str) -> None:
        super().__init__(name=name)
        self.width, self.heads = config.hidden_size, config.num_attention_heads
        self.head_width = self.width // self.heads
        # of queries, keys and values, side by side: one product for the three
        self.projection = self.add_weight("projection", [self.width, 3 * self.width], initializer="glorot_uniform")
        self.query_bias = self.add_weight("query_bias", [self.width], initializer="zeros")
        self.value_bias = self.add_weight("value_bias", [self.width], initializer="zeros")
        self.mixed = tf.keras.layers.Dense(self.width, name="mixed")
        self.attention_norm = tf.keras.layers.LayerNormalization(epsilon=config.layer_norm_eps, name="attention_norm")
        self.inner = tf.keras.layers.Dense(config.intermediate_size, name="inner")
        self.outer = tf.keras.layers.Dense(self.width, name="outer")
        self.output_norm = tf.keras.layers.LayerNormalization(epsilon=config.layer_norm_eps, name="output_norm")
        self.dropout = tf.keras.layers.Dropout(dropout)

    def call(self, states: tf.Tensor, bias: tf.Tensor, training: bool = False, first_only: bool = False) -> tf.Tensor:
        """New states [n, tokens, width]; with `first_only` those of the first token, [n, 1, width].

        bias: [n, tokens], as `attention_bias` of trainer.models.transformer returns it.
        """
        mixed = self._attend(states, bias, first_only)
        if first_only:
            states = states[:, :1]
        states = self.attention_norm(states + self.dropout(self.mixed(mixed), training=training))
        projected = self.outer(tf.nn.gelu(self.inner(states), approximate=False))
        return self.output_norm(states + self.dropout(projected, training=training))

    def assign(self, weights: Weights, index: int) -> None:
        """Takes the weights of layer `index` of a pretrained encoder."""
        layer = f"encoder.layer.{index}"
        kernels = [weights[f"{layer}.attention.self.{part}.weight"].T for part in ("query", "key", "value")]
        self.projection.assign(np.concatenate(kernels, axis=1))
        self.query_bias.assign(weights[f"{layer}.attention.self.query.bias"])
        self.value_bias.assign(weights[f"{layer}.attention.self.value.bias"])
        for dense, name in (
            (self.mixed, "attention.output.dense"),
            (self.inner, "intermediate.dense"),
            (self.outer, "output.dense"),
        ):
            dense.kernel.assign(weights[f"{layer}.{name}.weight"].T)
            dense.bias.assign(weights[f"{layer}.{name}.bias"])
        assign_norm(self.attention_norm, weights, f"{layer}.attention.output.LayerNorm")
        assign_norm(self.output_norm, weights, f"{layer}.output.LayerNorm")

    @property
    def attention_kernels(self) -> list[tf.Variable]:
        """The matrices of attention that no Keras layer holds."""
        return [self.projection]

    def _attend(self, states: tf.Tensor, bias: tf.Tensor, first_only: bool) -> tf.Tensor:
        """The values that each token's attention mixes: [n, tokens, width], or [n, 1, width] of the first token."""
        rows, tokens = tf.unstack(tf.shape(states)[:2])
        added = tf.concat([self.query_bias, tf.zeros([self.width], states.dtype), self.value_bias], axis=0)
        projected = tf.matmul(states, self.projection) + added
        by_head = tf.reshape(projected, [rows, tokens, 3 * self.heads, self.head_width])
        queries, keys, values = tf.split(tf.transpose(by_head, [0, 2, 1, 3]), 3, axis=1)
        if first_only:
            queries = queries[:, :, :1]
        logits = tf.matmul(queries, keys, transpose_b=True) * self.head_width**-0.5
        weights = tf.nn.softmax(logits + tf.cast(bias[:, tf.newaxis, tf.newaxis], logits.dtype))
        mixed = tf.transpose(tf.matmul(weights, values), [0, 2, 1, 3])
        return tf.reshape(mixed, [rows, 1 if first_only else tokens, self.width])


def assign_norm(norm: tf.keras.layers.LayerNormalization, weights: Weights, name: str) -> None:
    """Copies gamma and beta of a pretrained encoder's layer normalisation. name: its prefix in `weights`."""
    norm.gamma.assign(weights[f"{name}.weight"])
    norm.beta.assign(weights[f"{name}.bias"])
