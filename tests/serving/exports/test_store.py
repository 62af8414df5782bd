"""Verification before a model is loaded, with directories and graphs that were tampered with."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from features.errors import InputError
from serving.exports.store import PIN, find_version, pinned_version
from serving.models.loaded_model import load
from serving.settings import Settings
from tests.serving import exported_models
from tests.serving.processes import run_serving


@pytest.fixture
def copied(shop_export: Path, tmp_path: Path) -> Path:
    """A copy of version 3, for tests that change it."""
    shutil.copytree(shop_export / "3", tmp_path / "3")
    return tmp_path


def test_the_highest_complete_version_is_found(copied: Path) -> None:
    for name in ("1", "10", "9", "011", "latest", "3.tmp", ".4"):
        (copied / name).mkdir()
    shutil.copytree(copied / "3" / "assets.extra", copied / "9" / "assets.extra")
    assert find_version(str(copied)) == 9  # 10 has no manifest, so it is not complete


def test_a_file_may_pin_a_version(copied: Path) -> None:
    assert pinned_version(str(copied)) is None
    (copied / PIN).write_text("3\n")
    assert pinned_version(str(copied)) == 3
    for wrong in ("", "three", "3.0", "-1", "\udcff", "3 4"):
        (copied / PIN).write_bytes(wrong.encode("utf-8", "surrogateescape"))
        with pytest.raises(InputError, match="expected the number of a version"):
            pinned_version(str(copied))


def test_the_model_as_exported_is_accepted(copied: Path) -> None:
    assert exported_models.verify(copied, 3).name == "overlap"


def change(path: Path) -> None:
    content = bytearray((path / "saved_model.pb").read_bytes())
    content[-1] ^= 1
    (path / "saved_model.pb").write_bytes(content)


def change_variables(path: Path) -> None:
    [data] = (path / "variables").glob("*.data-*")
    data.write_bytes(b"\0" * data.stat().st_size)


def add_file(path: Path) -> None:
    (path / "assets").mkdir(exist_ok=True)
    (path / "assets" / "extra.txt").write_text("unlisted")


def add_beside_the_manifest(path: Path) -> None:
    (path / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"")


def remove_file(path: Path) -> None:
    (path / "variables" / "variables.index").unlink()


def list_a_file_elsewhere(path: Path) -> None:
    manifest = path / "assets.extra" / "manifest.json"
    said = json.loads(manifest.read_text())
    said["files"]["../../../etc/passwd"] = "0" * 64
    manifest.write_text(json.dumps(said))


def cut_manifest(path: Path) -> None:
    (path / "assets.extra" / "manifest.json").write_bytes(b'{"kind": "model"')


def change_a_role(path: Path) -> None:
    manifest = path / "assets.extra" / "manifest.json"
    said = json.loads(manifest.read_text())
    said["features"]["click"]["role"] = "id"
    said["features"]["click"]["type"] = "text"
    said["features"]["click"]["role"] = "privileged"
    manifest.write_text(json.dumps(said))


TAMPERED = [
    (change, "saved_model.pb has SHA-256"),
    (change_variables, "variables/variables.data-00000-of-00001 has SHA-256"),
    (add_file, "holds assets/extra.txt, which its manifest does not list"),
    (add_beside_the_manifest, "holds assets.extra/tf_serving_warmup_requests, which its manifest does not list"),
    (remove_file, "lacks variables/variables.index, which its manifest lists"),
    (list_a_file_elsewhere, "'../../../etc/passwd' is no path below the manifest's directory"),
    (cut_manifest, "is no model manifest"),
    (change_a_role, "says fingerprint"),
]


@pytest.mark.parametrize(("tamper", "message"), TAMPERED, ids=[tamper.__name__ for tamper, _ in TAMPERED])
def test_a_directory_that_was_changed_is_refused(copied: Path, tamper: Callable[[Path], None], message: str) -> None:
    tamper(copied / "3")
    with pytest.raises(InputError) as refused:
        exported_models.verify(copied, 3)
    assert message in str(refused.value)


def hostile(kind: str, secret: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns an operation that no ranker needs, hidden in the score as a zero."""
    counter = tf.Variable(0.0)
    mutable = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)

    def zero(query: tf.Tensor) -> tf.Tensor:
        if kind == "ReadFile":
            return 0.0 * tf.cast(tf.strings.length(tf.io.read_file(secret)), tf.float32)
        if kind == "WriteFile":
            with tf.control_dependencies([tf.io.write_file(secret + ".copy", query[0])]):
                return tf.constant(0.0)
        if kind == "PyFunc":
            return tf.py_function(lambda: 0.0, [], tf.float32)
        if kind == "AssignAddVariableOp":
            counter.assign_add(1.0)
            return counter * 0.0
        if kind == "AssignVariableOp":
            counter.assign(1.0)
            return counter * 0.0
        if kind == "MutableHashTableV2":
            mutable.insert(query, tf.zeros_like(query, tf.float32))
            return tf.constant(0.0)
        if kind == "MatchingFiles":
            return 0.0 * tf.cast(tf.size(tf.io.matching_files(secret)), tf.float32)
        if kind == "SaveV2":
            tf.raw_ops.SaveV2(prefix=secret, tensor_names=["x"], shape_and_slices=[""], tensors=[query])
            return tf.constant(0.0)
        if kind == "RestoreV2":
            [read] = tf.raw_ops.RestoreV2(prefix=secret, tensor_names=["x"], shape_and_slices=[""], dtypes=[tf.float32])
            return 0.0 * tf.reduce_sum(read)
        raise ValueError(kind)

    zero.kept = (counter, mutable)  # type: ignore[attr-defined]
    return zero


