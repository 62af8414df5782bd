"""The gRPC connection to TensorFlow Serving: one channel for all threads, deadlines, retries, a circuit breaker.

It carries serialised messages; `serving.backends.tf_serving` reads and writes them.
"""

import os
import random
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its lines would mix with the JSON log; gRPC reads it once, at import

import grpc
from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from features.errors import InputError
from serving.backends.circuit_breaker import STATES, CircuitBreaker
from serving.observability.metrics import SECONDS_BUCKETS
from serving.settings import TensorFlowServing

_METHODS = ("Predict", "GetModelMetadata")
_RETRY_SECONDS = 0.05  # the longest pause before the first retry; twice as long before each further one


class RemoteError(Exception):
    """The call ended with an error status. The server's message is dropped: it may quote the request."""

    def __init__(self, code: grpc.StatusCode, retry_after: float = 1.0) -> None:
        super().__init__(code.name)
        self.code, self.retry_after = code, retry_after  # seconds


class Connection(Collector):
    """A channel to one server, and a Prometheus collector of its metrics. Thread-safe."""

    def __init__(self, settings: TensorFlowServing) -> None:
        self.address = settings.address
        self._settings = settings
        channel = _channel(settings)
        service = "/tensorflow.serving.PredictionService/"
        self._methods = {method: channel.unary_unary(service + method) for method in _METHODS}
        self._circuit = CircuitBreaker(settings.failures, settings.open_seconds)
        documentation = "A call of the model server, by its status"
        self._seconds = Histogram(
            "privrank_remote_seconds", documentation, ("method", "status"), buckets=SECONDS_BUCKETS, registry=None
        )
        self._retries = Counter(
            "privrank_remote_retries", "Calls of the model server that were repeated", registry=None
        )

    def call(self, method: str, request: bytes, seconds: float) -> bytes:
        """Calls a method of _METHODS and returns the answer, within `seconds` and the settings' own timeout.

        Retries after a random pause while the server is unavailable. Fails at once while the circuit breaker is open.
        Raises: RemoteError.
        """
        if wait := self._circuit.begin_call():
            raise RemoteError(grpc.StatusCode.UNAVAILABLE, wait)
        answered: bool | None = None
        try:
            answer = self._call_with_retries(method, request, min(seconds, self._settings.seconds))
            answered = True
            return answer
        except RemoteError as error:
            if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
                # a caller's short timeout must not open the circuit breaker for others
                answered = False if seconds >= self._settings.seconds else None
            else:
                answered = error.code is not grpc.StatusCode.UNAVAILABLE
            raise
        finally:
            self._circuit.end_call(answered)

    def call_once(self, method: str, request: bytes, seconds: float) -> bytes:
        """Like `call`, without retries and without effect on the circuit breaker. Raises: RemoteError."""
        if self._circuit.state == "open":
            raise RemoteError(grpc.StatusCode.UNAVAILABLE, self._settings.open_seconds)
        return self._attempt(method, request, seconds)

    def collect(self) -> Iterator[Metric]:
        yield from self._seconds.collect()
        yield from self._retries.collect()
        circuit = GaugeMetricFamily("privrank_remote_circuit", "1: the circuit breaker's state", labels=["state"])
        for state in STATES:
            circuit.add_metric([state], float(self._circuit.state == state))
        yield circuit

    def _call_with_retries(self, method: str, request: bytes, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        for retry in range(self._settings.retries):
            try:
                return self._attempt(method, request, deadline - time.monotonic())
            except RemoteError as error:
                pause = random.uniform(0.0, _RETRY_SECONDS * 2**retry)
                if error.code is not grpc.StatusCode.UNAVAILABLE or time.monotonic() + pause >= deadline:
                    raise
            time.sleep(pause)
            self._retries.inc()
        return self._attempt(method, request, deadline - time.monotonic())

    def _attempt(self, method: str, request: bytes, seconds: float) -> bytes:
        start, status = time.perf_counter(), grpc.StatusCode.OK
        try:
            answer: bytes = self._methods[method](request, timeout=seconds)
            return answer
        except grpc.RpcError as error:
            status = error.code()
            raise RemoteError(status) from None
        finally:
            self._seconds.labels(method, status.name).observe(time.perf_counter() - start)


@cache
def connection_to(settings: TensorFlowServing) -> Connection:
    """Returns the process's only connection to this server, shared by all versions. Raises: InputError."""
    if not settings.address:
        raise InputError("tf_serving.address is empty, expected host:port of TensorFlow Serving's gRPC port")
    return Connection(settings)


def _channel(settings: TensorFlowServing) -> grpc.Channel:
    """Raises: InputError."""
    options = {
        "grpc.max_send_message_length": settings.message_bytes,
        "grpc.max_receive_message_length": settings.message_bytes,
        "grpc.lb_policy_name": "round_robin",  # uses all addresses of the host name
        "grpc.enable_retries": 0,  # `Connection` retries and counts
        "grpc.enable_http_proxy": 0,  # queries must reach no proxy that the environment names
        # detects a dead peer by a ping once a call has waited this long
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
