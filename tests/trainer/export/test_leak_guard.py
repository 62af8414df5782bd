"""Attempts to bring a privileged feature into an export, each a real SavedModel, each refused."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from features.errors import InputError
from features.spec import spec_from_json
from tests.trainer.shop import FEATURES
from trainer.export.leak_guard import graph_inputs, refuse_privileged

SPEC = spec_from_json(FEATURES)
ITEMS = tf.TensorSpec([None, None], tf.float32)
EXAMPLES = tf.TensorSpec([None], tf.string, name="examples")
KEY = tf.constant("click")  # outside of any function: a graph gets it as a captured constant


def named(name: str) -> tf.TensorSpec:
    return tf.TensorSpec([None, None], tf.float32, name=name)


def fixed(key: str) -> dict[str, Any]:
    return {key: tf.io.FixedLenFeature([1], tf.int64, [0])}


def extra_input(name: str) -> Callable[[], Any]:
    def smuggle() -> Any:
        def rank(price: tf.Tensor, **more: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"score": price + more[name]}

        return tf.function(rank).get_concrete_function(named("price"), **{name: named(name)})

    return smuggle


def from_examples(parse: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[], Any]:
    def serving_default(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"score": tf.cast(parse(examples), tf.float32)}

    return lambda: tf.function(serving_default).get_concrete_function(EXAMPLES)


def parsed(examples: tf.Tensor) -> tf.Tensor:
    return tf.io.parse_example(examples, fixed("click"))["click"]


def parsed_one_by_one(examples: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(lambda e: tf.io.parse_single_example(e, fixed("click"))["click"], examples, tf.int64)


def parsed_as_sequences(examples: tf.Tensor) -> tf.Tensor:
    sequence = {"click": tf.io.FixedLenSequenceFeature([], tf.int64)}
    return tf.io.parse_sequence_example(examples, sequence_features=sequence)[1]["click"]


def parsed_in_a_function_of_its_own(examples: tf.Tensor) -> tf.Tensor:
    return tf.function(parsed)(examples)


def parsed_by(key: tf.Tensor, examples: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.ParseExampleV2(
        serialized=examples,
        names=tf.constant([], tf.string),
        sparse_keys=tf.constant([], tf.string),
        dense_keys=tf.reshape(key, [1]),
        ragged_keys=tf.constant([], tf.string),
        dense_defaults=[tf.constant([0], tf.int64)],
        num_sparse=0,
        sparse_types=[],
        ragged_value_types=[],
        ragged_split_types=[],
        dense_shapes=[[1]],
    ).dense_values[0]


def key_through_an_identity(examples: tf.Tensor) -> tf.Tensor:
    return parsed_by(tf.identity(tf.identity("click")), examples)


def key_captured_from_outside(examples: tf.Tensor) -> tf.Tensor:
    return parsed_by(KEY, examples)


def key_as_an_argument(examples: tf.Tensor) -> tf.Tensor:
    return tf.function(parsed_by)(tf.constant("click"), examples)


def decoded_and_compared(examples: tf.Tensor) -> tf.Tensor:
    # an Example's Features are a map, whose entries are messages of their own: any key can be picked by hand
    _, (entries,) = tf.io.decode_proto(
        examples, "tensorflow.Features", field_names=["feature"], output_types=[tf.string]
    )
    _, (keys,) = tf.io.decode_proto(
        entries, "tensorflow.Features.FeatureEntry", field_names=["key"], output_types=[tf.string]
    )
    return tf.reduce_any(tf.equal(keys, "click"), axis=-1)


SMUGGLED = {
    "an input named click": extra_input("click"),
    "an input named as the label": extra_input("purchase"),
    "an input named as an identifier": extra_input("item_id"),
    "an input that the spec does not have": extra_input("clicks"),
    "parsed from examples": from_examples(parsed),
    "parsed one by one": from_examples(parsed_one_by_one),
    "parsed as sequences": from_examples(parsed_as_sequences),
    "parsed in a function of its own": from_examples(parsed_in_a_function_of_its_own),
    "the key through an identity": from_examples(key_through_an_identity),
    "the key captured from outside": from_examples(key_captured_from_outside),
    "the key as an argument": from_examples(key_as_an_argument),
    "decoded and compared": from_examples(decoded_and_compared),
}


@pytest.mark.parametrize("smuggle", SMUGGLED.values(), ids=SMUGGLED)
def test_a_model_that_could_see_a_hidden_feature_is_refused(tmp_path: Path, smuggle: Callable[[], Any]) -> None:
    tf.saved_model.save(tf.Module(), str(tmp_path / "model"), signatures={"rank": smuggle()})
    with pytest.raises(InputError, match=r"the export reads '(click|purchase|item_id|clicks)' \(.*\) in ") as refused:
        refuse_privileged(str(tmp_path / "model"), SPEC)
    assert "Export a model whose inputs are the spec's regular features" in str(refused.value)


def test_a_layer_made_for_a_privileged_category_is_refused(tmp_path: Path) -> None:
    module = tf.Module()
    module.table = tf.keras.layers.Embedding(3, 2, name="category_click")
    module.table(tf.constant([0]))

    def rank(price: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"score": price + tf.reduce_sum(module.table(tf.constant([1])))}

    signature = tf.function(rank).get_concrete_function(named("price"))
    tf.saved_model.save(module, str(tmp_path / "model"), signatures={"rank": signature})
    with pytest.raises(InputError, match=r"reads 'click' \(privileged\) in the variables"):
        refuse_privileged(str(tmp_path / "model"), SPEC)


def test_a_function_beside_the_signatures_that_takes_privileged_tensors_is_refused(tmp_path: Path) -> None:
    module = tf.Module()
    module.rank = tf.function(lambda price, privileged: price + privileged["click"])
    module.rank.get_concrete_function(named("price"), {"click": named("click")})
    signature = tf.function(lambda price: {"score": price}).get_concrete_function(named("price"))
    tf.saved_model.save(module, str(tmp_path / "model"), signatures={"rank": signature})
    with pytest.raises(InputError, match=r"reads 'click' \(privileged\) in (function|the graph)"):
        refuse_privileged(str(tmp_path / "model"), SPEC)


def test_the_layers_own_names_are_no_leak(tmp_path: Path) -> None:
    spec = spec_from_json({**FEATURES, "pieces": {"type": "int", "level": "item", "role": "privileged"}})
    module = tf.Module()
    module.table = tf.Variable([1.0], name="encoder/pieces")
    signature = tf.function(lambda price: {"score": price * module.table}).get_concrete_function(named("price"))
    tf.saved_model.save(module, str(tmp_path / "model"), signatures={"rank": signature})
    refuse_privileged(str(tmp_path / "model"), spec)


def test_a_category_that_happens_to_be_called_click_is_no_leak(tmp_path: Path) -> None:
    module = tf.Module()
    values = tf.lookup.KeyValueTensorInitializer(tf.constant(["click", "position"]), tf.constant([1.0, 2.0]))
    module.brands = tf.lookup.StaticHashTable(values, 0.0)

    def rank(brand: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"score": module.brands.lookup(brand)}

    def serving_default(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(examples, {"brand": tf.io.FixedLenFeature([1], tf.string, [""])})
        return rank(parsed["brand"])

    signatures = {
        "rank": tf.function(rank).get_concrete_function(tf.TensorSpec([None, None], tf.string, name="brand")),
        "serving_default": tf.function(serving_default).get_concrete_function(EXAMPLES),
    }
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=signatures)
    refuse_privileged(str(tmp_path / "model"), SPEC)


def test_a_teacher_cannot_be_exported(run: Any, tmp_path: Path) -> None:
    """A teacher's ranker asks for its privileged features, so tracing the export's signatures fails."""
    from trainer.export.saved_model import ExportedRanker

    teacher = run.new_ranker(run.config.teachers["click"])
    with pytest.raises(KeyError, match="click"):
        ExportedRanker(run.preprocessor, teacher).signatures()


def test_the_guard_sees_what_the_true_export_reads(fitted: Any) -> None:
    content = (fitted.workdir / "export" / "1" / "saved_model.pb").read_bytes()
    found = set(graph_inputs(saved_model_pb2.SavedModel.FromString(content)))
    regular = {feature.name for feature in SPEC.regular}
    assert {name for where, name in found if where == "signature rank"} == {*regular, "item_count"}
    assert {name for where, name in found if where == "signature serving_default"} == {"examples"}
    assert regular <= {name for where, name in found if "which parses examples" in where}
    hidden = ["privileged", *(feature.name for feature in SPEC if feature.role != "regular")]
    word = re.compile(rf"(?<![a-z])({'|'.join(hidden)})(?![a-z])")
    assert not [name for _, name in found if word.search(name)]
    refuse_privileged(str(fitted.workdir / "export" / "1"), SPEC)
