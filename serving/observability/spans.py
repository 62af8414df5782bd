"""A request as spans of OpenTelemetry: one of the whole, one of each stage. Numbers and names, never a client's text.

Source: OTLP 1, JSON encoding: ids in hexadecimal, 64-bit whole numbers as text; semantic conventions for HTTP spans.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from serving.record import Record
from serving.trace_context import new_span_id

Json = dict[str, Any]
Value = bool | int | str | Sequence[int] | Sequence[str]

_INTERNAL, _SERVER = 1, 2  # kinds of spans
_ERROR = 2  # a status


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that has ended. route: None for an unknown path. status: 0 when its client left before the answer."""

    record: Record
    method: str
    route: str | None
    status: int
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.method} {self.route}" if self.route else self.method


def export_request(ended: Sequence[Ended], service: str) -> Json:
    """An ExportTraceServiceRequest with all spans of these requests."""
    resource = {"attributes": _attributes({"service.name": service, "process.pid": os.getpid()})}
    spans = [span for request in ended for span in spans_of(request)]
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "serving"}, "spans": spans}]}]}


def spans_of(ended: Ended) -> list[Json]:
    """The request's span, then its stages' in the order in which they ended."""
    record = ended.record
    whole = _span(record, record.span.span_id, record.span.parent_id, ended.name, record.began, ended.seconds)
    whole |= {"kind": _SERVER, "attributes": _attributes(_said_of(ended))}
    if ended.status >= 500:
        whole["status"] = {"code": _ERROR}
    stages = [
        _span(record, new_span_id(), record.span.span_id, i.stage, i.began, i.seconds)
        | {"kind": _INTERNAL, "attributes": _attributes({f"privrank.{name}": n for name, n in i.sizes.items()})}
        for i in list(record.intervals)
    ]
    return [whole, *stages]


def _span(record: Record, span_id: str, parent_id: str, name: str, began: float, seconds: float) -> Json:
    start = record.began_at + round((began - record.began) * 1e9)
    return {
        "traceId": record.span.trace_id,
        "spanId": span_id,
        "parentSpanId": parent_id,
        "flags": int(record.span.flags, 16),
        "name": name,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + round(seconds * 1e9)),
    }


def _said_of(ended: Ended) -> dict[str, Value]:
    record = ended.record
    said: dict[str, Value] = {"http.request.method": ended.method}
    if ended.route is not None:
        said["http.route"] = ended.route
    if ended.status:
        said["http.response.status_code"] = ended.status
    if ended.status >= 500 and record.problems:
        said["error.type"] = record.problems[-1]
    if record.usage is not None:
        said |= {f"privrank.{name}": count for name, count in asdict(record.usage).items()}
    said |= {"privrank.versions": list(record.versions), "privrank.problems": list(record.problems)}
    if record.client_left:
        said["privrank.client_left"] = True
    return said


def _attributes(said: Mapping[str, Value]) -> list[Json]:
    return [{"key": name, "value": _value(value)} for name, value in said.items()]


def _value(value: Value) -> Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": [_value(one) for one in value]}}
