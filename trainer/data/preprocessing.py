"""Raw feature values -> the ranker's inputs, in the graph, the same in training and serving."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.manifest import FeatureStatistics, Numbers
from features.spec import Feature, FeatureSpec
from trainer.architecture import StudentConfig
from trainer.data.tokenizer import WordPieceTokeniser

Tensors = dict[str, tf.Tensor]

RAW_DTYPES = {"text": tf.string, "categorical": tf.string, "float": tf.float32, "int": tf.int64, "bool": tf.bool}


@dataclass(frozen=True)
class Scale:
    """Clips a number to the training range, then standardises it; elementwise for vectors."""

    minimum: Numbers
    maximum: Numbers
    mean: Numbers
    deviation: Numbers

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        clipped = tf.clip_by_value(tf.cast(values, tf.float32), self.minimum, self.maximum)
        return (clipped - self.mean) / self.deviation


def scale_of(statistics: FeatureStatistics) -> Scale:
    """The Scale of a numeric feature; a number that is constant in training becomes 0."""
    found = (statistics.minimum, statistics.maximum, statistics.mean, statistics.deviation)
    minimum, maximum, mean, deviation = (np.asarray(0.0 if part is None else part) for part in found)
    constant = minimum == maximum  # its deviation may be a rounding error
    mean, deviation = np.where(constant, minimum, mean), np.where(constant | (deviation == 0.0), 1.0, deviation)
    return Scale(*(_plain(part) for part in (minimum, maximum, mean, deviation)))


def _plain(numbers: NDArray[np.float64]) -> Numbers:
    return tuple(numbers.tolist()) if numbers.ndim else float(numbers)


class Preprocessor(tf.Module):
    """Turns raw values of regular features, and of privileged ones for teachers, into numbers and tokens.

    spec: the task's features. statistics: the train split's, by feature name.
    tokeniser: None for a spec without regular text. sees: the privileged features; empty for the export.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        statistics: dict[str, FeatureStatistics],
        config: StudentConfig,
        tokeniser: WordPieceTokeniser | None,
        sees: tuple[Feature, ...] = (),
    ) -> None:
        super().__init__(name="preprocessor")
        self.spec, self.config, self.tokeniser = spec, config, tokeniser
        self.sees = tuple(f for f in sees if not f.is_text)
        inputs = (*spec.regular, *self.sees)
        self.scales = {f.name: scale_of(statistics[f.name]) for f in inputs if f.is_numeric}
        self.categories = {f.name: list(statistics[f.name].values or {}) for f in inputs if f.type == "categorical"}
        self._lookups = {name: _lookup_table(values) for name, values in self.categories.items()}

    def regular(self, raw: Tensors) -> Tensors:
        """The student's inputs; `raw` holds each regular feature: context [groups, ...], item [groups, items, ...].

        Returns context_tokens int32 [groups, tokens], item_tokens int32 [groups, items, tokens] (where there is
        text), and each other feature under its name, numbers float32 [..., length], categories int32.
        """
        inputs = self.others(raw)
        context_texts = [raw[f.name] for f in self.spec.at("context", self.spec.regular) if f.is_text]
        item_texts = [raw[f.name] for f in self.spec.at("item", self.spec.regular) if f.is_text]
        if self.tokeniser is not None and context_texts:
            inputs["context_tokens"] = self.tokeniser.side(context_texts, self.config.max_context_tokens)
        if self.tokeniser is not None and item_texts:
            shape = tf.shape(item_texts[0])
            flat = [tf.reshape(text, [-1]) for text in item_texts]
            tokens = self.tokeniser.side(flat, self.config.max_item_tokens)
            inputs["item_tokens"] = tf.reshape(tokens, [shape[0], shape[1], tf.shape(tokens)[1]])
        return inputs

    def others(self, raw: Tensors) -> Tensors:
        """The non-text inputs of `regular`."""
        return {f.name: self._value(f, raw[f.name]) for f in self.spec.regular if not f.is_text}

    def privileged(self, raw: Tensors) -> Tensors:
        """The privileged inputs of teachers: each feature of `sees` under its name, in the form of `regular`."""
        return {f.name: self._value(f, raw[f.name]) for f in self.sees}

    def imputed(self, privileged: Tensors, way: str) -> Tensors:
        """The inputs of `privileged`, with every value imputed: "zero", or "mean" of the training split."""
        return {
            f.name: tf.zeros_like(privileged[f.name])
            if f.type == "categorical" or way == "mean"  # 0 is the bucket of unseen categories, and the scaled mean
            else tf.zeros_like(privileged[f.name]) + self.scales[f.name](tf.zeros([f.length]))
            for f in self.sees
        }

    def _value(self, feature: Feature, values: tf.Tensor) -> tf.Tensor:
        if feature.type == "categorical":
            return self._lookups[feature.name].lookup(values)
        numbers = self.scales[feature.name](values)
        return numbers if feature.length > 1 else numbers[..., tf.newaxis]


def _lookup_table(values: list[str]) -> Any:
    """Maps a category to 1 .. n, and categories unseen in training to 0."""
    table = tf.lookup.KeyValueTensorInitializer(
        tf.constant(values or [""]), tf.range(1, max(len(values), 1) + 1, dtype=tf.int32)
    )
    return tf.lookup.StaticHashTable(table, default_value=0)
