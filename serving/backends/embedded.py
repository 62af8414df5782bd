"""The backend `embedded`: runs the SavedModel in this process."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from serving.backends.base import BackendError, FeatureArrays, without_padding
from serving.backends.cache import BoundedCache
from serving.backends.saved_model import SavedModel
from serving.exports.store import VerifiedModel


class EmbeddedBackend:
    """Runs the SavedModel in this process, on the device that TensorFlow selects."""

    caches: Mapping[str, BoundedCache[Any]] = {}
    batched_calls = 0

    def __init__(self, model: VerifiedModel) -> None:
        self._saved_model = SavedModel(model)
        self.compiles_shapes = self._saved_model.compiles_rank

    def score(self, inputs: FeatureArrays, item_count: NDArray[np.int32], seconds: float) -> NDArray[np.float32]:
        try:
            scores = self._saved_model("rank", inputs | {"item_count": item_count})["score"]
        except tf.errors.OpError as error:  # its message may quote the request
            raise BackendError(type(error).__name__) from None
        return scores

    def token_counts(self, texts: list[str], seconds: float) -> NDArray[np.int32]:
        if "tokenize" not in self._saved_model:
            return np.zeros(len(texts), np.int32)
        _, counts = self._saved_model.tokenize(texts)
        return counts

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]:
        tokens, _ = self._saved_model.tokenize(texts)
        return without_padding(tokens)

    def check(self) -> None:
        pass
