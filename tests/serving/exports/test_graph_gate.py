"""Graphs that write a file when they are loaded or called. Each is really built, and refused before any of it runs."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.core.protobuf import saved_model_pb2

from features.errors import InputError
from tests.serving import exported_models
from tests.serving.ungated import ask_signature, load

WRITER = "__inference_write_1"


def writing_function(target: Path) -> function_pb2.FunctionDef:
    """A function that saves a checkpoint at `target` and returns a string."""

    @tf.function(input_signature=[])
    def write() -> tf.Tensor:
        values = [tf.constant(1.0)]
        saved = tf.raw_ops.SaveV2(prefix=str(target), tensor_names=["x"], shape_and_slices=[""], tensors=values)
        with tf.control_dependencies([saved]):
            return tf.constant("written")

    definition = function_pb2.FunctionDef()
    definition.CopyFrom(write.get_concrete_function().function_def)
    definition.signature.name = WRITER
    definition.signature.is_stateful = True
    [saver] = [node.name for node in definition.node_def if node.op == "SaveV2"]
    definition.control_ret["saved"] = saver  # so that whatever waits for the call runs it
    definition.signature.control_output.append("saved")
    return definition


def add_node(graph: Any, name: str, op: str, *inputs: str, dtype: tf.DType | None = None) -> None:
    node = graph.graph_def.node.add(name=name, op=op, input=list(inputs))
    if dtype is not None:
        node.attr["T"].type = dtype.as_datatype_enum


def have_write(graph: Any, tensor_name: str, target: Path) -> str:
    """Makes a node call the writing function, and nothing else. Returns the node's name."""
    graph.graph_def.library.function.append(writing_function(target))
    [node] = [node for node in graph.graph_def.node if node.name == tensor_name.split(":")[0]]
    del node.input[:]
    del node.attr["Tin"].list.type[:]
    node.attr["Tout"].list.type[:] = [tf.string.as_datatype_enum]
    node.attr["f"].func.name = WRITER
    return node.name


def edited(folder: Path, edit: Callable[[Any, Path], None]) -> Path:
    """Edits the graph of version 1 and its manifest. Returns the path of the file that the graph would write."""
    target, path = folder / "written", exported_models.export(folder)
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    edit(saved.meta_graphs[0], target)
    (path / "saved_model.pb").write_bytes(saved.SerializeToString())
    exported_models.write_manifest(path, exported_models.SHOP)
    return target


def saver_writes(graph: Any, target: Path) -> str:
    """Makes the saver's node write, which is allowed: the attack is to let something else run it. Returns its name."""
    return have_write(graph, graph.saver_def.save_tensor_name, target)


def score_behind_identity(graph: Any, target: Path) -> None:
    saver = saver_writes(graph, target)
    score = graph.signature_def["rank"].outputs["score"]
    add_node(graph, "hidden", "Identity", score.name, f"^{saver}", dtype=tf.float32)
    score.name = "hidden:0"


def tokens_behind_identities(graph: Any, target: Path) -> None:
    add_node(graph, "once", "Identity", f"{saver_writes(graph, target)}:0", dtype=tf.string)
    add_node(graph, "twice", "Identity", "once:0", dtype=tf.string)
    graph.signature_def["tokenize"].outputs["length"].name = "twice:0"


def initialiser(graph: Any, target: Path) -> None:
    add_node(graph, "initialise", "NoOp", f"^{saver_writes(graph, target)}")
    graph.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "initialise"
    graph.collection_def["saved_model_main_op"].node_list.value[:] = ["initialise"]


def restore_op(graph: Any, target: Path) -> None:
    have_write(graph, graph.saver_def.restore_op_name, target)


def without_object_graph(edit: Callable[[Any, Path], None]) -> Callable[[Any, Path], None]:
    def both(graph: Any, target: Path) -> None:
        edit(graph, target)
        graph.ClearField("object_graph_def")

    both.__name__ = f"{edit.__name__}_without_object_graph"
    return both


