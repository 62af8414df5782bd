"""The connection to a TensorFlow Serving: one channel for all threads, deadlines, few retries, a circuit breaker.

It carries bytes; what they mean, serving.tf_serving knows.
"""

import os
import random
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own lines would stand between the log's; read once, at import

import grpc
from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from features.errors import InputError
from serving.circuit import STATES, Circuit
from serving.metrics import SECONDS
from serving.settings import TensorFlowServing

METHODS = ("Predict", "GetModelMetadata")
RETRY_SECONDS = 0.05  # the longest pause before the first retry; twice as long before each further one


class RemoteError(Exception):
    """No answer, or none but an error status. The server's own words are dropped: they may quote the request."""

    def __init__(self, code: grpc.StatusCode, retry_after: float = 1.0) -> None:
        super().__init__(code.name)
        self.code, self.retry_after = code, retry_after  # seconds


class Connection(Collector):
    """Safe to call from several threads. Prometheus collects what it measures."""

    def __init__(self, settings: TensorFlowServing) -> None:
        self.address = settings.address
        self._settings = settings
        channel = _channel(settings)
        service = "/tensorflow.serving.PredictionService/"
        self._methods = {method: channel.unary_unary(service + method) for method in METHODS}
        self._circuit = Circuit(settings.failures, settings.open_seconds)
        told = "A call of the model server, by its status"
        self._seconds = Histogram("privrank_remote_seconds", told, ("method", "status"), buckets=SECONDS, registry=None)
        self._retries = Counter(
            "privrank_remote_retries", "Calls of the model server that were repeated", registry=None
        )

    def call(self, method: str, request: bytes, seconds: float) -> bytes:
        """The answer to a request of METHODS, within `seconds` and within the settings' own.

        A server that cannot be reached is asked again, after a random pause. While the circuit is open nobody is.
        Errors: RemoteError.
        """
        if wait := self._circuit.enter():
            raise RemoteError(grpc.StatusCode.UNAVAILABLE, wait)
        answered: bool | None = None
        try:
            answer = self._first_answer(method, request, min(seconds, self._settings.seconds))
            answered = True
            return answer
        except RemoteError as error:
            if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
                # a caller in haste must not close the way for others
                answered = False if seconds >= self._settings.seconds else None
            else:
                answered = error.code is not grpc.StatusCode.UNAVAILABLE
            raise
        finally:
            self._circuit.leave(answered)

    def ask_once(self, method: str, request: bytes, seconds: float) -> bytes:
        """As `call`, without retries; what comes of it does not move the circuit. Errors: RemoteError."""
        if self._circuit.state == "open":
            raise RemoteError(grpc.StatusCode.UNAVAILABLE, self._settings.open_seconds)
        return self._ask(method, request, seconds)

    def collect(self) -> Iterator[Metric]:
        yield from self._seconds.collect()
        yield from self._retries.collect()
        circuit = GaugeMetricFamily("privrank_remote_circuit", "1: the circuit breaker's state", labels=["state"])
        for state in STATES:
            circuit.add_metric([state], float(self._circuit.state == state))
        yield circuit

    def _first_answer(self, method: str, request: bytes, seconds: float) -> bytes:
        ends = time.monotonic() + seconds
        for retry in range(self._settings.retries):
            try:
                return self._ask(method, request, ends - time.monotonic())
            except RemoteError as error:
                pause = random.uniform(0.0, RETRY_SECONDS * 2**retry)
                if error.code is not grpc.StatusCode.UNAVAILABLE or time.monotonic() + pause >= ends:
                    raise
            time.sleep(pause)
            self._retries.inc()
        return self._ask(method, request, ends - time.monotonic())

    def _ask(self, method: str, request: bytes, seconds: float) -> bytes:
        began, status = time.perf_counter(), grpc.StatusCode.OK
        try:
            answer: bytes = self._methods[method](request, timeout=seconds)
            return answer
        except grpc.RpcError as error:
            status = error.code()
            raise RemoteError(status) from None
        finally:
            self._seconds.labels(method, status.name).observe(time.perf_counter() - began)


@cache
def connection_to(settings: TensorFlowServing) -> Connection:
    """The process's only connection to this server: all versions of the model share it. Errors: InputError."""
    if not settings.address:
        raise InputError("tf_serving.address is empty, expected host:port of TensorFlow Serving's gRPC port")
    return Connection(settings)


def _channel(settings: TensorFlowServing) -> grpc.Channel:
    """Errors: InputError."""
    options = {
        "grpc.max_send_message_length": settings.message_bytes,
        "grpc.max_receive_message_length": settings.message_bytes,
        "grpc.lb_policy_name": "round_robin",  # a name of several addresses: all of them score
        "grpc.enable_retries": 0,  # ours are counted
        "grpc.enable_http_proxy": 0,  # queries go nowhere else, whatever the environment says
        # a peer that vanished without a word is noticed, by a ping when a call has waited for so long
        "grpc.keepalive_time_ms": 10_000,
        "grpc.keepalive_timeout_ms": 5_000,
        "grpc.initial_reconnect_backoff_ms": 200,
        "grpc.max_reconnect_backoff_ms": 1_000,
    }
    if not settings.ca_file:
        return grpc.insecure_channel(settings.address, list(options.items()))
    try:
        authorities = Path(settings.ca_file).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read tf_serving.ca_file {settings.ca_file}: {error.strerror}") from None
    return grpc.secure_channel(settings.address, grpc.ssl_channel_credentials(authorities), list(options.items()))
