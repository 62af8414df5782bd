"""uvicorn's HTTP protocol, with an end to what a client may take before it has a request, and after its answer.

Without it, connections that send nothing, heads that never end and answers that nobody reads would pile up for ever.
"""

import asyncio
import logging
from collections.abc import Callable

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from serving.log import log
from serving.problems import MEDIA_TYPE, Problem
from serving.settings import Connections
from serving.trace_context import new_trace_id


def protocol_within(limits: Connections, count_refused: Callable[[Problem], None]) -> type[HttpToolsProtocol]:
    """The protocol class for uvicorn, which makes one object of it a connection."""

    class Guarded(HttpToolsProtocol):
        _in_head = True  # waiting for a request line or its headers
        _head_bytes = 0
        _answers = 0
        _timer: asyncio.TimerHandle | None = None
        _refused = False
        _answering: RequestResponseCycle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._await_head()
            if len(self.connections) > limits.most:
                told = f"{limits.most} connections are open, as many as this gateway takes"
                self._refuse(Problem("overloaded", told, headers={"Retry-After": "1"}))

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)
            if self._answering is not None:  # uvicorn tells only the last request of a pipeline that its client left
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
            if self._in_head and self._head_bytes > limits.head_bytes:
                self._refuse(_head_too_large(limits))

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if not self._in_head:  # not the connection's first: what came with the end of the one before is not counted
                self._head_bytes = 1
                self._await_head()

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._stop_timer()
            if self._refused:
                return
            # what came in one piece with its body could not be told from it before
            if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > limits.head_bytes:
                self._refuse(_head_too_large(limits))
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
            self._answers += 1
            if self.transport.get_write_buffer_size():
                self.loop.call_later(limits.body_seconds, self._abort_if_unread, self._answers)

        def _await_head(self) -> None:
            self._in_head = True
            self._timer = self.loop.call_later(limits.head_seconds, self._head_is_late)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _head_is_late(self) -> None:
            if not self._head_bytes:
                self.transport.close()  # nothing was asked, as browsers do that connect ahead
                return
            told = f"The request's head did not arrive within {limits.head_seconds:g} seconds"
            self._refuse(Problem("head-timeout", told))

        def _abort_if_unread(self, answers: int) -> None:
            if answers == self._answers and self.transport.get_write_buffer_size():
                self.transport.abort()

        def _refuse(self, problem: Problem) -> None:
            """Ends the connection with a problem, where nothing else is being answered on it."""
            self._refused = True
            self._stop_timer()
            log("connection-refused", logging.WARNING, problem=problem.slug)
            count_refused(problem)
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_response(problem))
            self.transport.close()

    return Guarded


def _head_too_large(limits: Connections) -> Problem:
    return Problem("head-too-large", f"The request's head has more than {limits.head_bytes} bytes")


def _response(problem: Problem) -> bytes:
    body = problem.to_bytes(new_trace_id())
    headers = {"Content-Type": MEDIA_TYPE, "Content-Length": len(body), "Connection": "close", **problem.headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {problem.status} {problem.type.title}\r\n{head}\r\n".encode() + body