HOSTILE = [
    "ReadFile", "WriteFile", "PyFunc", "AssignAddVariableOp", "AssignVariableOp", "MutableHashTableV2", "MatchingFiles",
    "SaveV2", "RestoreV2",
]  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("nested", [False, True], ids=["in the signature", "in a function that it calls"])
def test_a_graph_that_does_more_than_score_is_refused(tmp_path: Path, kind: str, nested: bool) -> None:
    class Hostile(exported_models.Overlap):
        def __init__(self) -> None:
            super().__init__(exported_models.SHOP)
            self.zero = hostile(kind, str(tmp_path / "secret"))
            self.kept = self.zero.kept  # type: ignore[attr-defined]
            if nested:
                self.zero = tf.function(self.zero)

        def logits(self, inputs: dict[str, tf.Tensor], item_count: tf.Tensor) -> tf.Tensor:
            return super().logits(inputs, item_count) + self.zero(inputs["query"])

    exported_models.export(tmp_path, module=Hostile())
    with pytest.raises(InputError, match=r"is not allowed|writes variables or files"):
        exported_models.verify(tmp_path)


def edited(path: Path, edit: Callable[[Any], None]) -> None:
    """Rewrites saved_model.pb, and the manifest's hashes with it."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    edit(saved)
    (path / "saved_model.pb").write_bytes(saved.SerializeToString())
    exported_models.write_manifest(path, exported_models.SHOP)


def rename_signature(saved: Any) -> None:
    signatures = saved.meta_graphs[0].signature_def
    signatures["run"].CopyFrom(signatures["rank"])


def drop_rank(saved: Any) -> None:
    del saved.meta_graphs[0].signature_def["rank"]


def drop_tokenize(saved: Any) -> None:
    del saved.meta_graphs[0].signature_def["tokenize"]


def drop_input(saved: Any) -> None:
    del saved.meta_graphs[0].signature_def["rank"].inputs["title"]


def wrong_type(saved: Any) -> None:
    saved.meta_graphs[0].signature_def["rank"].inputs["title"].dtype = tf.float32.as_datatype_enum


def unknown_type(saved: Any) -> None:
    saved.meta_graphs[0].signature_def["rank"].inputs["title"].dtype = 99


def score_by_the_saver(saved: Any) -> None:
    graph = saved.meta_graphs[0]
    graph.signature_def["rank"].outputs["score"].name = graph.saver_def.save_tensor_name


def descriptor_from_a_file(saved: Any) -> None:
    node = saved.meta_graphs[0].graph_def.node.add(name="decode", op="DecodeProtoV2")
    node.attr["descriptor_source"].s = b"/etc/passwd"


def two_graphs(saved: Any) -> None:
    saved.meta_graphs.add().CopyFrom(saved.meta_graphs[0])


def unknown_operation(saved: Any) -> None:
    saved.meta_graphs[0].graph_def.node.add(name="evil", op="SomethingNew")


EDITS = [
    (rename_signature, "unknown signature 'run'"),
    (drop_rank, "no signature 'rank'"),
    (drop_tokenize, "no signature 'tokenize'"),
    (drop_input, "signature 'rank' has no input 'title'"),
    (wrong_type, "input 'title' of signature 'rank' is float32"),
    (unknown_type, "input 'title' of signature 'rank' is of no type that TensorFlow has"),
    (score_by_the_saver, "signature 'rank' writes variables or files"),
    (descriptor_from_a_file, "reads its descriptor from a file"),
    (two_graphs, "holds 2 graphs"),
    (unknown_operation, "operation SomethingNew is not allowed"),
]


@pytest.mark.parametrize(("edit", "message"), EDITS, ids=[edit.__name__ for edit, _ in EDITS])
def test_a_graph_that_breaks_the_contract_is_refused(copied: Path, edit: Callable[[Any], None], message: str) -> None:
    edited(copied / "3", edit)
    with pytest.raises(InputError) as refused:
        exported_models.verify(copied, 3)
    assert message in str(refused.value)


def test_a_graph_that_is_no_protobuf_is_refused(copied: Path) -> None:
    (copied / "3" / "saved_model.pb").write_bytes(b"\xff" * 100)
    exported_models.write_manifest(copied / "3", exported_models.SHOP)
    with pytest.raises(InputError, match="is no SavedModel"):
        exported_models.verify(copied, 3)


def broken_hash(folder: Path) -> None:
    change(folder / "3")


def no_version(folder: Path) -> None:
    shutil.rmtree(folder / "3")


def no_manifest(folder: Path) -> None:
    (folder / "3" / "assets.extra" / "manifest.json").unlink()


def warm_up_that_is_refused(folder: Path) -> None:
    exported_models.write_manifest(
        folder / "3", exported_models.SHOP, warm_up=({"query": "sofa", "items": [{"click": 1}]},)
    )


def warm_up_without_a_finite_score(folder: Path) -> None:
    exported_models.write_manifest(
        folder / "3", exported_models.SHOP, warm_up=({"query": "sofa", "items": ["broken"]},)
    )


UNSERVABLE = [
    (no_version, "holds no complete version"),
    (no_manifest, "only incomplete versions [3]"),
    (warm_up_that_is_refused, "cannot answer its warm-up request 0: feature 'click' is privileged"),
    (warm_up_without_a_finite_score, "cannot answer its warm-up request 0"),
]


@pytest.mark.parametrize(("spoil", "message"), UNSERVABLE, ids=[spoil.__name__ for spoil, _ in UNSERVABLE])
def test_a_model_that_cannot_answer_never_becomes_ready(
    copied: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(copied)
    with pytest.raises(InputError) as refused:
        load(Settings(export_dir=str(copied)), find_version(str(copied)))
    assert message in str(refused.value)


def test_the_command_ends_with_one_message_and_exit_code_2(copied: Path) -> None:
    broken_hash(copied)
    ended = run_serving("--export-dir", str(copied), "--port", "0")
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    [error] = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert "saved_model.pb has SHA-256" in error
