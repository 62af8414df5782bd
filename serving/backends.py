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
    """One loaded model. Its methods may be called from several threads at once.

    seconds: what is left of a request's time, for those who can do something about it.
    Errors: BackendError; Problem where what scores is elsewhere, and cannot be reached or answers wrongly.
    """

    compiles_shapes: bool  # whether every new item count costs a compilation, so that counts are padded to buckets

    def score(self, inputs: Inputs, item_count: NDArray[np.int32], seconds: float) -> NDArray[np.float32]:
        """inputs: each regular feature: context [groups, ...], item [groups, items, ...], text as bytes objects.

        item_count: [groups]. Returns logits [groups, items]; what is behind item_count means nothing.
        """
        ...

    def token_counts(self, texts: list[str], seconds: float) -> NDArray[np.int32]:
        """Each text's tokens, special tokens not counted and not truncated; zeros for a model without text."""
        ...

    def check(self) -> None:
        """Errors: Problem where it could not score now. Asked whenever somebody asks whether the gateway is ready."""
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

    def check(self) -> None:
        pass


def compiles(graph: Any) -> bool:
    """Whether XLA compiles a function of this GraphDef, for every shape anew."""
    return any(f.attr["_XlaMustCompile"].b for f in graph.library.function if "_XlaMustCompile" in f.attr)


def _embedded(model: VerifiedModel, settings: Settings) -> Backend:
    return EmbeddedBackend(model)


def _tf_serving(model: VerifiedModel, settings: Settings) -> Backend:
    from serving.remote import connection_to
    from serving.tf_serving import TensorFlowServingBackend  # imports this module

    return TensorFlowServingBackend(model, connection_to(settings.tf_serving))


BACKENDS: dict[str, Callable[[VerifiedModel, Settings], Backend]] = {"embedded": _embedded, "tf-serving": _tf_serving}


def backend_of(model: VerifiedModel, settings: Settings) -> Backend:
    """Loads the model into the backend that the settings name. Errors: InputError."""
    if settings.backend not in BACKENDS:
        raise InputError(f"backend {settings.backend!r} is unknown, expected one of {', '.join(BACKENDS)}")
    return BACKENDS[settings.backend](model, settings)
