"""The ranker: encoder, other features, score head. A student sees regular features, a teacher also privileged ones."""

from typing import Any, Protocol

import tensorflow as tf

from features.spec import Feature, FeatureSpec
from trainer.architecture import StudentConfig
from trainer.data.preprocessing import Tensors
from trainer.models.bert import BertLayer
from trainer.models.document_attention import LatentCross
from trainer.models.encoder_directory import EncoderDirectory
from trainer.models.pretrained_encoder import PretrainedEncoder, new_encoder
from trainer.models.token_matching import TokenMatching
from trainer.models.transformer import SEPARATOR_ID, SideStates, TransformerBlock, TransformerEncoder

CATEGORY = "category_"  # prefix of the name of a categorical feature's embedding
COSINE_GAIN, COSINE_MIDDLE = 10.0, 0.5  # a ranker's first logits: gain * (cosine - middle)
# inputs beside the tokens, where `FrozenStates` has added them
CONTEXT_FROZEN, ITEM_FROZEN = "context_frozen", "item_frozen"
ARCHITECTURE = 4  # raised when weights of an older ranker no longer fit


class BatchStates(Protocol):
    """Adds CONTEXT_FROZEN and ITEM_FROZEN to batches; trainer.training.frozen_states has them on disk."""

    def attached(self, batches: Any) -> Any: ...


