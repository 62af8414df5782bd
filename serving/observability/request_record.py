"""Measurements of one request, for its log line, response headers, spans and /metrics."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serving.observability.trace_context import Span


@dataclass(frozen=True, slots=True)
class Usage:
    """Work of a request. tokens: of the query, once, and of all items, before truncation, without special tokens.

    truncated: items whose text was cut; all items if the query was cut.
    clipped: numbers outside the range seen in training, which the model clips to it.
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
"""In order: receive the body, wait in the queue, parse, score by the model, count tokens, encode the response."""


@dataclass(frozen=True, slots=True)
class StageInterval:
    """One time span of a request in a stage. sizes: numbers that describe its work, e.g. items."""

    stage: str
    began: float  # time.perf_counter()
    seconds: float
    sizes: dict[str, int]


class Scores(NamedTuple):
    """Scores of a query group by a model version. values: sigma(logit), float64 [items], in the request's order."""

    version: int
    values: NDArray[np.float64]


@dataclass(slots=True)
class RequestRecord:
    """One request, from its head to its response. Written by one thread at a time."""

    request_id: str
    span: Span
    began: float = field(default_factory=time.perf_counter)
    allowed: float = math.inf  # time limit in seconds
    began_at: int = field(default_factory=time.time_ns)  # the same moment, nanoseconds since 1970
    intervals: list[StageInterval] = field(default_factory=list)
    usage: Usage | None = None  # None unless ranked
    versions: list[int] = field(default_factory=list)  # model versions that scored it
    calls: list[tuple[int, int]] = field(default_factory=list)  # model calls: (groups, items with padding)
    scores: list[Scores | None] = field(default_factory=list)  # a query group each; None for a problem
    problems: list[str] = field(default_factory=list)  # slugs, also of entries of a batch
    key: str = ""  # name of the API key
    client_left: bool = False

    @contextmanager
    def stage(self, name: str, **sizes: int) -> Iterator[None]:
        """Adds the duration of the `with` block to a stage of STAGES."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add_interval(name, began, **sizes)

    def add_interval(self, name: str, began: float, **sizes: int) -> None:
        """Adds the time from `began`, by time.perf_counter, until now to a stage of STAGES."""
        self.intervals.append(StageInterval(name, began, time.perf_counter() - began, sizes))

    @property
    def stages(self) -> dict[str, float]:
        """Seconds by stage. Copies `intervals`, because a thread may still write after the response is sent."""
        seconds: dict[str, float] = {}
        for interval in list(self.intervals):
            seconds[interval.stage] = seconds.get(interval.stage, 0.0) + interval.seconds
        return seconds

    @property
    def seconds(self) -> float:
        """Seconds since the request's head was read."""
        return time.perf_counter() - self.began

    @property
    def seconds_left(self) -> float:
        """Seconds until the time limit; negative after it."""
        return self.allowed - self.seconds

    def server_timing(self) -> str:
        """The Server-Timing header (W3C): milliseconds by stage, and in total."""
        stages = self.stages
        measured = [(name, stages[name]) for name in STAGES if name in stages]
        return ", ".join(f"{name};dur={1000 * seconds:.3f}" for name, seconds in [*measured, ("total", self.seconds)])

    def to_log(self) -> dict[str, Any]:
        """Fields of the log line. Contains no text of the request."""
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
