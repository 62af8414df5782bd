"""Rankers' encoders that start from a pretrained BERT-family encoder: cross-encoder and late interaction."""

import tensorflow as tf

from features.errors import InputError
from trainer.architecture import StudentConfig
from trainer.models.bert import BertEmbeddings, BertLayer
from trainer.models.encoder_directory import EncoderDirectory
from trainer.models.token_matching import TokenMatching
from trainer.models.transformer import SideStates, attention_bias, with_cls


class PretrainedEncoder(tf.keras.layers.Layer):
    """Layers of a pretrained encoder, `config.keep_layers` of them, of which the lowest `config.freeze` and the
    embeddings are not trained.

    starts_from_cosine: whether the last feature of `call` is the two sides' cosine, from which a ranker's score starts.
    item_start: rows of an item's states before its first token.
    """

    starts_from_cosine = False
    item_start = 0
    batched_heads = False  # part of every encoder's interface; these layers always compute all heads in one product

    def __init__(self, config: StudentConfig, source: EncoderDirectory, dropout: float) -> None:
        super().__init__(name="encoder")
        self.config, self.width = config, source.config.hidden_size
        self.kept = kept_layers(config, source)
        self.embeddings = BertEmbeddings(source.config)
        self.blocks = [BertLayer(source.config, dropout, name=f"block_{place}") for place in range(len(self.kept))]
        self.dropout = tf.keras.layers.Dropout(dropout)
        if config.freeze:
            self.embeddings.trainable = False
        for block in self.blocks[: config.freeze]:
            block.trainable = False

    def assign(self, source: EncoderDirectory) -> None:
        """Takes the pretrained weights; the encoder has been called before."""
        self.embeddings.assign(source.tensors)
        for block, index in zip(self.blocks, self.kept, strict=True):
            block.assign(source.tensors, index)


class CrossEncoder(PretrainedEncoder):
    """BERT over `[CLS] query [SEP] title [SEP]`, token type 1 from the title on, positions as BERT counts them."""

    def call(
        self,
        context_tokens: tf.Tensor,
        item_tokens: tf.Tensor,
        matches: TokenMatching,
        training: bool = False,
        states: SideStates | None = None,
    ) -> tf.Tensor:
        """context_tokens: int32 [groups, c]; item_tokens: int32 [groups, items, t]; 0 is padding; states: None.

        Returns float32 [groups, items, width + 4]: the state of [CLS], and the similarities of the two sides' pieces
        as the encoder embeds them.
        """
        groups, items, longest = tf.unstack(tf.shape(item_tokens))
        item = tf.reshape(item_tokens, [groups * items, longest])
        context = tf.repeat(with_cls(context_tokens), items, axis=0)
        length = tf.math.count_nonzero(context, axis=1, keepdims=True, dtype=tf.int32)
        both = [
            self.embeddings(context, tf.range(tf.shape(context)[1]), 0),
            self.embeddings(item, length + tf.range(longest), 1),
        ]
        bias = attention_bias(tf.concat([context, item], axis=1))
        first = run_joint(self.blocks, self.dropout(tf.concat(both, axis=1), training=training), bias, training)
        pieces = [tf.gather(self.embeddings.pieces, tokens) for tokens in (context_tokens, item)]
        first = tf.cast(tf.reshape(first, [groups, items, self.width]), tf.float32)
        return tf.concat([first, matches.similarities(*pieces)], axis=2)


