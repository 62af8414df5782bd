"""Reads a SavedModel's graph before it is loaded, and refuses what a ranker has no use for."""

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from features.errors import InputError
from features.spec import Feature, FeatureSpec
from serving.allowed_ops import SAVER_ONLY, refusal_of

DTYPES = {"text": tf.string, "categorical": tf.string, "float": tf.float32, "int": tf.int64, "bool": tf.bool}
INITIALISER = "__saved_model_init_op"
REMEDY = "Serve only models of your own; export this one again from its run"


def check_graph(content: bytes, spec: FeatureSpec, where: str) -> None:
    """Refuses a saved_model.pb with an operation or an input that serving does not know.

    spec: of the model's manifest. where: names the file in errors.
    Errors: InputError.
    """
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString(content)
    except Exception as error:  # protobuf's DecodeError, which has no public home
        raise InputError(f"{where} is no SavedModel ({error}). Export the model again") from None
    if len(saved.meta_graphs) != 1:
        raise InputError(f"{where} holds {len(saved.meta_graphs)} graphs, expected one. {REMEDY}")
    graph = saved.meta_graphs[0]
    _check_operations(graph, where)
    check_signatures(graph.signature_def, spec, where)
    _check_parsed_names(graph, spec, where)


def _check_operations(graph: Any, where: str) -> None:
    functions = {function.signature.name: function.node_def for function in graph.graph_def.library.function}
    savers = {name for name, nodes in functions.items() if any(node.op in SAVER_ONLY for node in nodes)}
    saver_nodes = {_node_of(graph.saver_def.save_tensor_name), _node_of(graph.saver_def.restore_op_name)}
    for name, nodes in [("", graph.graph_def.node), *functions.items()]:
        for node in nodes:
            saving = name in savers and node.op in SAVER_ONLY
            if not saving and node.op not in functions and (reason := refusal_of(node)):
                raise InputError(f"{where}: {reason} (node {node.name!r}). {REMEDY}")
            called = {node.op, *_functions_named_by(node)}
            if called & savers and not (name == "" and node.name in saver_nodes):
                raise InputError(
                    f"{where}: node {node.name!r} calls a function that writes variables or files. {REMEDY}"
                )
    used = {
        _node_of(output.name) for signature in graph.signature_def.values() for output in signature.outputs.values()
    }
    callable_savers = savers & set(graph.object_graph_def.concrete_functions)
    if used & saver_nodes or callable_savers:
        raise InputError(f"{where}: a signature writes variables or files. {REMEDY}")


def _node_of(tensor_name: str) -> str:
    return tensor_name.split(":", 1)[0]


def _functions_named_by(node: Any) -> Iterator[str]:
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        yield from (function.name for function in value.list.func)


def check_signatures(signatures: Any, spec: FeatureSpec, where: str) -> None:
    """Refuses SignatureDefs, by name, that are not the contract's for this spec. Errors: InputError."""
    regular = {feature.name: feature for feature in spec.regular}
    expected = {
        "rank": {*regular, "item_count"},
        "serving_default": {"examples"},
        "tokenize": {"text"},
        "prepare": {name for name, feature in regular.items() if not feature.is_text},
    }
    for name, signature in signatures.items():
        if name == INITIALISER:
            continue
        if name not in expected:
            raise InputError(f"{where}: unknown signature {name!r}, expected {', '.join(expected)}. {REMEDY}")
        if surplus := set(signature.inputs) - expected[name]:
            raise InputError(f"{where}: signature {name!r} {_surplus(sorted(surplus)[0], spec)}. {REMEDY}")
        if missing := expected[name] - set(signature.inputs):
            raise InputError(f"{where}: signature {name!r} has no input {sorted(missing)[0]!r}. {REMEDY}")
    if "rank" not in signatures:
        raise InputError(f"{where}: no signature 'rank', found {', '.join(signatures) or 'none'}. {REMEDY}")
    if any(feature.is_text for feature in spec.regular) and "tokenize" not in signatures:
        raise InputError(f"{where}: no signature 'tokenize', which a spec with text needs. {REMEDY}")
    _check_types(signatures["rank"], regular.values(), where)


def _surplus(name: str, spec: FeatureSpec) -> str:
    if name in spec:
        return f"takes feature {name!r}, whose role is {spec[name].role}: serving sees regular features only"
    return f"takes an unknown input {name!r}"


def _check_types(rank: Any, regular: Iterable[Feature], where: str) -> None:
    expected = {feature.name: (DTYPES[feature.type], _rank_of(feature)) for feature in regular}
    expected["item_count"] = (tf.int32, 1)
    for name, (dtype, dimensions) in expected.items():
        _check_type(f"input {name!r}", rank.inputs[name], dtype, dimensions, where)
    if set(rank.outputs) != {"score"}:
        raise InputError(f"{where}: signature 'rank' returns {', '.join(rank.outputs)}, expected score. {REMEDY}")
    _check_type("output 'score'", rank.outputs["score"], tf.float32, 2, where)


def _rank_of(feature: Feature) -> int:
    return 1 + (feature.level == "item") + (feature.length > 1)


def _check_type(what: str, info: Any, dtype: tf.DType, dimensions: int, where: str) -> None:
    try:
        found, shape = tf.dtypes.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape)
    except (TypeError, ValueError):
        raise InputError(f"{where}: {what} of signature 'rank' is of no type that TensorFlow has. {REMEDY}") from None
    if found != dtype or shape.rank not in (None, dimensions):
        told = f"{what} of signature 'rank' is {found.name} {shape}"
        raise InputError(f"{where}: {told}, expected {dtype.name} of {dimensions} dimensions. {REMEDY}")


def _check_parsed_names(graph: Any, spec: FeatureSpec, where: str) -> None:
    """The serialised examples that `serving_default` takes could smuggle what the inputs' names do not show."""
    hidden = {feature.name.encode(): feature for feature in spec if feature.role in ("privileged", "label")}
    bodies = [graph.graph_def.node, *(function.node_def for function in graph.graph_def.library.function)]
    for nodes in bodies:
        if not any(node.op.startswith(("ParseExample", "ParseSe", "ParseSi")) for node in nodes):
            continue
        for node in nodes:
            if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
                for name in set(node.attr["value"].tensor.string_val) & hidden.keys():
                    told = f"reads feature {name.decode()!r} from examples, whose role is {hidden[name].role}"
                    raise InputError(f"{where}: the graph {told}: serving sees regular features only. {REMEDY}")
