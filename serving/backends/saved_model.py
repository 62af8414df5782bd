"""A SavedModel's signatures, as functions of arrays.

They run in a session: called eagerly, TensorFlow 2.15 takes up to a tenth longer, and every call leaves some 100 bytes
in the process that are never given back.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from serving.backend import Inputs, compiles
from serving.model_store import VerifiedModel

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "pkg_resources is deprecated", UserWarning)  # an import of an import's
    import tensorflow_text  # noqa: F401  registers the tokeniser's operations before a graph that has them is loaded


class SavedModel:
    """A verified version's graph with its variables and tables. May be called from several threads at once."""

    def __init__(self, model: VerifiedModel) -> None:
        """Errors: InputError."""
        graph = tf.Graph()
        try:
            with graph.as_default():
                signatures = tf.saved_model.load(model.path).signatures
                taken = {name: _placeholders(function) for name, function in signatures.items()}
                made = {name: function(**taken[name]) for name, function in signatures.items()}
                initialisers = tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()
            session = tf.compat.v1.Session(graph=graph)
            session.run(initialisers)
        except (tf.errors.OpError, OSError, ValueError, KeyError) as error:
            raise InputError(f"{model.path} cannot be loaded: {error}. Export the model again") from None
        graph.finalize()
        self._inputs = {name: list(of_signature) for name, of_signature in taken.items()}
        self._run = {
            name: session.make_callable(outputs, feed_list=list(taken[name].values())) for name, outputs in made.items()
        }
        self.compiles_rank = compiles(signatures["rank"].graph.as_graph_def())

    def __contains__(self, signature: str) -> bool:
        return signature in self._run

    def __call__(self, signature: str, inputs: Inputs) -> dict[str, NDArray[Any]]:
        """A signature's outputs by name. inputs: each of its inputs, of its type. Errors: tf.errors.OpError."""
        outputs: dict[str, NDArray[Any]] = self._run[signature](*(inputs[name] for name in self._inputs[signature]))
        return outputs

    def tokenize(self, texts: Sequence[str] | Sequence[bytes]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Each text's tokens, [texts, most tokens] with 0 behind a text's last, and how many they are, [texts]."""
        found = self("tokenize", {"text": np.array(texts, object)})
        return found["tokens"], found["length"]


def _placeholders(function: Any) -> dict[str, Any]:
    _, inputs = function.structured_input_signature
    return {name: tf.compat.v1.placeholder(spec.dtype, spec.shape) for name, spec in inputs.items()}
