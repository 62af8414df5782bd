"""A gRPC PredictionService that scores SavedModels as TensorFlow Serving does, and lies when it is told to.

As a process: `python -m tests.serving.model_server <certificate> <export directory>...` prints its port and the one for
TLS. A line on stdin names the fault that it has from then on, or asks for the number of its `calls`.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokeniser's operations
from numpy.typing import NDArray
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2

from features.manifest import FILE_NAME, ModelManifest, parse_manifest
from tests.serving.processes import ROOT, environment

Array = NDArray[Any]


def block(tensor: Any, values: Array) -> None:
    tensor.CopyFrom(tf.make_tensor_proto(values))


def listed(tensor: Any, values: Array, surplus: int = 0) -> None:
    """As a list of values, TensorFlow Serving's default. surplus: values that the shape has no place for."""
    tensor.CopyFrom(tf.make_tensor_proto(values.ravel()[:1]))
    tensor.tensor_shape.CopyFrom(tf.TensorShape(values.shape).as_proto())
    tensor.float_val[:] = np.pad(values.ravel(), (0, max(surplus, 0)))[: values.size + surplus].tolist()


def cut(tensor: Any, values: Array) -> None:
    block(tensor, values)
    tensor.ClearField("float_val")
    tensor.tensor_content = values.tobytes()[:-3]


def endless(tensor: Any, values: Array) -> None:
    block(tensor, values)
    tensor.tensor_shape.dim[1].size = 2**60


SCORES: dict[str, Callable[[Any, Array], None]] = {  # how the scores are told
    "a list of values": listed,
    "columns more": lambda tensor, values: block(
        tensor, np.pad(values, ((0, 0), (0, 3)))
    ),  # a batching server's padding
    "a row less": lambda tensor, values: block(tensor, values[1:]),
    "an item less": lambda tensor, values: block(tensor, values[:, 1:]),
    "one dimension": lambda tensor, values: block(tensor, values.ravel()),
    "another type": lambda tensor, values: block(tensor, values.astype(np.float64)),
    "text": lambda tensor, values: block(tensor, values.astype(str)),
    "bytes cut": cut,
    "a value less": lambda tensor, values: listed(tensor, values, surplus=-1),
    "a value more": lambda tensor, values: listed(tensor, values, surplus=1),
    "an endless shape": endless,
}
COUNTS: dict[str, Callable[[Any, Array], None]] = {  # how the tokens' counts are told
    "a count less": lambda tensor, values: block(tensor, values[1:]),
    "counts below 0": lambda tensor, values: block(tensor, -values),
}
TOKENS: dict[str, Callable[[Any, Array], None]] = {  # how the tokens are told
    "tokens of a text less": lambda tensor, values: block(tensor, values[1:]),
    "tokens in one row": lambda tensor, values: block(tensor, values.ravel()),
}
ANSWERS: dict[str, Callable[[Any], object]] = {  # what is done to the whole answer
    "no output": lambda answer: answer.ClearField("outputs"),
    "another version": lambda answer: answer.model_spec.version.MergeFrom(type(answer.model_spec.version)(value=99)),
    "another model": lambda answer: answer.model_spec.MergeFrom(type(answer.model_spec)(name="somebody's")),
    "no model": lambda answer: answer.ClearField("model_spec"),
}
BYTES = {"no message": b"\xff" * 99, "too long": bytes(64 << 20)}  # instead of an answer
STATUSES = {
    "an internal error": grpc.StatusCode.INTERNAL,
    "a full queue": grpc.StatusCode.UNAVAILABLE,
    "no such version": grpc.StatusCode.NOT_FOUND,
}
METADATA = ("an input more", "no signatures")


