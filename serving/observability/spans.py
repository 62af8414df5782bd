"""OpenTelemetry spans of a request: one for the request, one for each stage. They contain no client text.

Source: OTLP 1, JSON encoding: ids in hexadecimal, 64-bit integers as strings; semantic conventions for HTTP spans.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from serving.observability.request_record import RequestRecord
from serving.observability.trace_context import new_span_id

_Json = dict[str, Any]
AttributeValue = bool | int | str | Sequence[int] | Sequence[str]

_INTERNAL, _SERVER = 1, 2  # span kinds
_ERROR = 2  # status code


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """A finished request. route: None for an unknown path. status: 0 if the client disconnected before the response."""

    record: RequestRecord
    method: str
    route: str | None
    status: int
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.method} {self.route}" if self.route else self.method


def export_request(ended: Sequence[EndedRequest], service: str) -> _Json:
    """Returns an ExportTraceServiceRequest with all spans of these requests."""
    resource = {"attributes": _attributes({"service.name": service, "process.pid": os.getpid()})}
    spans = [span for request in ended for span in spans_of(request)]
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "serving"}, "spans": spans}]}]}


def spans_of(ended: EndedRequest) -> list[_Json]:
    """Returns the request's span, then its stage spans in the order in which they ended."""
    record = ended.record
    whole = _span(record, record.span.span_id, record.span.parent_id, ended.name, record.began, ended.seconds)
    whole |= {"kind": _SERVER, "attributes": _attributes(_request_attributes(ended))}
    if ended.status >= 500:
        whole["status"] = {"code": _ERROR}
    stages = [
        _span(record, new_span_id(), record.span.span_id, i.stage, i.began, i.seconds)
        | {"kind": _INTERNAL, "attributes": _attributes({f"privrank.{name}": n for name, n in i.sizes.items()})}
        for i in list(record.intervals)
    ]
    return [whole, *stages]


def _span(record: RequestRecord, span_id: str, parent_id: str, name: str, began: float, seconds: float) -> _Json:
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


def _request_attributes(ended: EndedRequest) -> dict[str, AttributeValue]:
    record = ended.record
    attributes: dict[str, AttributeValue] = {"http.request.method": ended.method}
    if ended.route is not None:
        attributes["http.route"] = ended.route
    if ended.status:
        attributes["http.response.status_code"] = ended.status
    if ended.status >= 500 and record.problems:
        attributes["error.type"] = record.problems[-1]
    if record.usage is not None:
        attributes |= {f"privrank.{name}": count for name, count in asdict(record.usage).items()}
    attributes |= {"privrank.versions": list(record.versions), "privrank.problems": list(record.problems)}
    if record.client_left:
        attributes["privrank.client_left"] = True
    return attributes


def _attributes(attributes: Mapping[str, AttributeValue]) -> list[_Json]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: AttributeValue) -> _Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": [_value(one) for one in value]}}
