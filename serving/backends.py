"""Where scores are computed. A backend takes raw feature values as arrays, and knows nothing of requests."""

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from serving.model_store import VerifiedModel

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "pkg_resources is deprecated", UserWarning)  # an import of an import's
    import tensorflow_text  # noqa: F401  registers the tokeniser's operations before a graph that has them is loaded

Inputs = dict[str, NDArray[Any]]


class BackendError(Exception):
    """A model that is loaded could not score. The message quotes nothing of the request."""


class Backend(Protocol):
    """One loaded model. Its methods may be called from several threads at once."""

    compiles_shapes: bool  # whether every new item count costs a compilation, so that counts are padded to buckets

    def score(self, inputs: Inputs, item_count: NDArray[np.int32]) -> NDArray[np.float32]:
        """inputs: each regular feature: context [groups, ...], item [groups, items, ...], text as bytes objects.

        item_count: [groups]. Returns logits [groups, items], 0 behind item_count.
        Errors: BackendError.
        """
        ...

    def token_counts(self, texts: list[str]) -> NDArray[np.int32]:
        """Each text's tokens, special tokens not counted and not truncated; zeros for a model without text."""
        ...

    def tokens(self, texts: list[str]) -> list[list[int]]:
        """The tokens that `token_counts` counts, of a model with text."""
        ...


class EmbeddedBackend:
    """The SavedModel in this process, on whatever device TensorFlow finds."""

    def __init__(self, model: VerifiedModel) -> None:
        try:
            self._loaded = tf.saved_model.load(model.path)  # held: its variables live as long as this object
        except (tf.errors.OpError, OSError, ValueError, KeyError) as error:
            raise InputError(f"{model.path} cannot be loaded: {error}. Export the model again") from None
        signatures = self._loaded.signatures
        self._rank = signatures["rank"]
        self._tokenize = signatures.get("tokenize")
        self.compiles_shapes = _has_compiled_functions(self._rank)

    def score(self, inputs: Inputs, item_count: NDArray[np.int32]) -> NDArray[np.float32]:
        tensors = {name: tf.constant(values) for name, values in inputs.items()}
        try:
            scores: NDArray[np.float32] = self._rank(item_count=tf.constant(item_count), **tensors)["score"].numpy()
        except tf.errors.OpError as error:  # its message may hold the request's text
            raise BackendError(type(error).__name__) from None
        return scores

    def token_counts(self, texts: list[str]) -> NDArray[np.int32]:
        if self._tokenize is None:
            return np.zeros(len(texts), np.int32)
        counts: NDArray[np.int32] = self._tokenize(text=tf.constant(texts))["length"].numpy()
        return counts

    def tokens(self, texts: list[str]) -> list[list[int]]:
        found = self._tokenize(text=tf.constant(texts))
        return [
            row[:length].tolist() for row, length in zip(found["tokens"].numpy(), found["length"].numpy(), strict=True)
        ]


def _has_compiled_functions(function: Any) -> bool:
    definition = function.graph.as_graph_def()
    return any(f.attr["_XlaMustCompile"].b for f in definition.library.function if "_XlaMustCompile" in f.attr)


BACKENDS: dict[str, Callable[[VerifiedModel], Backend]] = {"embedded": EmbeddedBackend}


def backend_of(name: str, model: VerifiedModel) -> Backend:
    """Loads the model into the backend of that name. Errors: InputError."""
    if name not in BACKENDS:
        raise InputError(f"backend {name!r} is unknown, expected one of {', '.join(BACKENDS)}")
    return BACKENDS[name](model)
