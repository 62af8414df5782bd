"""The pure part of ranking, and a model that XLA compiles."""

import asyncio
import os
from math import log
from pathlib import Path

import numpy as np
import pytest
from starlette.requests import Request

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from features.elwc import QueryGroup
from features.values import Value
from serving.gateway import Gateway, load
from serving.problems import Problem, pointer_to
from serving.ranking import BUCKETS, bucket_of, inputs_of, sigmoid
from serving.request_body import read_body
from serving.settings import RequestLimits, Settings
from tests.serving import models


def test_sigmoid_neither_overflows_nor_loses_small_scores() -> None:
    logits = np.array([0.0, log(3), -log(3), 1000.0, -1000.0, -40.0], np.float32)
    expected = [0.5, 0.75, 0.25, 1.0, 0.0, 4.248354255291589e-18]
    np.testing.assert_allclose(sigmoid(logits), expected, rtol=1e-6)


def test_a_bucket_is_the_least_that_holds_the_items() -> None:
    assert [bucket_of(items) for items in (1, 2, 3, 64, 65, 1000)] == [1, 2, 4, 64, 128, 1024]
    assert all(bucket_of(bucket) == bucket for bucket in BUCKETS)


def test_inputs_are_one_group_padded_behind_its_items() -> None:
    item: dict[str, Value] = {"title": "é", "price": 1.5, "brand": "b", "in_stock": True, "colour": (1.0, 2.0, 3.0)}
    found = inputs_of(QueryGroup({"query": "q", "hour": 3}, [item]), models.RICH.regular, padded=2)
    assert found["query"].tolist() == [b"q"]
    assert found["hour"].tolist() == [3]
    assert found["title"].tolist() == [["é".encode(), b""]]
    assert found["price"].tolist() == [[1.5, 0.0]]
    assert found["in_stock"].tolist() == [[True, False]]
    assert found["colour"].tolist() == [[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]]
    types = {name: array.dtype for name, array in found.items()}
    assert types["price"] == types["colour"] == np.float32
    assert types["hour"] == np.int64


def test_a_compiled_model_is_padded_to_buckets_and_scores_the_same(tmp_path: Path) -> None:
    class Compiled(models.Overlap):
        @tf.function(jit_compile=True)
        def add(self, vector: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(vector, axis=-1)

        def logits(self, inputs: dict[str, tf.Tensor], item_count: tf.Tensor) -> tf.Tensor:
            scores = self.add(inputs["vector"])
            return tf.where(tf.sequence_mask(item_count, tf.shape(scores)[1]), scores, 0.0)

    models.export(tmp_path / "compiled", models.NUMBERS_ONLY, module=Compiled(models.NUMBERS_ONLY))
    models.export(tmp_path / "plain", models.NUMBERS_ONLY)
    body = models.body_of(items=[{"vector": [i / 8, 1.0]} for i in range(5)])
    compiled, plain = (load(Settings(export_dir=str(tmp_path / name))) for name in ("compiled", "plain"))
    assert compiled._ranker._backend.compiles_shapes
    assert not plain._ranker._backend.compiles_shapes
    assert compiled.answer(body, "r") == plain.answer(body, "r")


def test_more_requests_than_the_line_holds_are_told_to_come_again() -> None:
    gateway = Gateway(Settings(export_dir="unused", waiting=2))
    with gateway.place_in_line(), gateway.place_in_line():
        with pytest.raises(Problem) as refused, gateway.place_in_line():
            pass
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
    with gateway.place_in_line():
        pass  # the places are free again


def test_a_body_that_never_ends_is_given_up() -> None:
    async def never() -> dict[str, object]:
        await asyncio.sleep(60)
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "headers": [(b"content-type", b"application/json")]}
    with pytest.raises(Problem) as refused:
        asyncio.run(read_body(Request(scope, never), RequestLimits(body_seconds=0.05)))
    assert refused.value.status == 408


def test_a_pointer_escapes_what_json_pointers_escape() -> None:
    assert pointer_to("items", 3, "a/b~c") == "#/items/3/a~1b~0c"
