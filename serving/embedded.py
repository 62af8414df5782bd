"""The backend `embedded`: the SavedModel in this process."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from serving.backend import BackendError, Inputs, compiles, load_signatures, without_padding
from serving.kept import Kept
from serving.model_store import VerifiedModel


class EmbeddedBackend:
    """The SavedModel in this process, on whatever device TensorFlow finds."""

    kept: Mapping[str, Kept[Any]] = {}
    joined = 0

    def __init__(self, model: VerifiedModel) -> None:
        self._loaded, signatures = load_signatures(model)  # held: its variables live as long as this object
        self._rank = signatures["rank"]
        self._tokenize = signatures.get("tokenize")
        self.compiles_shapes = compiles(self._rank.graph.as_graph_def())

    def score(self, inputs: Inputs, item_count: NDArray[np.int32], seconds: float) -> NDArray[np.float32]:
        tensors = {name: tf.constant(values) for name, values in inputs.items()}
        try:
            scores: NDArray[np.float32] = self._rank(item_count=tf.constant(item_count), **tensors)["score"].numpy()
        except tf.errors.OpError as error:  # its message may hold the request's text
            raise BackendError(type(error).__name__) from None
        return scores

    def token_counts(self, texts: list[str], seconds: float) -> NDArray[np.int32]:
        if self._tokenize is None:
            return np.zeros(len(texts), np.int32)
        counts: NDArray[np.int32] = self._tokenize(text=tf.constant(texts))["length"].numpy()
        return counts

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]:
        return without_padding(self._tokenize(text=tf.constant(texts))["tokens"].numpy())

    def check(self) -> None:
        pass
