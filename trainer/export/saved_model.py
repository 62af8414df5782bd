"""The student as a SavedModel: its signatures from raw regular values to logits, and a check of what was saved."""

import hashlib
from typing import Any

import numpy as np
import tensorflow as tf

from features.errors import InputError
from features.spec import Feature, FeatureSpec
from trainer.data.batches import item_mask, parse_elwc
from trainer.data.preprocessing import RAW_DTYPES, Preprocessor, Tensors
from trainer.models.ranker import Ranker

_MAX_SCORE_DIFFERENCE = 1e-5  # of the loaded export's logits from the student's: absolute, and relative above 1


class ExportedRanker(tf.Module):
    """The student with its preprocessing: raw regular values in, logits out."""

    def __init__(self, preprocessor: Preprocessor, model: Ranker) -> None:
        super().__init__(name="exported")
        self.preprocessor, self.weights = preprocessor, model.variables

        def scored(regular: Tensors, mask: tf.Tensor) -> tf.Tensor:
            return model(regular, {}, mask, training=False)

        # a function, not the Keras model: Keras would save graphs of its own beside the signatures
        self._scored = scored

    def rank(self, **inputs: tf.Tensor) -> Tensors:
        """Raw regular values, as `Preprocessor.regular` takes them, and item_count int32 [groups]."""
        item_count = inputs.pop("item_count")
        items = max_items(self.preprocessor.spec, inputs, item_count)
        mask = item_mask(item_count, items)
        return {"score": self._scored(self.preprocessor.regular(inputs), mask)}

    def rank_elwc(self, examples: tf.Tensor) -> Tensors:
        """Serialised ELWC of the serving view, string [groups]."""
        raw, item_count = parse_elwc(examples, self.preprocessor.spec.regular)
        return self.rank(**raw, item_count=item_count)

    def tokenize(self, text: tf.Tensor) -> Tensors:
        """string [n] -> tokens int32 [n, longest], 0 behind length int32 [n]; not truncated."""
        tokeniser = self.preprocessor.tokeniser
        if tokeniser is None:
            raise ValueError("a spec without text has no tokeniser")
        pieces = tokeniser.tokenize(text)
        return {"tokens": pieces.to_tensor(), "length": tf.cast(pieces.row_lengths(), tf.int32)}

    def prepare(self, **inputs: tf.Tensor) -> Tensors:
        """Raw values of the regular non-text features -> the ranker's inputs; see `Preprocessor.regular`."""
        return self.preprocessor.others(inputs)

    def signatures(self) -> dict[str, Any]:
        """The contract between trainer and serving; `tokenize` only with text features, `prepare` only with others."""
        specs = {f.name: signature_input(f) for f in self.preprocessor.spec.regular}
        count = tf.TensorSpec([None], tf.int32, name="item_count")
        examples = tf.TensorSpec([None], tf.string, name="examples")
        found = {
            "rank": _graph_function(self.rank).get_concrete_function(**specs, item_count=count),
            "serving_default": _graph_function(self.rank_elwc).get_concrete_function(examples),
        }
        if others := {f.name: specs[f.name] for f in self.preprocessor.spec.regular if not f.is_text}:
            found["prepare"] = _graph_function(self.prepare).get_concrete_function(**others)
        if self.preprocessor.tokeniser is not None:
            text = tf.TensorSpec([None], tf.string, name="text")
            found["tokenize"] = _graph_function(self.tokenize).get_concrete_function(text)
        return found


def _graph_function(function: Any) -> Any:
    """The function as a graph, without AutoGraph, which takes seconds and has nothing to convert here."""
    return tf.function(function, autograph=False)


def signature_input(feature: Feature) -> tf.TensorSpec:
    """A regular feature's input of `rank`: context [groups], item [groups, items], vectors with their length last."""
    shape = [None] if feature.level == "context" else [None, None]
    return tf.TensorSpec(
        [*shape, feature.length] if feature.length > 1 else shape, RAW_DTYPES[feature.type], name=feature.name
    )


def max_items(spec: FeatureSpec, raw: Tensors, item_count: tf.Tensor) -> tf.Tensor:
    """The padded number of items: the second axis of any item feature, or the largest count where there is none."""
    for feature in spec.at("item", spec.regular):
        return tf.shape(raw[feature.name])[1]
    return tf.reduce_max(item_count)


def check_loaded(directory: str, exported: ExportedRanker, records: tf.Tensor) -> None:
    """Loads a saved export and compares its scores of ELWC records of the serving view with the student's.

    Errors: InputError where they differ.
    """
    loaded = tf.saved_model.load(directory)
    expected = exported.rank_elwc(records)["score"].numpy()
    actual = loaded.signatures["serving_default"](examples=records)["score"].numpy()
    worst = float((np.abs(expected - actual) / np.maximum(np.abs(expected), 1.0)).max())
    if not worst <= _MAX_SCORE_DIFFERENCE:
        raise InputError(
            f"the loaded export scores differ from the student's by {worst}, expected at most "
            f"{_MAX_SCORE_DIFFERENCE}: export again"
        )


def file_hashes(directory: str) -> dict[str, str]:
    """SHA-256 of every file below a directory, by relative path."""
    hashes = {}
    for folder, _, names in tf.io.gfile.walk(directory):
        for name in names:
            path = f"{folder.rstrip('/')}/{name}"
            with tf.io.gfile.GFile(path, "rb") as file:
                hashes[path.removeprefix(f"{directory}/")] = hashlib.sha256(file.read()).hexdigest()
    return hashes
