"""The version in the shadow: it scores a sample of the requests again, after their answers, and answers nobody.

How far it agrees with the version that answered is in /metrics. It works while a scoring thread is idle, so that it
takes nothing from requests; what it cannot do in time is dropped and counted.
"""

import logging
import queue
import random
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from prometheus_client import Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.background import BackgroundTask

from features.agreement import kendall_tau
from serving.answers import Shape
from serving.line import Line
from serving.log import log, places_of
from serving.problems import Problem
from serving.record import Record, Scores
from serving.served import Models, Served
from serving.settings import Settings
from serving.strict_json import parse_json
from serving.trace_context import span_of

TAUS = (-0.5, 0.0, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LOOK_SECONDS = 0.005  # between two looks for an idle thread
STOP_SECONDS = 5.0  # that its thread has to end


class Asked(NamedTuple):
    """A request that was answered. scores: as its Record has them. models: that it could be answered by."""

    shape: Shape
    body: bytes
    models: Models
    shadow: Served
    scores: list[Scores | None]


class Shadow(Collector):
    """A bounded line of requests, and a thread that has the shadow score them. Prometheus collects how it went."""

    def __init__(self, settings: Settings, line: Line) -> None:
        self._settings, self._line = settings.shadow, line
        # a call of a model server with less than its longest time leaves the circuit breaker alone when it is late
        self._seconds = settings.tf_serving.seconds
        self._waiting: queue.Queue[Asked] = queue.Queue(settings.shadow.waiting)
        self._ending = threading.Event()
        self._works = True
        self._requests = Counter(
            "privrank_shadow_requests", "Sampled requests by what became of them", ("version", "outcome"), registry=None
        )
        told = "Order of a query group's items in the shadow against the order that was answered; 1 is the same"
        versions = ("version", "served")
        self._taus = Histogram("privrank_shadow_kendall_tau", told, versions, buckets=TAUS, registry=None)
        told = f"Share of the first {settings.shadow.top} results that the shadow has among its first, of longer lists"
        self._overlaps = Histogram("privrank_shadow_top_overlap", told, versions, buckets=SHARES, registry=None)
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)
        if settings.shadow.version is not None:
            self._thread.start()

    def after(self, shape: Shape, body: bytes, models: Models, record: Record) -> BackgroundTask | None:
        """What to do once the request's answer is sent; None for one that is not in the sample.

        The sample is drawn at random: request ids are clients' own, and of one who repeats an id, a hash of it would
        take all requests or none.
        """
        if models.shadow is None or random.random() >= self._settings.share:
            return None
        return BackgroundTask(self._add, Asked(shape, body, models, models.shadow, record.scores))

    def stop(self) -> None:
        """The thread ends after what it is at."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def collect(self) -> Iterator[Metric]:
        for collector in (self._requests, self._taus, self._overlaps):
            yield from collector.collect()

    async def _add(self, asked: Asked) -> None:
        try:
            self._waiting.put_nowait(asked)
        except queue.Full:
            self._count(asked.shadow, "dropped")

    def _count(self, shadow: Served, outcome: str) -> None:
        self._requests.labels(str(shadow.version), outcome).inc()

    # --- in the thread

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                asked = self._waiting.get(timeout=0.5)
            except queue.Empty:
                continue
            if self._finds_idle_thread():
                self._count(asked.shadow, "failed" if (reason := self._compare(asked)) else "compared")
                if reason and self._works:  # the first after one that went well
                    log("shadow-failed", logging.WARNING, version=asked.shadow.version, reason=reason)
                self._works = not reason
            else:
                self._count(asked.shadow, "dropped")
            del asked  # its models may be the last ones of theirs

    def _finds_idle_thread(self) -> bool:
        """Waits for one, for a while."""
        ends = time.monotonic() + self._settings.wait_seconds
        while self._line.is_busy:
            if time.monotonic() > ends or self._ending.wait(LOOK_SECONDS):
                return False
        return True

    def _compare(self, asked: Asked) -> str:
        """Has the shadow do what was asked, and compares. Returns why it could not, without any text of the request."""
        record = Record("shadow", span_of(""), allowed=self._seconds)
        every = dict.fromkeys(asked.models.resident, asked.shadow)  # whichever version a client asked for
        try:
            asked.shape(parse_json(asked.body), Models(asked.shadow, every), record)
            pairs = [(a, b) for a, b in zip(asked.scores, record.scores, strict=True) if a is not None]
            for served, again in pairs:
                if again is not None:
                    self._observe(served, again)
        except Problem as problem:
            return problem.slug
        except Exception as error:
            return f"{type(error).__name__} at {places_of(error)}"
        return ", ".join(record.problems) if any(again is None for _, again in pairs) else ""

    def _observe(self, served: Scores, again: Scores) -> None:
        """Ties have the request's order, as in an answer."""
        first, second = (
            np.argsort(np.argsort(-scores.values, kind="stable")).astype(np.int32) for scores in (served, again)
        )
        labels, top = (str(again.version), str(served.version)), self._settings.top
        if len(first) > 1:
            self._taus.labels(*labels).observe(kendall_tau(first, second))
        if len(first) > top:
            self._overlaps.labels(*labels).observe(int(((first < top) & (second < top)).sum()) / top)
