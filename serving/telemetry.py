"""One JSON line a request in the log, and a request id on every answer. No text of a request is ever logged."""

import json
import logging
import re
import sys
import time
import traceback
import uuid
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.problems import MEDIA_TYPE, Problem

LOG = logging.getLogger("serving")
UNLOGGED = ("/livez", "/readyz")  # asked every few seconds by whoever watches
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class JsonLines(logging.Formatter):
    """A log record as one JSON object; `extra={"fields": {...}}` joins it."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        line = {"time": stamp, "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps(line | getattr(record, "fields", {}))


def log_to_stderr() -> None:
    """Sends our log and uvicorn's warnings to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("serving", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    LOG.log(level, event, extra={"fields": fields})


class RequestTelemetry:
    """ASGI middleware, the outermost: names the request, times it, and turns what nobody caught into a 500 problem.

    An endpoint finds the id at `request.state.request_id`, and may add to the log at `request.state.logged`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        request_id = _request_id(scope)
        logged: dict[str, Any] = {}
        scope.setdefault("state", {}).update(request_id=request_id, logged=logged)
        status = 0

        async def named_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
                message["headers"] = [*message.get("headers", ()), *named]
            await send(message)

        try:
            await self._app(scope, receive, named_send)
        except ClientDisconnect:
            logged["client_left"] = True
        except Exception as error:
            log("failed", logging.ERROR, request_id=request_id, error=type(error).__name__, at=_places(error))
            if not status:
                await _send_internal_error(request_id, named_send)
        finally:
            _log_request(scope, request_id, status, began, logged)


def _request_id(scope: Scope) -> str:
    given = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"x-request-id"), "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _places(error: BaseException) -> list[str]:
    """Where it was raised, without its message, which may quote the request."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-8:]]


async def _send_internal_error(request_id: str, send: Send) -> None:
    body = Problem("internal-error", "The gateway failed while it answered").to_bytes(request_id)
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _log_request(scope: Scope, request_id: str, status: int, began: float, logged: dict[str, Any]) -> None:
    # a route's own path only: an unknown path is a client's text
    route = getattr(scope.get("route"), "path", None)
    if route in UNLOGGED:
        return
    fields = {"request_id": request_id, "method": scope["method"], "route": route, "status": status}
    log("request", milliseconds=round((time.perf_counter() - began) * 1000, 3), **fields, **logged)
