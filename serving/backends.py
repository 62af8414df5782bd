"""Where scores are computed. A backend takes raw feature values as arrays, and knows nothing of requests."""

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from serving.model_store import VerifiedModel
from serving.settings import Settings

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


class EmbeddedBackend:
    """The SavedModel in this process, on whatever device TensorFlow finds."""

    def __init__(self, model: VerifiedModel) -> None:
        self._loaded, signatures = load_signatures(model)  # held: its variables live as long as this object
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


def load_signatures(model: VerifiedModel) -> tuple[Any, Any]:
    """The SavedModel and its signatures by name. Errors: InputError."""
    try:
        loaded = tf.saved_model.load(model.path)
    except (tf.errors.OpError, OSError, ValueError, KeyError) as error:
        raise InputError(f"{model.path} cannot be loaded: {error}. Export the model again") from None
    return loaded, loaded.signatures


def _has_compiled_functions(function: Any) -> bool:
    definition = function.graph.as_graph_def()
    return any(f.attr["_XlaMustCompile"].b for f in definition.library.function if "_XlaMustCompile" in f.attr)


def _embedded(model: VerifiedModel, settings: Settings) -> Backend:
    return EmbeddedBackend(model)


def _litert(model: VerifiedModel, settings: Settings) -> Backend:
    from serving.litert import LiteRtBackend  # imports this module

    return LiteRtBackend(model, settings.litert, settings.queue.threads)


BACKENDS: dict[str, Callable[[VerifiedModel, Settings], Backend]] = {"embedded": _embedded, "litert": _litert}


def backend_of(model: VerifiedModel, settings: Settings) -> Backend:
    """Loads the model into the backend that the settings name. Errors: InputError."""
    if settings.backend not in BACKENDS:
        raise InputError(f"backend {settings.backend!r} is unknown, expected one of {', '.join(BACKENDS)}")
    return BACKENDS[settings.backend](model, settings)
