"""Checks a SavedModel's graph before it is loaded: only known operations, signatures and inputs are allowed."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from features.errors import InputError
from features.spec import Feature, FeatureSpec
from serving.exports.graph.allowed_operations import ALLOWED, SAVER_ONLY, WRITES_FILES, refusal_of
from serving.exports.graph.trace import Vertex, node_of, trace_of

DTYPES = {"text": tf.string, "categorical": tf.string, "float": tf.float32, "int": tf.int64, "bool": tf.bool}
_INITIALISER = "__saved_model_init_op"
_INTERNAL = re.compile("_[A-Z]")  # TensorFlow's internal operations, such as _Send
_REMEDY = "Serve only models of your own; export this one again from its run"


def check_graph(content: bytes, spec: FeatureSpec, where: str) -> None:
    """Refuses a saved_model.pb with an operation or an input that serving does not know.

    spec: from the model's manifest. where: names the file in errors.
    Raises: InputError.
    """
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString(content)
    except Exception as error:  # protobuf's DecodeError has no public import path
        raise InputError(f"{where} is no SavedModel ({error}). Export the model again") from None
    if len(saved.meta_graphs) != 1:
        raise InputError(f"{where} holds {len(saved.meta_graphs)} graphs, expected one. {_REMEDY}")
    graph = saved.meta_graphs[0]
    _check_object_graph(graph, where)
    _check_assets(graph, where)
    _check_operations(graph, where)
    _check_savers(graph, where)
    check_signatures(graph.signature_def, spec, where)
    _check_parsed_names(graph, spec, where)


def _check_object_graph(graph: Any, where: str) -> None:
    """Requires an object graph: without one, TensorFlow loads by the TF1 path, which runs initialisers."""
    if not graph.HasField("object_graph_def") or not graph.object_graph_def.nodes:
        raise InputError(f"{where} holds no object graph (object_graph_def), expected one. {_REMEDY}")


def _check_assets(graph: Any, where: str) -> None:
    """Requires assets to be files in the version's `assets/`: another path would read a file of this machine."""
    for asset in graph.asset_file_def:
        if asset.filename in ("", ".", "..") or set(asset.filename) & {"/", "\\", "\0"}:
            raise InputError(f"{where}: asset {asset.filename!r} is no name of a file in assets/. {_REMEDY}")


def _check_operations(graph: Any, where: str) -> None:
    library = {function.signature.name: function for function in graph.graph_def.library.function}
    if len(library) != len(graph.graph_def.library.function):
        raise InputError(f"{where} holds two functions of one name. {_REMEDY}")
    for name in library:
        # a call of this function could be mistaken for the operation, or the operation for a call
        if name in ALLOWED or name in SAVER_ONLY or hasattr(tf.raw_ops, name) or _INTERNAL.match(name):
            raise InputError(f"{where}: function {name!r} has the name of an operation. {_REMEDY}")
    for name, nodes in [("", graph.graph_def.node), *((name, f.node_def) for name, f in library.items())]:
        for node in nodes:
            in_saver = name and node.op in SAVER_ONLY
            if not in_saver and node.op not in library and (reason := refusal_of(node)):
                raise InputError(f"{where}: {reason} (node {node.name!r}). {_REMEDY}")


def _check_savers(graph: Any, where: str) -> None:
    """Requires that only the saver's save and restore nodes reach operations of SAVER_ONLY.

    So no signature, initialiser, asset tensor or function of the object graph can reach them. The restore node, which a
    model server runs when it loads the model, must not save.
    """
    trace = trace_of(graph, SAVER_ONLY)
    reaching = trace.reaching(SAVER_ONLY)
    saver = {("node", node_of(name)) for name in (graph.saver_def.save_tensor_name, graph.saver_def.restore_op_name)}
    for what, vertex in _entry_points(graph):
        if vertex in reaching:
            raise InputError(f"{where}: {what} writes variables or files (by {vertex[0]} {vertex[1]!r}). {_REMEDY}")
    for kind, name in sorted(reaching - saver):
        if kind == "node":
            raise InputError(f"{where}: node {name!r} reaches operations that write variables or files. {_REMEDY}")
    if ("node", node_of(graph.saver_def.restore_op_name)) in trace.reaching(WRITES_FILES):
        raise InputError(f"{where}: the operation that restores variables writes files. {_REMEDY}")
    for function in graph.graph_def.library.function:
        # TensorFlow's optimiser may call it instead of another function with the same attribute value
        if ("function", function.signature.name) in reaching and "api_implements" in function.attr:
            raise InputError(
                f"{where}: function {function.signature.name!r} of the saver may replace others. {_REMEDY}"
            )


