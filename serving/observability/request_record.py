"""What one request did: written while it is answered, read at its end for the log, the headers and /metrics."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serving.trace_context import Span


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost. tokens: the query's once and every item's, before truncation, special ones not counted.

    truncated: items that the model did not read to the end, all of them where the query was too long.
    clipped: numbers outside the range seen in training, which the model takes for the range's end.
    """

    pairs: int = 0
    tokens: int = 0
    truncated: int = 0
    clipped: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.pairs + other.pairs,
            self.tokens + other.tokens,
            self.truncated + other.truncated,
            self.clipped + other.clipped,
        )


STAGES = ("receive", "queue", "read", "score", "tokens", "answer")
"""In their order: the body arrives, waits for a thread, is read; the model scores; tokens are counted; JSON is made."""


@dataclass(frozen=True, slots=True)
class Interval:
    """One time that a request was in a stage. sizes: what it was about, in numbers."""

    stage: str
    began: float  # by time.perf_counter
    seconds: float
    sizes: dict[str, int]


class Scores(NamedTuple):
    """What a version gave a query group's items, sigma(logit): [items], in the request's order."""

    version: int
    values: NDArray[np.float64]


@dataclass(slots=True)
class Record:
    """One request, from its head to its answer. Written by the thread that answers it, one at a time."""

    request_id: str
    span: Span
    began: float = field(default_factory=time.perf_counter)
    allowed: float = math.inf  # seconds that it may take
    began_at: int = field(default_factory=time.time_ns)  # the same moment, since 1970
    intervals: list[Interval] = field(default_factory=list)
    usage: Usage | None = None  # of a request that was ranked
    versions: list[int] = field(default_factory=list)  # of the model, that answered
    calls: list[tuple[int, int]] = field(default_factory=list)  # of the model: groups, items with padding
    scores: list[Scores | None] = field(default_factory=list)  # of each query group; None where it has a problem
    problems: list[str] = field(default_factory=list)  # slugs, also of entries of a batch
    key: str = ""  # name of the API key
    client_left: bool = False

    @contextmanager
    def stage(self, name: str, **sizes: int) -> Iterator[None]:
        """Adds the time inside to a stage of STAGES."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.was_in(name, began, **sizes)

    def was_in(self, name: str, began: float, **sizes: int) -> None:
        """Adds the time from `began`, by time.perf_counter, until now to a stage of STAGES."""
        self.intervals.append(Interval(name, began, time.perf_counter() - began, sizes))

    @property
    def stages(self) -> dict[str, float]:
        """Seconds a stage. A thread whose client was already answered may still write."""
        seconds: dict[str, float] = {}
        for interval in list(self.intervals):
            seconds[interval.stage] = seconds.get(interval.stage, 0.0) + interval.seconds
        return seconds

    @property
    def seconds(self) -> float:
        """Since the request's head was read."""
        return time.perf_counter() - self.began

    @property
    def seconds_left(self) -> float:
        """Of those allowed; negative when it is late."""
        return self.allowed - self.seconds

    def server_timing(self) -> str:
        """The Server-Timing header (W3C): milliseconds a stage, and in total."""
        stages = self.stages
        measured = [(name, stages[name]) for name in STAGES if name in stages]
        return ", ".join(f"{name};dur={1000 * seconds:.3f}" for name, seconds in [*measured, ("total", self.seconds)])

    def to_log(self) -> dict[str, Any]:
        """Its numbers and names for the log: no text of the request."""
        fields: dict[str, Any] = {"request_id": self.request_id, "trace_id": self.span.trace_id}
        if self.usage is not None:
            fields |= {"pairs": self.usage.pairs, "tokens": self.usage.tokens}
            fields |= {"truncated": self.usage.truncated, "clipped": self.usage.clipped}
        if self.versions:
            fields["versions"] = list(self.versions)
        if self.problems:
            fields["problems"] = list(self.problems)
        if self.key:
            fields["key"] = self.key
        if self.client_left:
            fields["client_left"] = True
        return fields
