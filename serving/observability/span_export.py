"""Tells spans to an OpenTelemetry collector (OTLP over HTTP, as JSON). No request waits for it or fails with it."""

import logging
import queue
import threading
import urllib.request
from http.client import HTTPException, HTTPMessage
from typing import IO, Any

import orjson

from serving import settings
from serving.log import log
from serving.record import Record
from serving.spans import Ended, export_request

MOST = 200  # requests told at once
ANSWER_BYTES = 64 << 10  # of the collector's answer that are read


class Tracing:
    """A bounded line of requests that have ended, and a thread that tells their spans."""

    def __init__(self, given: settings.Tracing) -> None:
        self._settings = given
        self._waiting: queue.Queue[Ended] = queue.Queue(given.waiting)
        self._ending = threading.Event()
        self._works = True
        self.spans = {"told": 0, "failed": 0, "dropped": 0}  # what became of them
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        if given.endpoint:
            self._thread.start()

    @property
    def share_of_new(self) -> float:
        return self._settings.share_of_new if self._settings.endpoint else 0.0

    def add(self, record: Record, method: str, route: str | None, status: int) -> None:
        """A request that has ended now, where its trace is recorded; dropped and counted when too many wait."""
        if not (self._settings.endpoint and record.span.is_recorded):
            return
        try:
            self._waiting.put_nowait(Ended(record, method, route, status, record.seconds))
        except queue.Full:
            self.spans["dropped"] += 1 + len(record.intervals)

    def stop(self) -> None:
        """Tells what still waits, while the collector takes it."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(2 * self._settings.timeout_seconds)

    def _run(self) -> None:
        while not self._ending.wait(self._settings.every_seconds):
            self._tell_all()
        self._tell_all()

    def _tell_all(self) -> None:
        while ended := self._taken():
            self._tell(ended)
            if self._ending.is_set() and not self._works:
                return

    def _taken(self) -> list[Ended]:
        taken: list[Ended] = []
        while len(taken) < MOST:
            try:
                taken.append(self._waiting.get_nowait())
            except queue.Empty:
                break
        return taken

    def _tell(self, ended: list[Ended]) -> None:
        """One telling, counted. A failure is logged when the one before succeeded, and not tried again."""
        told = export_request(ended, self._settings.service)
        spans = len(told["resourceSpans"][0]["scopeSpans"][0]["spans"])
        try:
            said = _post(self._settings.endpoint, orjson.dumps(told), self._settings.timeout_seconds)
            rejected = min(max(said, 0), spans)
            reason = f"the collector rejected {rejected} of {spans} spans" if rejected else ""
        except (OSError, HTTPException, ValueError) as error:
            rejected, reason = spans, f"{type(error).__name__}: {error}"
        self.spans["failed"] += rejected
        self.spans["told"] += spans - rejected
        if reason and self._works:
            log("tracing-failed", logging.WARNING, endpoint=self._settings.endpoint, reason=reason[:300])
        self._works = not reason


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str) -> None:
        return None  # so that it is an error


# the collector is where the settings say, whatever proxy the environment names for others
_open = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect).open


def _post(endpoint: str, body: bytes, timeout: float) -> int:
    """How many spans the collector rejected. Errors: OSError, HTTPException, ValueError."""
    request = urllib.request.Request(endpoint, body, {"Content-Type": "application/json"})
    with _open(request, timeout=timeout) as response:
        answer = response.read(ANSWER_BYTES)
    partial = orjson.loads(answer or b"{}")
    said = partial.get("partialSuccess") if isinstance(partial, dict) else None
    return int(str(said.get("rejectedSpans", 0))) if isinstance(said, dict) else 0
