"""The W3C trace context of a request: the caller's trace goes on under a span of ours, or a new one begins."""

import random
import re
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

# Ids are no secrets. To ask the system for each would hand the interpreter's lock to a scoring thread each time.
_IDS = random.Random()


@dataclass(frozen=True, slots=True)
class Span:
    """This gateway's part of a trace. Source: W3C Trace Context, `traceparent`."""

    trace_id: str  # 32 hexadecimal digits, the whole trace's
    span_id: str  # 16, ours
    flags: str = "00"  # 01: whoever called records this trace
    parent_id: str = ""  # 16, the caller's; none where the trace begins here

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"

    @property
    def is_recorded(self) -> bool:
        return bool(int(self.flags, 16) & 1)


def span_of(traceparent: str, share_of_new: float = 0.0) -> Span:
    """Our span below the caller's; a new trace where the header is missing or is none.

    share_of_new: probability that a new trace is recorded.
    """
    given = _TRACEPARENT.fullmatch(traceparent)
    if given is None or (given[4] and traceparent.startswith("00")):  # version 00 has four fields
        return Span(new_trace_id(), new_span_id(), "01" if random.random() < share_of_new else "00")
    return Span(given[1], new_span_id(), given[3], given[2])


def new_trace_id() -> str:
    return f"{_IDS.getrandbits(128):032x}"


def new_span_id() -> str:
    return f"{_IDS.getrandbits(64):016x}"