class LateInteractionEncoder(PretrainedEncoder):
    """Query and title apart through the lowest `split_layers`, each as `[CLS] text [SEP]`; then together.

    The apart layers compute a query's states once a group, and a title's independently of the query. No dropout is
    applied there, so that what is computed from their states is the same in training and in scoring. The joint layers,
    if there are any, read `[CLS] query [SEP] title [SEP]` from those states.
    Source: Khattab and Zaharia 2020 (ColBERT) for late interaction by maximum similarity.
    """

    starts_from_cosine = True
    item_start = 1  # [CLS]

    def __init__(self, config: StudentConfig, source: EncoderDirectory, dropout: float) -> None:
        super().__init__(config, source, dropout)
        self.pooling = source.pooling

    def call(
        self,
        context_tokens: tf.Tensor,
        item_tokens: tf.Tensor,
        matches: TokenMatching,
        training: bool = False,
        states: SideStates | None = None,
        frozen: SideStates | None = None,
    ) -> tf.Tensor:
        """context_tokens: int32 [groups, c]; item_tokens: int32 [groups, items, t]; 0 is padding.

        states: what `context_states` and `item_states` returned for these tokens; None computes it.
        frozen: what `frozen_states` returned for both sides, the items' as [groups * items, ...]; None computes it.
        Returns float32 [groups, items, (width +) 5]: the joint layers' state of [CLS], where there are any,
        similarities of the two sides' token states, and the cosine of their pooled states.
        """
        groups, items, longest = tf.unstack(tf.shape(item_tokens))
        flat = tf.reshape(item_tokens, [groups * items, longest])
        if states is None:
            behind_frozen = frozen or (None, None)
            states = tuple(
                self._apart(tokens, behind)
                for tokens, behind in zip((context_tokens, flat), behind_frozen, strict=True)
            )
        context, item = states
        features = [matches.similarities(context[:, 1:], item[:, 1:])]
        pooled = tf.reshape(self.pooled(flat, item), [groups, items, self.width])
        features.append(tf.matmul(pooled, tf.expand_dims(self.pooled(context_tokens, context), 2)))
        if joint := self.blocks[self.config.split_layers :]:
            both = tf.concat([tf.repeat(context, items, axis=0), item[:, 1:]], axis=1)
            bias = attention_bias(tf.concat([tf.repeat(with_cls(context_tokens), items, axis=0), flat], axis=1))
            first = run_joint(joint, self.dropout(both, training=training), bias, training)
            features.insert(0, tf.cast(tf.reshape(first, [groups, items, self.width]), tf.float32))
        return tf.concat(features, axis=2)

    @property
    def frozen_apart(self) -> int:
        """How many of the layers on each side apart are frozen: their states depend on the text alone."""
        return min(self.config.freeze, self.config.split_layers)

    def frozen_states(self, tokens: tf.Tensor) -> tf.Tensor:
        """int32 [n, t] -> states of [CLS] and the tokens behind the frozen layers, [n, 1 + t, width]."""
        tokens = with_cls(tokens)
        embedded = self.embeddings(tokens, tf.range(tf.shape(tokens)[1]), 0)
        return self._run_blocks(embedded, tokens, 0, self.frozen_apart)

    def context_states(self, tokens: tf.Tensor) -> tf.Tensor:
        """int32 [n, t] -> states of [CLS] and the tokens, [n, 1 + t, width]."""
        return self._apart(tokens, None)

    def item_states(self, tokens: tf.Tensor) -> tf.Tensor:
        """The same of a title."""
        return self.context_states(tokens)

    def _apart(self, tokens: tf.Tensor, frozen: tf.Tensor | None) -> tf.Tensor:
        """States behind all layers on one side; `frozen` are those behind the frozen ones, None computes them."""
        states = self.frozen_states(tokens) if frozen is None else tf.cast(frozen, self.compute_dtype)
        return self._run_blocks(states, with_cls(tokens), self.frozen_apart, self.config.split_layers)

    def _run_blocks(self, states: tf.Tensor, tokens: tf.Tensor, start: int, stop: int) -> tf.Tensor:
        for block in self.blocks[start:stop]:
            states = block(states, attention_bias(tokens), training=False)  # unsaid, Keras passes on the caller's
        return states

    def pooled(self, tokens: tf.Tensor, states: tf.Tensor) -> tf.Tensor:
        """Tokens [n, t] and their states [n, 1 + t, width] -> embeddings of length 1, float32 [n, width]."""
        states = tf.cast(states, tf.float32)
        if self.pooling == "cls":
            return tf.math.l2_normalize(states[:, 0], axis=1)
        real = tf.cast(with_cls(tokens) > 0, states.dtype)
        # a sum has the direction of the mean; as a product by `real` LiteRT's converter fails at it
        return tf.math.l2_normalize(tf.reduce_sum(states * tf.expand_dims(real, 2), axis=1), axis=1)


def run_joint(blocks: list[BertLayer], states: tf.Tensor, bias: tf.Tensor, training: bool) -> tf.Tensor:
    """Both sides' states through the layers -> the state of [CLS], [n, width]; the last layer computes it alone.

    Frozen layers apply no dropout.
    """
    for block in blocks[:-1]:
        states = block(states, bias, training=training and block.trainable)
    return tf.squeeze(blocks[-1](states, bias, training=training and blocks[-1].trainable, first_only=True), axis=1)


def new_encoder(config: StudentConfig, source: EncoderDirectory, dropout: float) -> PretrainedEncoder:
    """The form that the config asks for; its weights are assigned once it is built."""
    form = LateInteractionEncoder if config.split_layers else CrossEncoder
    return form(config, source, dropout)


def kept_layers(config: StudentConfig, source: EncoderDirectory) -> tuple[int, ...]:
    """The layers of the pretrained encoder that the student has, lowest first."""
    return config.keep_layers or tuple(range(source.config.num_hidden_layers))


def check_fits(where: str, config: StudentConfig, source: EncoderDirectory) -> None:
    """Refuses layers that the encoder does not have, and sides longer than its positions.

    where: the place in the task file, for errors. Errors: InputError.
    """
    layers = source.config.num_hidden_layers
    if surplus := [layer for layer in kept_layers(config, source) if layer >= layers]:
        raise InputError(
            f"{where}: keep_layers names layer {surplus[0]}, but {source.path} has layers 0 to {layers - 1}: remove it"
        )
    kept = len(kept_layers(config, source))
    for name, value in (("split_layers", config.split_layers), ("freeze", config.freeze)):
        if value > kept:
            raise InputError(f"{where}: {name} is {value}, expected at most {kept}, the layers kept of {source.path}")
    # [CLS] and [SEP] beside each side's tokens; a pair has one [CLS]
    together = config.max_context_tokens + config.max_item_tokens + 3
    apart = max(config.max_context_tokens, config.max_item_tokens) + 2
    needed = apart if config.split_layers else together
    if needed > source.config.max_position_embeddings:
        raise InputError(
            f"{where}: max_context_tokens {config.max_context_tokens} and max_item_tokens {config.max_item_tokens} "
            f"need {needed} positions, but {source.path} has {source.config.max_position_embeddings}: lower them"
        )
