"""Loads and asks a SavedModel without any gate, to show what a hostile one does. To be run in a process of its own."""

import os
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokeniser's operations


def ask_signature(path: str, signature: str, feed: dict[str, Any]) -> None:
    """Asks a signature of the main graph, as a model server does."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], path)
        of_signature = loaded.signature_def[signature]
        given = {of_signature.inputs[name].name: value for name, value in feed.items()}
        session.run([output.name for output in of_signature.outputs.values()], given)


def load(path: str) -> None:
    """Loads, as the backend `embedded` does; by its older path TensorFlow runs the saver and the initialisers."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.saved_model.load(path)
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()])
        session.run(tf.compat.v1.get_collection("saved_model_initializers"))
