"""W3C trace context: continues the caller's trace with a span of the gateway, or begins a new trace."""

import random
import re
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

# Ids are not secret. os.urandom would release the interpreter's lock to a scoring thread on every call.
_IDS = random.Random()


@dataclass(frozen=True, slots=True)
class Span:
    """The gateway's span of a request. Source: W3C Trace Context, `traceparent`."""

    trace_id: str  # 32 hexadecimal digits
    span_id: str  # 16 hexadecimal digits
    flags: str = "00"  # 01: sampled
    parent_id: str = ""  # the caller's span; empty if the trace begins here

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"

    @property
    def is_recorded(self) -> bool:
        return bool(int(self.flags, 16) & 1)


def span_of(traceparent: str, share_of_new: float = 0.0) -> Span:
    """Returns a child of the caller's span, or a new trace if the header is missing or invalid.

    share_of_new: probability that a new trace is recorded.
    """
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or (match[4] and traceparent.startswith("00")):  # version 00 has four fields
        return Span(new_trace_id(), new_span_id(), "01" if random.random() < share_of_new else "00")
    return Span(match[1], new_span_id(), match[3], match[2])


def new_trace_id() -> str:
    return f"{_IDS.getrandbits(128):032x}"


def new_span_id() -> str:
    return f"{_IDS.getrandbits(64):016x}"
