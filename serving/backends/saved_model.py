"""Runs a SavedModel's signatures on numpy arrays.

They run in a session: an eager call in TensorFlow 2.15 takes up to 10% longer and leaks some 100 bytes.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from serving.backends.base import FeatureArrays, uses_xla
from serving.exports.graph.check import signature_inputs
from serving.exports.store import VerifiedModel

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "pkg_resources is deprecated", UserWarning)  # raised by a transitive import
    import tensorflow_text  # noqa: F401  registers the tokeniser's operations, which loading a graph requires


class SavedModel:
    """A verified version's graph with its variables and tables. Thread-safe."""

    def __init__(self, model: VerifiedModel) -> None:
        """Reads all files of the model; none is read later. Raises: InputError."""
        graph = tf.Graph()
        try:
            with graph.as_default():
                signatures = tf.saved_model.load(model.path).signatures
                _check_inputs(signatures, model)
                placeholders = {name: _placeholders(function) for name, function in signatures.items()}
                results = {name: function(**placeholders[name]) for name, function in signatures.items()}
                initialisers = tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()
            session = tf.compat.v1.Session(graph=graph)
            session.run(initialisers)
        except (tf.errors.OpError, OSError, ValueError, KeyError) as error:
            raise InputError(f"{model.source} cannot be loaded: {error}. Export the model again") from None
        graph.finalize()
        self._inputs = {name: list(of_signature) for name, of_signature in placeholders.items()}
        self._run = {
            name: session.make_callable(outputs, feed_list=list(placeholders[name].values()))
            for name, outputs in results.items()
        }
        self.compiles_rank = uses_xla(signatures["rank"].graph.as_graph_def())

    def __contains__(self, signature: str) -> bool:
        return signature in self._run

    def __call__(self, signature: str, inputs: FeatureArrays) -> dict[str, NDArray[Any]]:
        """Runs a signature; returns its outputs by name. inputs: all its inputs, of their types. Raises: OpError."""
        outputs: dict[str, NDArray[Any]] = self._run[signature](*(inputs[name] for name in self._inputs[signature]))
        return outputs

    def tokenize(self, texts: Sequence[str] | Sequence[bytes]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Returns the texts' tokens, int32 [texts, max tokens] padded with 0, and their counts, int32 [texts]."""
        outputs = self("tokenize", {"text": np.array(texts, object)})
        return outputs["tokens"], outputs["length"]


def _check_inputs(signatures: Mapping[str, Any], model: VerifiedModel) -> None:
    """Checks the object graph's functions, which run. `check_graph` checked the SignatureDefs of the same names."""
    expected = signature_inputs(model.manifest.spec)
    for name in {"rank", *signatures}:
        found = set(signatures[name].structured_input_signature[1]) if name in signatures else None
        if found is None or found != expected.get(name):
            message = f"signature {name!r} of the object graph differs from the one of the graph"
            raise InputError(f"{model.source} cannot be loaded: {message}. Export the model again")


def _placeholders(function: Any) -> dict[str, Any]:
    _, inputs = function.structured_input_signature
    return {name: tf.compat.v1.placeholder(spec.dtype, spec.shape) for name, spec in inputs.items()}
