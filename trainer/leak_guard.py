"""The export's guard: nothing in a SavedModel may take a privileged feature or a label as input."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from features.errors import InputError
from features.spec import FeatureSpec


def refuse_privileged(directory: str, spec: FeatureSpec) -> None:
    """Reads a saved SavedModel, signatures and graph, and refuses it when it can reach what serving may not see.

    Errors: InputError naming the feature and where it was found.
    """
    with tf.io.gfile.GFile(f"{directory}/saved_model.pb", "rb") as file:
        saved = saved_model_pb2.SavedModel.FromString(file.read())
    hidden = {feature.name for feature in spec if feature.role != "regular"}
    allowed = {feature.name for feature in spec.regular} | {"item_count", "examples", "text"}
    for where, name in inputs_of(saved):
        if name in hidden or (where.startswith("signature") and name not in allowed):
            role = spec[name].role if name in spec else "not in the spec"
            raise InputError(
                f"the export reads {name!r} ({role}) in {where}: serving may see regular features only. "
                "Export a model whose inputs are the spec's regular features"
            )


def inputs_of(saved: Any) -> Iterator[tuple[str, str]]:
    """(where, name) of everything that a SavedModel reads: signature inputs, placeholders, and parsed features."""
    for meta in saved.meta_graphs:
        for signature, definition in meta.signature_def.items():
            for name in definition.inputs:
                yield f"signature {signature}", name
        yield from _graph_inputs("the graph", meta.graph_def.node)
        for function in meta.graph_def.library.function:
            where = f"function {function.signature.name}"
            yield from ((where, argument.name) for argument in function.signature.input_arg)
            yield from _graph_inputs(where, function.node_def)
        for node in meta.object_graph_def.nodes:
            # a layer made for a feature carries its name, such as category_brand
            yield from (("the variables", part) for part in _feature_parts(node.variable.name))


def _feature_parts(variable: str) -> Iterator[str]:
    for part in variable.split("/"):
        yield part.removeprefix("category_")


def _graph_inputs(where: str, nodes: Any) -> Iterator[tuple[str, str]]:
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op == "Placeholder":
            yield where, node.name
        elif "ParseExample" in node.op or "ParseSingleExample" in node.op:
            for source in (by_name.get(name.split(":")[0].lstrip("^")) for name in node.input):
                if source is not None and source.op == "Const":
                    value = tf.make_ndarray(source.attr["value"].tensor)
                    if value.dtype == object:
                        yield from (
                            (f"{where}, which parses examples", key.decode(errors="replace")) for key in value.ravel()
                        )