class ModelServer:
    """The process, on two free ports of loopback. certificate: a PEM with its key and its certificate for localhost."""

    def __init__(self, certificate: Path, *export_dirs: Path) -> None:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.serving.model_server",
            str(certificate),
            *map(str, export_dirs),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
        )
        self.port, self.tls_port = map(int, self._said().split())

    def lie(self, fault: str) -> None:
        """From now on it has this fault; '' for none."""
        assert fault in {"", *SCORES, *COUNTS, *TOKENS, *ANSWERS, *BYTES, *STATUSES, *METADATA}
        self._told(fault)

    @property
    def calls(self) -> int:
        """Of its methods, so far."""
        return int(self._told("calls"))

    def _told(self, order: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        return self._said()

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> "ModelServer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class Service:
    """The two methods, for every version in the export directories."""

    def __init__(self, export_dirs: list[str]) -> None:
        self.fault, self.calls = "", 0
        self._models: dict[tuple[str, int], Any] = {}
        self._signatures: dict[tuple[str, int], Any] = {}
        for path in (path for folder in export_dirs for path in Path(folder).iterdir() if path.name.isdecimal()):
            manifest = parse_manifest((path / "assets.extra" / FILE_NAME).read_bytes(), str(path), ModelManifest)
            key = manifest.name, int(path.name)
            self._models[key] = tf.saved_model.load(str(path))
            saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
            self._signatures[key] = saved.meta_graphs[0].signature_def

    def metadata(self, request: Any, context: Any) -> bytes:
        found = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in self._asked(self._signatures, request, context).items():
            found.signature_def[name].CopyFrom(signature)
        if self.fault == "an input more":
            inputs = found.signature_def["rank"].inputs
            inputs["click"].CopyFrom(inputs["item_count"])
        answer = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=request.model_spec)
        if self.fault != "no signatures":
            answer.metadata["signature_def"].Pack(found)
        return bytes(answer.SerializeToString())

    def predict(self, request: Any, context: Any) -> bytes:
        model = self._asked(self._models, request, context)
        inputs = {name: tf.constant(tf.make_ndarray(tensor)) for name, tensor in request.inputs.items()}
        try:
            outputs = model.signatures[request.model_spec.signature_name](**inputs)
        except tf.errors.OpError as error:  # the codes are gRPC's, and the message may quote the request
            code = next(code for code in grpc.StatusCode if code.value[0] == error.error_code)
            context.abort(code, error.message)
        answer = predict_pb2.PredictResponse(model_spec=request.model_spec)
        for name in request.output_filter:
            told = {"score": SCORES, "length": COUNTS, "tokens": TOKENS}[name].get(self.fault, block)
            told(answer.outputs[name], outputs[name].numpy())
        ANSWERS.get(self.fault, lambda answer: None)(answer)
        return BYTES.get(self.fault, bytes(answer.SerializeToString()))

    def _asked(self, held: dict[tuple[str, int], Any], request: Any, context: Any) -> Any:
        self.calls += 1
        if self.fault in STATUSES:
            context.abort(STATUSES[self.fault], str(request))
        key = request.model_spec.name, request.model_spec.version.value
        if key not in held:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {key}")
        return held[key]


def main() -> None:
    certificate = Path(sys.argv[1]).read_bytes()
    service = Service(sys.argv[2:])
    requests = {
        "GetModelMetadata": get_model_metadata_pb2.GetModelMetadataRequest,
        "Predict": predict_pb2.PredictRequest,
    }
    methods = {"GetModelMetadata": service.metadata, "Predict": service.predict}
    handlers = {name: grpc.unary_unary_rpc_method_handler(methods[name], requests[name].FromString) for name in methods}
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(8), options=options)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("tensorflow.serving.PredictionService", handlers)]
    )
    plain = server.add_insecure_port("127.0.0.1:0")
    tls = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(certificate, certificate)]))
    server.start()
    print(plain, tls, flush=True)
    for line in sys.stdin:
        if (order := line.strip()) != "calls":
            service.fault = order
        print(service.calls, flush=True)


if __name__ == "__main__":
    main()
