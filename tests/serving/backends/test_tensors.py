"""Writing and reading TensorProtos of TensorFlow Serving's messages, valid and malformed ones."""

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from serving.backends.tf_serving import read_tensor, write_tensor


@pytest.mark.parametrize(
    "values",
    [
        np.array([[1.5, -2.0, 3e38]], np.float32),
        np.zeros((2, 3, 4), np.float32),
        np.array([2**62, -1]),
        np.array([3, 1], np.int32),
        np.array([[True], [False]]),
        np.array([["é\0".encode(), b""]], object),
        np.zeros((0, 5), np.float32),
    ],
)
def test_tensorflow_reads_a_tensor_that_we_wrote(values: Any) -> None:
    tensor = tensor_pb2.TensorProto()
    write_tensor(values, tensor)
    found = tf.make_ndarray(tensor)
    assert (found.dtype, found.tolist()) == (values.dtype, values.tolist())
    assert tensor.HasField("tensor_shape")
    if values.dtype in (np.float32, np.int32) and values.size:
        again = read_tensor(tensor, tf.as_dtype(values.dtype))
        assert again is not None
        np.testing.assert_array_equal(again, values, strict=True)


SIZES = st.lists(st.sampled_from([0, 1, 2, 3, -1, 2**40, 2**62, 2**63 - 1]), max_size=40)


@given(SIZES, st.binary(max_size=24), st.lists(st.floats(width=32), max_size=6), st.sampled_from([1, 2, 3, 9, 99]))
@example([0, 2**62], b"", [], 1)
@example([0] * 40, b"", [], 1)
@example([2**62, 4], b"", [], 1)
def test_a_tensor_is_read_whole_or_not_at_all(sizes: list[int], content: bytes, listed: list[float], kind: int) -> None:
    tensor = tensor_pb2.TensorProto(dtype=kind, tensor_content=content, float_val=listed)
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    found = read_tensor(tensor, tf.float32)
    if found is not None:
        assert kind == tf.float32.as_datatype_enum
        assert list(found.shape) == sizes
        assert found.size == (len(content) // 4 if content else len(listed))
