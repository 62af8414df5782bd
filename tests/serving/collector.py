"""An OpenTelemetry collector, as far as a test needs one: a process that takes OTLP over HTTP as JSON, by its rules.

`python -m tests.serving.collector` listens on a free port and prints it. What it took comes back at GET /taken; PUT
/behaviour says how it answers from then on: well, or in one of the ways in which collectors fail.
"""

import json
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import httpx

from tests.serving.processes import ROOT, START_SECONDS, environment

HEX = {"traceId": r"[0-9a-f]{32}", "spanId": r"[0-9a-f]{16}", "parentSpanId": r"([0-9a-f]{16})?"}
NANOSECONDS = r"[1-9][0-9]{18}"
SPAN = {*HEX, "flags", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes", "status"}
ANSWERS: dict[str, tuple[int, bytes]] = {
    "well": (200, b"{}"),
    "silent": (200, b""),
    "partial": (200, b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no"}}'),
    "busy": (503, b"later"),
    "elsewhere": (307, b""),
    "nonsense": (200, b"<html>"),
    "hostile": (200, b'{"partialSuccess": {"rejectedSpans": [-1e99]}}'),
}


def decoded(body: bytes) -> list[dict[str, Any]]:
    """The spans of a request, their attributes as a dictionary. Errors: AssertionError where a rule is broken."""
    [of_resource] = json.loads(body)["resourceSpans"]
    [of_scope] = of_resource["scopeSpans"]
    resource = attributes(of_resource["resource"]["attributes"])
    return [span_of(span) | {"resource": resource} for span in of_scope["spans"]]


def span_of(given: dict[str, Any]) -> dict[str, Any]:
    assert given.keys() <= SPAN, given.keys()
    for name, pattern in HEX.items():
        assert re.fullmatch(pattern, given[name]), name
    for name in ("startTimeUnixNano", "endTimeUnixNano"):
        assert re.fullmatch(NANOSECONDS, given[name]), name
    assert isinstance(given["flags"], int)
    assert given["kind"] in (1, 2)
    return given | {"attributes": attributes(given["attributes"])}


def attributes(given: list[Any]) -> dict[str, Any]:
    return {one["key"]: value_of(one["value"]) for one in given}


def value_of(given: dict[str, Any]) -> Any:
    [(kind, value)] = given.items()
    if kind == "arrayValue":
        return [value_of(one) for one in value["values"]]
    expected = {"stringValue": str, "boolValue": bool, "intValue": str}[kind]  # 64-bit whole numbers are text in JSON
    assert type(value) is expected, kind
    return int(value) if kind == "intValue" else value


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behaviour = "well"
    taken: list[dict[str, Any]] = []

    def do_GET(self) -> None:
        self.answer(200, json.dumps(self.taken).encode())

    def do_PUT(self) -> None:
        type(self).behaviour = self.body().decode()
        self.answer(200, b"")

    def do_POST(self) -> None:
        body = self.body()
        if self.behaviour == "hanging":
            time.sleep(60)
            return
        try:
            assert self.path == "/v1/traces"
            assert self.headers["Content-Type"] == "application/json"
            spans = decoded(body)
        except (AssertionError, KeyError, ValueError) as error:
            self.answer(400, repr(error).encode())
            return
        status, answer = ANSWERS[self.behaviour]
        if status == 200:
            self.taken.extend(spans)
        self.answer(status, answer)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status == 307:
            self.send_header("Location", "/taken")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *said: Any) -> None: ...


class Collector:
    """The process, from the test's side."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.serving.collector"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment())
        assert self._process.stdout is not None
        self.address = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self._http = httpx.Client(base_url=self.address, timeout=60)

    def behave(self, behaviour: str) -> None:
        assert self._http.put("/behaviour", content=behaviour).status_code == 200

    def spans(self, trace_id: str) -> list[dict[str, Any]]:
        """What it took of a trace so far."""
        return [span for span in self._http.get("/taken").json() if span["traceId"] == trace_id]

    def wait_for(self, trace_id: str) -> list[dict[str, Any]]:
        """A trace's spans, once they are there; a request's come together."""
        deadline = time.monotonic() + START_SECONDS
        while not (spans := self.spans(trace_id)):
            assert time.monotonic() < deadline, f"no span of {trace_id}"
            time.sleep(0.05)
        return spans

    def __enter__(self) -> "Collector":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.close()
        self._process.kill()
        self._process.wait(timeout=20)
        assert self._process.stdout is not None
        self._process.stdout.close()


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever).start()


if __name__ == "__main__":
    main()
