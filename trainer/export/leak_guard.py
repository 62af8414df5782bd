"""The export's guard: nothing in a SavedModel may take a privileged feature or a label as input."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from features.errors import InputError
from features.spec import FeatureSpec
from trainer.models.ranker import CATEGORY


def refuse_privileged(directory: str, spec: FeatureSpec) -> None:
    """Refuses a SavedModel whose signatures or graph can read a feature that serving may not see.

    Errors: InputError naming the feature and where it was found.
    """
    with tf.io.gfile.GFile(f"{directory}/saved_model.pb", "rb") as file:
        saved = saved_model_pb2.SavedModel.FromString(file.read())
    hidden = {feature.name for feature in spec if feature.role != "regular"}
    allowed = {feature.name for feature in spec.regular} | {"item_count", "examples", "text"}
    for where, name in graph_inputs(saved):
        if name in hidden or (where.startswith("signature") and name not in allowed):
            role = spec[name].role if name in spec else "not in the spec"
            raise InputError(
                f"the export reads {name!r} ({role}) in {where}: serving may see regular features only. "
                "Export a model whose inputs are the spec's regular features"
            )


def graph_inputs(saved: Any) -> Iterator[tuple[str, str]]:
    """Yields (where, name) of all inputs of a SavedModel: signature inputs, placeholders and parsed features."""
    for meta in saved.meta_graphs:
        for signature, definition in meta.signature_def.items():
            for name in definition.inputs:
                yield f"signature {signature}", name
        yield from (("the graph", node.name) for node in meta.graph_def.node if node.op == "Placeholder")
        for function in meta.graph_def.library.function:
            where = f"function {function.signature.name}"
            # TensorFlow names a tensor of the dict argument `privileged` by joining both names
            yield from ((where, a.name.removeprefix("privileged_")) for a in function.signature.input_arg)
            yield from ((where, node.name) for node in function.node_def if node.op == "Placeholder")
        yield from _parsed_names(meta.graph_def)
        for node in meta.object_graph_def.nodes:
            layers = node.variable.name.split("/")
            yield from (("the variables", name.removeprefix(CATEGORY)) for name in layers if name.startswith(CATEGORY))


def _parsed_names(graph: Any) -> Iterator[tuple[str, str]]:
    """Yields every string constant that the graph could use to select a feature from examples.

    These are constants in functions that parse or decode, in their callers, and constants passed to either: a name may
    reach the parser on any path, or be compared with the keys of a decoded map.
    """
    bodies = {function.signature.name: function.node_def for function in graph.library.function}
    parsing = {name for name, nodes in bodies.items() if any(_parses(node) for node in nodes)}
    while callers := {name for name, nodes in bodies.items() if any(_called(n) & parsing for n in nodes)} - parsing:
        parsing |= callers
    for name in sorted(parsing):
        yield from ((f"function {name}, which parses examples", value) for value in _strings(bodies[name]))
    parses = any(_parses(node) for node in graph.node)
    handed = {source for node in graph.node if _called(node) & parsing for source in node.input}
    nodes = [node for node in graph.node if parses or node.name in handed]
    yield from (("the graph, which parses examples", value) for value in _strings(nodes))


def _parses(node: Any) -> bool:
    return any(part in node.op for part in ("ParseExample", "ParseSingle", "ParseSequence", "DecodeProto"))


def _called(node: Any) -> set[str]:
    """Names of the functions that a node may call."""
    listed = (function.name for value in node.attr.values() for function in value.list.func)
    return {node.op, *(value.func.name for value in node.attr.values() if value.HasField("func")), *listed}


def _strings(nodes: Any) -> Iterator[str]:
    for node in nodes:
        if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
            values = tf.make_ndarray(node.attr["value"].tensor).ravel()
            yield from (value.decode(errors="replace") for value in values)
