"""The pure part of ranking, and a model that XLA compiles."""

import os
from math import log
from pathlib import Path

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from features.elwc import QueryGroup
from features.values import Value
from serving.api import handlers as answers
from serving.backends.item_buckets import ITEM_BUCKETS, bucket_of
from serving.models.loaded_model import Models, load
from serving.observability.request_record import RequestRecord
from serving.observability.trace_context import span_of
from serving.problems import pointer_to
from serving.ranking.ranker import feature_arrays, plan_calls, sigmoid
from serving.settings import Settings
from tests.serving import exported_models


def test_sigmoid_neither_overflows_nor_loses_small_scores() -> None:
    logits = np.array([0.0, log(3), -log(3), 1000.0, -1000.0, -40.0], np.float32)
    expected = [0.5, 0.75, 0.25, 1.0, 0.0, 4.248354255291589e-18]
    np.testing.assert_allclose(sigmoid(logits), expected, rtol=1e-6)


def test_bucket_of_returns_the_smallest_bucket_that_holds_the_items() -> None:
    assert [bucket_of(items) for items in (1, 2, 3, 64, 65, 1000)] == [1, 2, 4, 64, 128, 1024]
    assert all(bucket_of(bucket) == bucket for bucket in ITEM_BUCKETS)


def test_inputs_are_padded_behind_a_groups_items() -> None:
    item: dict[str, Value] = {"title": "é", "price": 1.5, "brand": "b", "in_stock": True, "colour": (1.0, 2.0, 3.0)}
    found = feature_arrays([QueryGroup({"query": "q", "hour": 3}, [item])], exported_models.RICH.regular, padded=2)
    assert found["query"].tolist() == [b"q"]
    assert found["hour"].tolist() == [3]
    assert found["title"].tolist() == [["é".encode(), b""]]
    assert found["price"].tolist() == [[1.5, 0.0]]
    assert found["in_stock"].tolist() == [[True, False]]
    assert found["colour"].tolist() == [[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]]
    types = {name: array.dtype for name, array in found.items()}
    assert types["price"] == types["colour"] == np.float32
    assert types["hour"] == np.int64


def test_inputs_of_a_compiled_model_are_padded_to_buckets_and_score_the_same(tmp_path: Path) -> None:
    class Compiled(exported_models.Overlap):
        @tf.function(jit_compile=True)
        def add(self, vector: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(vector, axis=-1)

        def logits(self, inputs: dict[str, tf.Tensor], item_count: tf.Tensor) -> tf.Tensor:
            scores = self.add(inputs["vector"])
            return tf.where(tf.sequence_mask(item_count, tf.shape(scores)[1]), scores, 0.0)

    exported_models.export(
        tmp_path / "compiled", exported_models.NUMBERS_ONLY, module=Compiled(exported_models.NUMBERS_ONLY)
    )
    exported_models.export(tmp_path / "plain", exported_models.NUMBERS_ONLY)
    queries = [{"items": [{"vector": [i / 8, 1.0]} for i in range(items)]} for items in (5, 7, 5)]
    found = {}
    for name in ("compiled", "plain"):
        served, record = load(Settings(export_dir=str(tmp_path / name)), 1), RequestRecord("r", span_of(""))
        body = exported_models.body_of(queries=queries)
        found[name] = answers.answer(answers.batch, body, Models(served, {1: served}), record)
        # the compiled model takes groups of 8 items only; the plain one scores the three in one call
        assert record.calls == ([(1, 8)] * 3 if name == "compiled" else [(3, 7)])
    assert found["compiled"] == found["plain"]


def test_groups_of_one_bucket_share_a_call() -> None:
    # buckets 4, 8, 4, 1, 8: padded to the longest of each
    assert plan_calls([3, 5, 4, 1, 7], compiles_shapes=False) == [([0, 2], 4), ([1, 4], 7), ([3], 1)]
    assert plan_calls([3, 5], compiles_shapes=True) == [([0], 4), ([1], 8)]
    assert plan_calls([], compiles_shapes=False) == []


def test_feature_arrays_of_two_groups_are_stacked() -> None:
    groups = [
        QueryGroup({}, [{"vector": (1.0, 2.0)}]),
        QueryGroup({}, [{"vector": (3.0, 4.0)}, {"vector": (5.0, 6.0)}]),
    ]
    found = feature_arrays(groups, exported_models.NUMBERS_ONLY.regular, padded=2)["vector"]
    assert found.tolist() == [[[1.0, 2.0], [0.0, 0.0]], [[3.0, 4.0], [5.0, 6.0]]]


def test_a_pointer_escapes_what_json_pointers_escape() -> None:
    assert pointer_to("items", 3, "a/b~c") == "#/items/3/a~1b~0c"