class Ranker(tf.keras.Model):
    """Scores each item of a query group, independently unless the config has an `interaction`.

    sees: the privileged features of a teacher; empty for the student, which has no input for one.
    sees_regular: False for a teacher of privileged features alone.
    category_sizes: values known in training, by categorical feature.
    dropout, noise: dropout rate, and standard deviation of noise added to numbers, in training only.
    vocabulary_size: pieces of the tokeniser; 0 for a spec without text, whose ranker is an MLP.
    pretrained: the encoder to start from, if the config names one; `assign_pretrained` copies its weights.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        config: StudentConfig,
        vocabulary_size: int,
        category_sizes: dict[str, int],
        sees: tuple[Feature, ...] = (),
        sees_regular: bool = True,
        dropout: float = 0.0,
        noise: float = 0.0,
        pretrained: EncoderDirectory | None = None,
    ) -> None:
        super().__init__(name="ranker", autocast=False)  # numbers and weights of words stay float32
        self.spec, self.sees = spec, sees
        self.frozen: BatchStates | None = None  # of this ranker's encoder, for training and scoring of a data set
        self.reads_text = sees_regular and vocabulary_size > 0
        self.encoder: TransformerEncoder | PretrainedEncoder | None = None
        if self.reads_text and pretrained is not None:
            self.encoder = new_encoder(config, pretrained, dropout)
        elif self.reads_text and config.layers:
            self.encoder = TransformerEncoder(config, vocabulary_size, dropout)
        self.starts_from_cosine = self.encoder is not None and self.encoder.starts_from_cosine
        if self.reads_text:
            self.idf = self.add_weight(
                "idf", [vocabulary_size], initializer="ones", trainable=False, experimental_autocast=False
            )
        self.others = tuple(f for f in (*(spec.regular if sees_regular else ()), *sees) if not f.is_text)
        self.noise = tf.keras.layers.GaussianNoise(noise) if noise else None
        self.embeddings = {
            f.name: tf.keras.layers.Embedding(
                category_sizes[f.name] + 1, config.category_width, name=f"{CATEGORY}{f.name}"
            )
            for f in self.others
            if f.type == "categorical"
        }
        self.hidden = [
            tf.keras.layers.Dense(width, activation="relu", name=f"hidden_{i}") for i, width in enumerate(config.hidden)
        ]
        self.dropout = tf.keras.layers.Dropout(dropout)
        self.interaction = LatentCross(config.interaction) if config.interaction else None
        first = "zeros" if self.starts_from_cosine else "glorot_uniform"
        self.score = tf.keras.layers.Dense(1, dtype="float32", kernel_initializer=first, name="score")
        if self.starts_from_cosine:
            gain = tf.keras.initializers.Constant(COSINE_GAIN)
            self.cosine_gain = self.add_weight("cosine_gain", [], initializer=gain, experimental_autocast=False)

    def call(
        self,
        regular: Tensors,
        privileged: Tensors,
        mask: tf.Tensor,
        training: bool = False,
        states: SideStates | None = None,
    ) -> tf.Tensor:
        """regular, privileged: as `Preprocessor` returns them; mask: bool [groups, items], False on padding.

        regular may also hold CONTEXT_FROZEN [groups, 1 + c, width] and ITEM_FROZEN [groups, items, 1 + t, width], the
        encoder's states behind its frozen layers.

        states: precomputed outputs of the encoder's split layers; None computes them.
        Returns float32 [groups, items]: logits, 0 on padding.
        """
        items = tf.shape(mask)[1]
        parts = self._text(regular, training, states) if self.reads_text else []
        for feature in self.others:
            values = (privileged if feature in self.sees else regular)[feature.name]
            if feature.type == "categorical":
                values = self.embeddings[feature.name](values)
            elif self.noise is not None:
                values = self.noise(values, training=training)
            if feature.level == "context":
                values = tf.repeat(values[:, tf.newaxis], items, axis=1)
            parts.append(values)
        states = inputs = tf.concat([tf.cast(part, tf.float32) for part in parts], axis=-1)
        for layer in self.hidden:
            states = self.dropout(layer(states), training=training)
        if self.interaction is not None:
            states = self.interaction(states, inputs, mask, training=training)
        logits = tf.squeeze(self.score(states), axis=-1)
        if self.starts_from_cosine:  # the encoder's last feature
            logits += self.cosine_gain * (tf.cast(parts[1][..., -1], tf.float32) - COSINE_MIDDLE)
        return tf.where(mask, logits, 0.0)

    def assign_pretrained(self, source: EncoderDirectory) -> None:
        """Takes a pretrained encoder's weights; the ranker has been called before. A ranker without text has none."""
        if isinstance(self.encoder, PretrainedEncoder):
            self.encoder.assign(source)

    def get_config(self) -> dict[str, object]:
        """Empty: rankers are never rebuilt from a config. Keras warns on saving if this is missing."""
        return {}

    @tf.function(autograph=False)
    def infer(self, regular: Tensors, privileged: Tensors, mask: tf.Tensor) -> tf.Tensor:
        """`call` as a graph, without dropout."""
        return self(regular, privileged, mask, training=False)

    @property
    def decayed(self) -> list[tf.Variable]:
        """The weights that weight decay and l2 apply to: trainable kernels of dense layers and of attention.

        Excludes biases, gains of norms, LayerNorm's gamma and beta, and embeddings, by variable and not by name.
        """
        kernels = []
        for layer in self.submodules:
            if isinstance(layer, (tf.keras.layers.Dense, tf.keras.layers.EinsumDense)):
                kernels.append(layer.kernel)
            elif isinstance(layer, (TransformerBlock, BertLayer)):
                kernels += layer.attention_kernels
        trainable = {variable.ref() for variable in self.trainable_variables}
        return [kernel for kernel in kernels if kernel.ref() in trainable]

    def _text(self, regular: Tensors, training: bool, states: SideStates | None) -> list[tf.Tensor]:
        item_tokens = regular["item_tokens"]
        # without query text the context side is only [SEP]
        context_tokens = regular.get("context_tokens", tf.fill([tf.shape(item_tokens)[0], 1], SEPARATOR_ID))
        matches = TokenMatching(context_tokens, item_tokens, self.idf)
        if self.encoder is None:
            return [matches.shares()]
        frozen = {}
        if CONTEXT_FROZEN in regular:
            items = regular[ITEM_FROZEN]
            frozen["frozen"] = regular[CONTEXT_FROZEN], tf.reshape(items, tf.concat([[-1], tf.shape(items)[2:]], 0))
        encoded = self.encoder(context_tokens, item_tokens, matches, training=training, states=states, **frozen)
        return [matches.shares(), encoded]