@pytest.fixture(scope="module")
def ungated() -> Iterator[ProcessPoolExecutor]:
    """A separate process for what a gateway or model server without the check would do."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


RANK = {"query": ["sofa"], "title": [["a sofa"]], "item_count": [1]}
ASKED: list[tuple[Callable[[Any, Path], None], str, dict[str, Any], str]] = [
    (score_behind_identity, "rank", RANK, "signature 'rank' writes variables or files (by node 'hidden')"),
    (tokens_behind_identities, "tokenize", {"text": ["sofa"]}, "signature 'tokenize' writes variables or files"),
    (initialiser, "tokenize", {"text": ["sofa"]}, "writes variables or files (by node 'initialise')"),
    (restore_op, "tokenize", {"text": ["sofa"]}, "the operation that restores variables writes files"),
]


@pytest.mark.parametrize(("edit", "signature", "feed", "told"), ASKED, ids=[case[0].__name__ for case in ASKED])
def test_a_graph_that_hides_a_write_behind_other_names_is_refused(
    ungated: ProcessPoolExecutor,
    tmp_path: Path,
    edit: Callable[[Any, Path], None],
    signature: str,
    feed: dict[str, Any],
    told: str,
) -> None:
    target = edited(tmp_path, edit)
    with pytest.raises(InputError) as refused:
        exported_models.verify(tmp_path)
    assert told in str(refused.value)
    assert not list(tmp_path.glob("written*"))
    ungated.submit(ask_signature, str(tmp_path / "1"), signature, feed).result()
    assert list(tmp_path.glob(f"{target.name}*")), "the attack is none: nothing was written"


LOADED = [without_object_graph(edit) for edit in (restore_op, initialiser)]


@pytest.mark.parametrize("edit", LOADED, ids=[edit.__name__ for edit in LOADED])
def test_a_model_without_an_object_graph_whose_load_writes_a_file_is_refused(
    ungated: ProcessPoolExecutor, tmp_path: Path, edit: Callable[[Any, Path], None]
) -> None:
    edited(tmp_path, edit)
    with pytest.raises(InputError, match="holds no object graph"):
        exported_models.verify(tmp_path)
    assert not list(tmp_path.glob("written*"))
    ungated.submit(load, str(tmp_path / "1")).result()
    assert list(tmp_path.glob("written*")), "the attack is none: nothing was written"


def uncalled_writer(graph: Any, target: Path) -> None:
    add_node(graph, "other", "Identity", saver_writes(graph, target), dtype=tf.string)


def object_graph_function(graph: Any, target: Path) -> None:
    graph.graph_def.library.function.append(writing_function(target))
    graph.object_graph_def.concrete_functions[WRITER].SetInParent()


def function_behind_function(graph: Any, target: Path) -> None:
    saver_writes(graph, target)
    [called, *_] = [f for f in graph.graph_def.library.function if "creator" in f.signature.name]
    called.node_def.add(name="call", op="StatefulPartitionedCall").attr["f"].func.name = WRITER


def function_named_as_an_operation(graph: Any, target: Path) -> None:
    function = writing_function(target)
    function.signature.name = "Identity"
    graph.graph_def.library.function.append(function)


def function_that_may_replace_another(graph: Any, target: Path) -> None:
    saver_writes(graph, target)
    graph.graph_def.library.function[-1].attr["api_implements"].s = b"tokenise"


def asset_elsewhere(graph: Any, target: Path) -> None:
    asset = graph.asset_file_def.add(filename=f"../../{target.name}")
    asset.tensor_info.name = "Const:0"


def asset_by_the_saver(graph: Any, target: Path) -> None:
    graph.asset_file_def.add(filename="vocabulary.txt").tensor_info.name = saver_writes(graph, target)


def empty_object_graph(graph: Any, target: Path) -> None:
    graph.object_graph_def.Clear()
    graph.object_graph_def.SetInParent()


def sparse_output_by_the_saver(graph: Any, target: Path) -> None:
    sparse = graph.signature_def["tokenize"].outputs["note"].coo_sparse
    sparse.values_tensor_name = saver_writes(graph, target)


WALKS = [
    (uncalled_writer, "node 'other' reaches operations that write variables or files"),
    (object_graph_function, "of the object graph writes variables or files"),
    (function_behind_function, "of the object graph writes variables or files"),
    (function_named_as_an_operation, "function 'Identity' has the name of an operation"),
    (function_that_may_replace_another, "of the saver may replace others"),
    (asset_elsewhere, "asset '../../written' is no name of a file in assets/"),
    (asset_by_the_saver, "asset 'vocabulary.txt' writes variables or files"),
    (empty_object_graph, "holds no object graph"),
    (sparse_output_by_the_saver, "signature 'tokenize' writes variables or files"),
]


@pytest.mark.parametrize(("edit", "told"), WALKS, ids=[edit.__name__ for edit, _ in WALKS])
def test_other_ways_around_the_check_are_refused(tmp_path: Path, edit: Callable[[Any, Path], None], told: str) -> None:
    edited(tmp_path, edit)
    with pytest.raises(InputError) as refused:
        exported_models.verify(tmp_path)
    assert told in str(refused.value)
