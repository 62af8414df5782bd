"""The backend `tf-serving`: a TensorFlow Serving server scores with the same version of the same model.

Every answer is checked: another version, or a tensor that is missing or of another type or shape, is a problem.
"""

import math
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, model_pb2, predict_pb2

from features.errors import InputError
from serving.backends.base import BackendError, FeatureArrays, uses_xla, without_padding
from serving.backends.cache import BoundedCache
from serving.backends.tf_serving_channel import Connection, RemoteError
from serving.exports.graph.check import check_signatures
from serving.exports.store import VerifiedModel
from serving.problems import Problem

CHECK_SECONDS = 1.0  # timeout of the readiness check
GRAPH_ERRORS = (  # statuses that the graph itself may cause, for this request only
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
)
# the values' field if tensor_content is empty
_LISTED = {
    tf.float32: attrgetter("float_val"),
    tf.int32: attrgetter("int_val"),
}

MessageT = TypeVar("MessageT", bound=Message)


class TensorFlowServingBackend:
    """One version of a model on TensorFlow Serving. Raises: InputError if the server does not hold this version."""

    caches: Mapping[str, BoundedCache[Any]] = {}
    batched_calls = 0

    def __init__(self, model: VerifiedModel, connection: Connection) -> None:
        self._name, self._version = model.manifest.name, model.version
        self._connection = connection
        where = f"{self._name} version {self._version} on TensorFlow Serving at {connection.address}"
        try:
            check_signatures(self._signatures(), model.manifest.spec, where)
        except Problem as problem:
            remedy = "Let it load that version, from the same files"
            raise InputError(f"{where} cannot be asked: {problem.detail}. {remedy}") from None
        content = Path(model.path, "saved_model.pb").read_bytes()
        graph = saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def
        self.compiles_shapes = uses_xla(graph)

    def score(self, inputs: FeatureArrays, item_count: NDArray[np.int32], seconds: float) -> NDArray[np.float32]:
        scores = self._predict("rank", inputs | {"item_count": item_count}, "score", tf.float32, seconds)
        # rows may be longer: a server that batches pads them
        if scores.ndim != 2 or len(scores) != len(item_count) or scores.shape[1] < item_count.max():
            expected = f"{len(item_count)} rows of {item_count.max()} or more"
            raise self._wrong(f"its scores have shape {list(scores.shape)}, expected {expected}")
        return scores

    def token_counts(self, texts: list[str], seconds: float) -> NDArray[np.int32]:
        counts = self._predict("tokenize", _encoded(texts), "length", tf.int32, seconds)
        if counts.shape != (len(texts),) or (counts < 0).any():
            raise self._wrong(f"its token counts have shape {list(counts.shape)} or are below 0, expected {len(texts)}")
        return counts

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]:
        tokens = self._predict("tokenize", _encoded(texts), "tokens", tf.int32, seconds)
        if tokens.ndim != 2 or len(tokens) != len(texts):
            raise self._wrong(f"its tokens have shape {list(tokens.shape)}, expected {len(texts)} rows")
        return without_padding(tokens)

    def check(self) -> None:
        try:
            self._connection.call_once("GetModelMetadata", self._metadata_request(), CHECK_SECONDS)
        except RemoteError as error:
            raise self._problem_of(error) from None

    def _signatures(self) -> Any:
        """Returns the server's SignatureDefs by name. Raises: Problem."""
        answer = self._answer("GetModelMetadata", self._metadata_request(), math.inf)
        metadata = _parsed(get_model_metadata_pb2.GetModelMetadataResponse, answer)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        try:
            if metadata is None or not metadata.metadata["signature_def"].Unpack(signatures):
                raise self._wrong("its metadata hold no signatures")
        except DecodeError:
            raise self._wrong("its signatures cannot be read") from None
        self._check_model(metadata.model_spec)
        return signatures.signature_def

    def _metadata_request(self) -> bytes:
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=self._spec(), metadata_field=["signature_def"]
        )
        return bytes(request.SerializeToString())

    def _predict(
        self, signature: str, inputs: FeatureArrays, output: str, dtype: tf.DType, seconds: float
    ) -> NDArray[Any]:
        """Returns one output of a signature. Raises: Problem, BackendError."""
        request = predict_pb2.PredictRequest(model_spec=self._spec(signature), output_filter=[output])
        for name, values in inputs.items():
            write_tensor(values, request.inputs[name])
        answer = _parsed(predict_pb2.PredictResponse, self._answer("Predict", request.SerializeToString(), seconds))
        if answer is None:
            raise self._wrong("its answer cannot be read")
        self._check_model(answer.model_spec)
        if output not in answer.outputs:
            raise self._wrong(f"its answer holds no {output!r}")
        if (tensor := read_tensor(answer.outputs[output], dtype)) is None:
            raise self._wrong(f"its {output!r} is no whole tensor of {dtype.name}")
        return tensor

    def _spec(self, signature: str = "") -> model_pb2.ModelSpec:
        return model_pb2.ModelSpec(name=self._name, version={"value": self._version}, signature_name=signature)

    def _check_model(self, answered: model_pb2.ModelSpec) -> None:
        """Raises: Problem if another model or version answered."""
        name, version = answered.name, answered.version.value
        if (name, version) != (self._name, self._version):
            raise self._wrong(
                f"{name[:60]!r} version {version} answered, expected {self._name!r} version {self._version}"
            )

    def _answer(self, method: str, request: bytes, seconds: float) -> bytes:
        """Calls the server. Raises: Problem; BackendError if the graph of a Predict fails."""
        try:
            return self._connection.call(method, request, seconds)
        except RemoteError as error:
            if method == "Predict" and error.code in GRAPH_ERRORS:
                raise BackendError(error.code.name) from None
            raise self._problem_of(error) from None

    def _problem_of(self, error: RemoteError) -> Problem:
        again = {"Retry-After": str(math.ceil(error.retry_after))}
        if error.code is grpc.StatusCode.UNAVAILABLE:
            return Problem("remote-unavailable", "The model server cannot be reached", headers=again)
        if error.code is grpc.StatusCode.NOT_FOUND:
            detail = f"The model server does not hold version {self._version} of {self._name}"
            return Problem("remote-unavailable", detail, headers=again)
        if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Problem("deadline-exceeded", "The model server did not answer in time")
        return self._wrong(f"its call ended with {error.code.name}")

    def _wrong(self, detail: str) -> Problem:
        return Problem("remote-failed", f"The model server did not score with version {self._version}: {detail}")


