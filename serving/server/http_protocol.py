"""uvicorn's HTTP protocol with limits on connections, request heads and unread responses.

Without them, idle connections, endless heads and responses that clients do not read would accumulate.
"""

import asyncio
import logging
from collections.abc import Callable

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from serving.observability.json_log import log
from serving.observability.trace_context import new_trace_id
from serving.problems import MEDIA_TYPE, Problem
from serving.settings import Connections


class LimitedProtocol(HttpToolsProtocol):
    """A connection. `limited_protocol` gives a subclass its limits."""

    limits: Connections
    count_refused: Callable[[Problem], None]
    _in_head = True  # receiving a request line or headers
    _head_bytes = 0
    _responses = 0
    _timer: asyncio.TimerHandle | None = None
    _refused = False
    _answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > self.limits.most:
            detail = f"{self.limits.most} connections are open, as many as this gateway takes"
            self._refuse(Problem("overloaded", detail, headers={"Retry-After": "1"}))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)
        if self._answering is not None:  # uvicorn signals the disconnect only to the last request of a pipeline
            self._answering.disconnected = True
            self._answering.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > self.limits.head_bytes:
            self._refuse(_head_too_large(self.limits))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:  # not the first request: bytes received with the previous one are not counted
            self._head_bytes = 1
            self._await_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        if self._refused:
            return
        # a head that arrived together with its body is counted only now
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self.limits.head_bytes:
            self._refuse(_head_too_large(self.limits))
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._responses += 1
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self.limits.body_seconds, self._abort_if_unread, self._responses)

    def _await_head(self) -> None:
        self._in_head = True
        self._timer = self.loop.call_later(self.limits.head_seconds, self._on_head_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_head_timeout(self) -> None:
        if not self._head_bytes:
            self.transport.close()  # no request: browsers open connections ahead of time
            return
        detail = f"The request's head did not arrive within {self.limits.head_seconds:g} seconds"
        self._refuse(Problem("head-timeout", detail))

    def _abort_if_unread(self, responses: int) -> None:
        if responses == self._responses and self.transport.get_write_buffer_size():
            self.transport.abort()

    def _refuse(self, problem: Problem) -> None:
        """Closes the connection. Sends the problem first, unless another response is in progress."""
        self._refused = True
        self._stop_timer()
        log("connection-refused", logging.WARNING, problem=problem.slug)
        self.count_refused(problem)
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_response(problem))
        self.transport.close()


def limited_protocol(limits: Connections, count_refused: Callable[[Problem], None]) -> type[LimitedProtocol]:
    """Returns the protocol class for uvicorn, which creates one instance for each connection."""
    members = {"limits": limits, "count_refused": staticmethod(count_refused)}
    return type("LimitedProtocol", (LimitedProtocol,), members)


def _head_too_large(limits: Connections) -> Problem:
    return Problem("head-too-large", f"The request's head has more than {limits.head_bytes} bytes")


def _response(problem: Problem) -> bytes:
    body = problem.to_bytes(new_trace_id())
    headers = {"Content-Type": MEDIA_TYPE, "Content-Length": len(body), "Connection": "close", **problem.headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {problem.status} {problem.type.title}\r\n{head}\r\n".encode() + body
