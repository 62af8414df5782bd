"""Shadow scoring: the shadow version scores a sample of the answered requests again; its scores are only compared.

/metrics shows how far it agrees with the version that answered. It runs only while a scoring thread is idle, so that it
does not slow requests down; sampled requests that it cannot score in time are dropped and counted.
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

from inference.kendall_tau import kendall_tau
from serving.models.loaded_model import Handler, LoadedModel, Models
from serving.observability.json_log import log, stack_locations
from serving.observability.request_record import RequestRecord, Scores
from serving.observability.trace_context import span_of
from serving.problems import Problem
from serving.ranking.request_queue import RequestQueue
from serving.settings import Settings

_TAU_BUCKETS = (-0.5, 0.0, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
_OVERLAP_BUCKETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_IDLE_POLL_SECONDS = 0.005  # between two checks for an idle thread
_STOP_SECONDS = 5.0  # how long `stop` waits for the thread


class _SampledRequest(NamedTuple):
    """An answered request in the sample. scores: from its RequestRecord. models: those that could have answered it."""

    shape: Handler
    body: bytes
    models: Models
    shadow: LoadedModel
    scores: list[Scores | None]


class ShadowScorer(Collector):
    """A bounded queue of sampled requests, a thread that scores them with the shadow, and their metrics."""

    def __init__(self, settings: Settings, request_queue: RequestQueue) -> None:
        self._settings, self._request_queue = settings.shadow, request_queue
        # the full timeout of the model server: a shorter one that expires would not count in the circuit breaker
        self._seconds = settings.tf_serving.seconds
        self._waiting: queue.Queue[_SampledRequest] = queue.Queue(settings.shadow.waiting)
        self._ending = threading.Event()
        self._works = True
        self._requests = Counter(
            "privrank_shadow_requests", "Sampled requests by what became of them", ("version", "outcome"), registry=None
        )
        documentation = (
            "Order of a query group's items in the shadow against the order that was answered; 1 is the same"
        )
        versions = ("version", "served")
        self._taus = Histogram(
            "privrank_shadow_kendall_tau", documentation, versions, buckets=_TAU_BUCKETS, registry=None
        )
        documentation = (
            f"Share of the first {settings.shadow.top} results that the shadow has among its first, of longer lists"
        )
        self._overlaps = Histogram(
            "privrank_shadow_top_overlap", documentation, versions, buckets=_OVERLAP_BUCKETS, registry=None
        )
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)
        if settings.shadow.version is not None:
            self._thread.start()

    def background_task(
        self, shape: Handler, body: bytes, models: Models, record: RequestRecord
    ) -> BackgroundTask | None:
        """Returns the task to run after the request's answer is sent, or None if the request is not sampled.

        The sample is random, not a hash of the request id: clients choose the ids, and for a client that repeats one, a
        hash would sample all requests or none.
        """
        if models.shadow is None or random.random() >= self._settings.share:
            return None
        return BackgroundTask(self._add, _SampledRequest(shape, body, models, models.shadow, record.scores))

    def stop(self) -> None:
        """Lets the thread end after its current request."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def collect(self) -> Iterator[Metric]:
        for collector in (self._requests, self._taus, self._overlaps):
            yield from collector.collect()

    async def _add(self, sampled: _SampledRequest) -> None:
        try:
            self._waiting.put_nowait(sampled)
        except queue.Full:
            self._count(sampled.shadow, "dropped")

    def _count(self, shadow: LoadedModel, outcome: str) -> None:
        self._requests.labels(str(shadow.version), outcome).inc()

    # --- runs in the thread

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                sampled = self._waiting.get(timeout=0.5)
            except queue.Empty:
                continue
            if self._wait_for_idle_thread():
                self._count(sampled.shadow, "failed" if (reason := self._compare(sampled)) else "compared")
                if reason and self._works:  # logs only the first failure after a success
                    log("shadow-failed", logging.WARNING, version=sampled.shadow.version, reason=reason)
                self._works = not reason
            else:
                self._count(sampled.shadow, "dropped")
            del sampled  # it may hold the last reference to its models

    def _wait_for_idle_thread(self) -> bool:
        """Returns whether a scoring thread became idle within `wait_seconds`."""
        deadline = time.monotonic() + self._settings.wait_seconds
        while self._request_queue.is_busy:
            if time.monotonic() > deadline or self._ending.wait(_IDLE_POLL_SECONDS):
                return False
        return True

    def _compare(self, sampled: _SampledRequest) -> str:
        """Scores the request with the shadow and compares. Returns why it failed, without request text, or ''."""
        record = RequestRecord("shadow", span_of(""), allowed=self._seconds)
        every = dict.fromkeys(sampled.models.resident, sampled.shadow)  # whichever version the client requested
        try:
            sampled.shape(sampled.body, Models(sampled.shadow, every), record)
            pairs = [(a, b) for a, b in zip(sampled.scores, record.scores, strict=True) if a is not None]
            for served, shadowed in pairs:
                if shadowed is not None:
                    self._observe(served, shadowed)
        except Problem as problem:
            return problem.slug
        except Exception as error:
            return f"{type(error).__name__} at {stack_locations(error)}"
        return ", ".join(record.problems) if any(shadowed is None for _, shadowed in pairs) else ""

    def _observe(self, served: Scores, shadowed: Scores) -> None:
        """Observes how far two rankings agree. Ties keep the request's order, as in answers."""
        first, second = (
            np.argsort(np.argsort(-scores.values, kind="stable")).astype(np.int32) for scores in (served, shadowed)
        )
        labels, top = (str(shadowed.version), str(served.version)), self._settings.top
        if len(first) > 1:
            self._taus.labels(*labels).observe(kendall_tau(first, second))
        if len(first) > top:
            self._overlaps.labels(*labels).observe(int(((first < top) & (second < top)).sum()) / top)