def _entry_points(graph: Any) -> Iterator[tuple[str, Vertex]]:
    """Yields all that TensorFlow or a model server may run by itself or for a request, except the saver."""
    for name, signature in graph.signature_def.items():
        for tensor in [*signature.outputs.values(), *signature.inputs.values()]:
            for tensor_name in _tensor_names(tensor):
                yield f"signature {name!r}", ("node", node_of(tensor_name))
    for name, collection in graph.collection_def.items():
        for tensor_name in collection.node_list.value:
            yield f"collection {name!r}", ("node", node_of(tensor_name))
    for asset in graph.asset_file_def:
        yield f"asset {asset.filename!r}", ("node", node_of(asset.tensor_info.name))
    for name in graph.object_graph_def.concrete_functions:
        yield f"function {name!r} of the object graph", ("function", name)


def _tensor_names(info: Any) -> list[str]:
    """Returns the tensor names in a TensorInfo: one, or those of a sparse or composite tensor."""
    sparse = info.coo_sparse
    parts = [sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name]
    parts += [name for part in info.composite_tensor.components for name in _tensor_names(part)]
    return [name for name in (info.name, *parts) if name]


def check_signatures(signatures: Any, spec: FeatureSpec, where: str) -> None:
    """Refuses SignatureDefs (by name) that differ from the contract for this spec. Raises: InputError."""
    expected = signature_inputs(spec)
    for name, signature in signatures.items():
        if name == _INITIALISER:
            continue
        if name not in expected:
            raise InputError(f"{where}: unknown signature {name!r}, expected {', '.join(expected)}. {_REMEDY}")
        if surplus := set(signature.inputs) - expected[name]:
            raise InputError(f"{where}: signature {name!r} {_surplus(sorted(surplus)[0], spec)}. {_REMEDY}")
        if missing := expected[name] - set(signature.inputs):
            raise InputError(f"{where}: signature {name!r} has no input {sorted(missing)[0]!r}. {_REMEDY}")
    if "rank" not in signatures:
        raise InputError(f"{where}: no signature 'rank', found {', '.join(signatures) or 'none'}. {_REMEDY}")
    if any(feature.is_text for feature in spec.regular) and "tokenize" not in signatures:
        raise InputError(f"{where}: no signature 'tokenize', which a spec with text needs. {_REMEDY}")
    _check_types(signatures["rank"], spec.regular, where)


def signature_inputs(spec: FeatureSpec) -> dict[str, set[str]]:
    """Returns the signatures that a model of this spec may have, each with the names of its inputs."""
    return {
        "rank": {*(feature.name for feature in spec.regular), "item_count"},
        "serving_default": {"examples"},
        "tokenize": {"text"},
        "prepare": {feature.name for feature in spec.regular if not feature.is_text},
    }


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
        raise InputError(f"{where}: signature 'rank' returns {', '.join(rank.outputs)}, expected score. {_REMEDY}")
    _check_type("output 'score'", rank.outputs["score"], tf.float32, 2, where)


def _rank_of(feature: Feature) -> int:
    return 1 + (feature.level == "item") + (feature.length > 1)


def _check_type(what: str, info: Any, dtype: tf.DType, dimensions: int, where: str) -> None:
    try:
        found, shape = tf.dtypes.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape)
    except (TypeError, ValueError):
        raise InputError(f"{where}: {what} of signature 'rank' is of no type that TensorFlow has. {_REMEDY}") from None
    if found != dtype or shape.rank not in (None, dimensions):
        message = f"{what} of signature 'rank' is {found.name} {shape}"
        raise InputError(f"{where}: {message}, expected {dtype.name} of {dimensions} dimensions. {_REMEDY}")


def _check_parsed_names(graph: Any, spec: FeatureSpec, where: str) -> None:
    """Refuses privileged names that the graph parses from serialised examples: input names do not show them."""
    hidden = {feature.name.encode(): feature for feature in spec if feature.role in ("privileged", "label")}
    bodies = [graph.graph_def.node, *(function.node_def for function in graph.graph_def.library.function)]
    for nodes in bodies:
        if not any(node.op.startswith(("ParseExample", "ParseSe", "ParseSi")) for node in nodes):
            continue
        for node in nodes:
            if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
                for name in set(node.attr["value"].tensor.string_val) & hidden.keys():
                    message = f"reads feature {name.decode()!r} from examples, whose role is {hidden[name].role}"
                    raise InputError(f"{where}: the graph {message}: serving sees regular features only. {_REMEDY}")
