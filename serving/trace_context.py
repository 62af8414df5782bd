"""The W3C trace context of a request: the caller's trace goes on under a span of ours, or a new one begins."""

import re
import secrets
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class Span:
    """This gateway's part of a trace. Source: W3C Trace Context, `traceparent`."""

    trace_id: str  # 32 hexadecimal digits, the whole trace's
    span_id: str  # 16, ours
    flags: str = "00"  # 01: whoever called records this trace

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def span_of(traceparent: str) -> Span:
    """Our span below the caller's; a new trace, not recorded, where the header is missing or is none."""
    given = _TRACEPARENT.fullmatch(traceparent)
    span_id = secrets.token_hex(8)
    if given is None or (given[4] and traceparent.startswith("00")):  # version 00 has four fields
        return Span(secrets.token_hex(16), span_id)
    return Span(given[1], span_id, given[3])