def _encoded(texts: list[str]) -> FeatureArrays:
    """Returns the inputs of the signature `tokenize`."""
    return {"text": np.array([text.encode() for text in texts], object)}


def write_tensor(values: NDArray[Any], into: tensor_pb2.TensorProto) -> None:
    """Writes values (numbers, booleans or bytes objects) into a TensorProto; numbers as little-endian tensor_content.

    tf.make_tensor_proto does the same, but inspects every text, which takes many times as long.
    """
    for size in values.shape:
        into.tensor_shape.dim.add(size=size)
    if values.dtype == object:
        into.dtype = tf.string.as_datatype_enum
        into.string_val.extend(values.ravel().tolist())
    else:
        into.dtype = tf.as_dtype(values.dtype).as_datatype_enum
        into.tensor_content = values.tobytes()


def read_tensor(tensor: tensor_pb2.TensorProto, dtype: tf.DType) -> NDArray[Any] | None:
    """Returns the tensor's values, or None if its type differs from dtype or its values do not fill its shape.

    dtype: float32 or int32. A server may send either tensor_content or a list of values.
    """
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.dtype != dtype.as_datatype_enum or any(size < 0 for size in shape):
        return None
    content = tensor.tensor_content
    try:
        values: NDArray[Any] = (
            np.frombuffer(content, dtype.as_numpy_dtype)
            if content
            else np.array(_LISTED[dtype](tensor), dtype.as_numpy_dtype)
        )
        return values.reshape(shape)
    except ValueError:
        return None


def _parsed(kind: type[MessageT], content: bytes) -> MessageT | None:
    try:
        return kind.FromString(content)
    except DecodeError:
        return None
