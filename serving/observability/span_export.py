"""Exports spans to an OpenTelemetry collector (OTLP over HTTP, JSON). Requests never wait for it or fail with it."""

import logging
import queue
import threading
import urllib.request
from http.client import HTTPException, HTTPMessage
from typing import IO, Any

import orjson

from serving.observability.json_log import log
from serving.observability.request_record import RequestRecord
from serving.observability.spans import EndedRequest, export_request
from serving.settings import TracingSettings

_MAX_REQUESTS = 200  # requests in one export call
_MAX_RESPONSE_BYTES = 64 << 10  # bytes read of the collector's response


class SpanExporter:
    """Bounded queue of finished requests and the thread that exports their spans."""

    def __init__(self, tracing_settings: TracingSettings) -> None:
        self._settings = tracing_settings
        self._waiting: queue.Queue[EndedRequest] = queue.Queue(tracing_settings.waiting)
        self._stopping = threading.Event()
        self._healthy = True
        self.spans = {"exported": 0, "failed": 0, "dropped": 0}  # by outcome
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        if tracing_settings.endpoint:
            self._thread.start()

    @property
    def share_of_new(self) -> float:
        return self._settings.share_of_new if self._settings.endpoint else 0.0

    def add(self, record: RequestRecord, method: str, route: str | None, status: int) -> None:
        """Queues a finished request whose trace is sampled. Counts its spans as dropped if the queue is full."""
        if not (self._settings.endpoint and record.span.is_recorded):
            return
        try:
            self._waiting.put_nowait(EndedRequest(record, method, route, status, record.seconds))
        except queue.Full:
            self.spans["dropped"] += 1 + len(record.intervals)

    def stop(self) -> None:
        """Exports what is still queued, unless an export fails, and ends the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * self._settings.timeout_seconds)

    def _run(self) -> None:
        while not self._stopping.wait(self._settings.every_seconds):
            self._export_all()
        self._export_all()

    def _export_all(self) -> None:
        while ended := self._next_requests():
            self._export(ended)
            if self._stopping.is_set() and not self._healthy:
                return

    def _next_requests(self) -> list[EndedRequest]:
        taken: list[EndedRequest] = []
        while len(taken) < _MAX_REQUESTS:
            try:
                taken.append(self._waiting.get_nowait())
            except queue.Empty:
                break
        return taken

    def _export(self, ended: list[EndedRequest]) -> None:
        """Makes one export call and counts its spans. Logs the first of consecutive failures; never retries."""
        payload = export_request(ended, self._settings.service)
        spans = len(payload["resourceSpans"][0]["scopeSpans"][0]["spans"])
        try:
            rejected = _post(self._settings.endpoint, orjson.dumps(payload), self._settings.timeout_seconds)
            rejected = min(max(rejected, 0), spans)
            reason = f"the collector rejected {rejected} of {spans} spans" if rejected else ""
        except (OSError, HTTPException, ValueError) as error:
            rejected, reason = spans, f"{type(error).__name__}: {error}"
        self.spans["failed"] += rejected
        self.spans["exported"] += spans - rejected
        if reason and self._healthy:
            log("tracing-failed", logging.WARNING, endpoint=self._settings.endpoint, reason=reason[:300])
        self._healthy = not reason


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str) -> None:
        return None  # a redirect is an error


# ignores the environment's proxy: the settings name the collector
_open = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect).open


def _post(endpoint: str, body: bytes, timeout: float) -> int:
    """Posts spans. Returns how many the collector rejected. Errors: OSError, HTTPException, ValueError."""
    request = urllib.request.Request(endpoint, body, {"Content-Type": "application/json"})
    with _open(request, timeout=timeout) as response:
        answer = response.read(_MAX_RESPONSE_BYTES)
    response_json = orjson.loads(answer or b"{}")
    partial = response_json.get("partialSuccess") if isinstance(response_json, dict) else None
    return int(str(partial.get("rejectedSpans", 0))) if isinstance(partial, dict) else 0
