"""The ranker: encoder, further features, score head. A student sees regular features; a teacher a few more."""

import tensorflow as tf

from features.spec import Feature, FeatureSpec
from trainer.config import StudentConfig
from trainer.encoders import SEPARATOR_ID, SideStates, TransformerEncoder
from trainer.interaction import LatentCross
from trainer.lexical import Matches
from trainer.preprocessing import Tensors

CATEGORY = "category_"  # starts the name of a categorical feature's embedding
ARCHITECTURE = 2  # raised when weights of an older ranker would no longer fit or mean the same


class Ranker(tf.keras.Model):
    """Scores each candidate of a query group, by itself unless the config has an `interaction`.

    sees: the privileged features of a teacher; empty for the student, which has no input for one.
    sees_regular: False for a teacher of privileged features alone.
    category_sizes: values known in training, by categorical feature.
    dropout, noise: share of states dropped, and deviation of what is added to numbers, while training.
    vocabulary_size: pieces of the tokeniser; 0 for a spec without text, whose ranker is the head alone (an MLP).
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
    ) -> None:
        super().__init__(name="ranker")
        self.spec, self.sees = spec, sees
        self.reads_text = sees_regular and vocabulary_size > 0
        self.encoder = (
            TransformerEncoder(config, vocabulary_size, dropout) if self.reads_text and config.layers else None
        )
        if self.reads_text:
            self.idf = self.add_weight("idf", [vocabulary_size], initializer="ones", trainable=False)
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
        self.score = tf.keras.layers.Dense(1, dtype="float32", name="score")

    def call(
        self,
        regular: Tensors,
        privileged: Tensors,
        mask: tf.Tensor,
        training: bool = False,
        states: SideStates | None = None,
    ) -> tf.Tensor:
        """regular, privileged: as `Preprocessor` returns them; mask: bool [groups, items], False on padding.

        states: what the encoder's split layers made of the tokens before; None computes it.
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
        return tf.where(mask, tf.squeeze(self.score(states), axis=-1), 0.0)

    def get_config(self) -> dict[str, object]:
        """Nothing: a run builds its rankers anew. Keras, which asks when it saves one, would warn otherwise."""
        return {}

    @tf.function(autograph=False)
    def infer(self, regular: Tensors, privileged: Tensors, mask: tf.Tensor) -> tf.Tensor:
        """`call` as a graph, without dropout; the inputs and the result are `call`'s."""
        return self(regular, privileged, mask, training=False)

    def _text(self, regular: Tensors, training: bool, states: SideStates | None) -> list[tf.Tensor]:
        item_tokens = regular["item_tokens"]
        # without query text the context side is its [SEP] alone
        context_tokens = regular.get("context_tokens", tf.fill([tf.shape(item_tokens)[0], 1], SEPARATOR_ID))
        matches = Matches(context_tokens, item_tokens, self.idf)
        parts = [matches.shares()]
        if self.encoder is not None:
            parts.append(self.encoder(context_tokens, item_tokens, matches, training=training, states=states))
        return parts
