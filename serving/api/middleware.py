"""ASGI apps around the endpoints: dispatch by path, and request telemetry (ids, timing, log line, metrics, spans)."""

import logging
import re
from collections.abc import Mapping

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.observability.json_log import log, stack_locations
from serving.observability.metrics import Metrics
from serving.observability.request_record import RequestRecord
from serving.observability.span_export import SpanExporter
from serving.observability.trace_context import new_trace_id, span_of
from serving.problems import MEDIA_TYPE, Problem

# polled every few seconds by probes and Prometheus
_UNLOGGED_ROUTES = ("/livez", "/readyz", "/v2/health/live", "/v2/health/ready", "/metrics")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class PathDispatcher:
    """ASGI app that dispatches some paths to their own apps and all other requests to a default app."""

    def __init__(self, apps: Mapping[str, ASGIApp], default: ASGIApp) -> None:
        self._apps, self._default = apps, default

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._apps.get(scope["path"], self._default) if scope["type"] == "http" else self._default
        await app(scope, receive, send)


class RequestTelemetry:
    """Outermost ASGI middleware: identifies and times each request, and turns unhandled exceptions into a 500 problem.

    Endpoints read and fill the RequestRecord at `request.state.record`.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, tracing: SpanExporter) -> None:
        self._app, self._metrics, self._tracing = app, metrics, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = _record_of(scope, self._tracing.share_of_new)
        scope.setdefault("state", {})["record"] = record
        status = 0

        async def named_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_headers_of(record)]
            await send(message)

        try:
            await self._app(scope, receive, named_send)
        except ClientDisconnect:
            record.client_left = True
        except Exception as error:
            fields = {"request_id": record.request_id, "error": type(error).__name__, "at": stack_locations(error)}
            log("failed", logging.ERROR, **fields)
            if not status:
                record.problems.append("internal-error")
                await _send_internal_error(record.request_id, named_send)
        finally:
            # only the route's template: an unknown path is client text
            route = getattr(scope.get("route"), "path", None)
            self._metrics.observe(record, route or "other", status)
            if route not in _UNLOGGED_ROUTES:
                entry = {"method": scope["method"], "route": route, "status": status, **record.to_log()}
                log("request", logging.INFO, milliseconds=round(1000 * record.seconds, 3), **entry)
                self._tracing.add(record, scope["method"], route, status)


def _record_of(scope: Scope, share_of_new: float) -> RequestRecord:
    request_id = _header(scope, b"x-request-id")
    if not _REQUEST_ID.fullmatch(request_id):
        request_id = new_trace_id()
    return RequestRecord(request_id, span_of(_header(scope, b"traceparent"), share_of_new))


def _header(scope: Scope, name: bytes) -> str:
    """Returns the first header of this name, or an empty string."""
    return next((value.decode("latin-1") for given, value in scope["headers"] if given == name), "")


def _headers_of(record: RequestRecord) -> list[tuple[bytes, bytes]]:
    headers = {
        "x-request-id": record.request_id,
        "traceparent": record.span.traceparent,
        "server-timing": record.server_timing(),
        "x-content-type-options": "nosniff",
    }
    if record.versions:
        headers["x-model-version"] = ", ".join(map(str, record.versions))
    return [(name.encode(), value.encode()) for name, value in headers.items()]


async def _send_internal_error(request_id: str, send: Send) -> None:
    body = Problem("internal-error", "The gateway failed while it answered").to_bytes(request_id)
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body})
