"""Prometheus metrics of the process. Labels hold routes, problem slugs, versions and key names, never client text."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client import disable_created_metrics as disable_created_series
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from serving.observability.request_record import RequestRecord
from serving.observability.score_drift import ScoreCollector
from serving.problems import PROBLEM_TYPES, Problem

PROMETHEUS_MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ITEMS_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # the ranker's padded sizes
_GROUPS_BUCKETS = (1, 2, 4, 8, 16, 32)

disable_created_series()  # type: ignore[no-untyped-call]


class Metrics:
    """All metrics of the process. Used on the event loop only."""

    def __init__(self, scores: ScoreCollector) -> None:
        self._registry = CollectorRegistry()
        # labels() takes a lock to look up the child, which costs more than the increment
        self._child: Callable[..., Any] = cache(lambda metric, *labels: metric.labels(*labels))
        self._requests = self._counter("requests", "Requests answered", "route", "status")
        self._seconds = self._histogram(
            "request_seconds", "From a request's head to its response", SECONDS_BUCKETS, "route"
        )
        self._stages = self._histogram("stage_seconds", "A stage of a ranking request", SECONDS_BUCKETS, "stage")
        self._problems = self._counter("problems", "Problems returned, including those of batch entries", "problem")
        for slug in PROBLEM_TYPES:  # start at 0: rate() misses the first increment of a new series
            self._problems.labels(slug)
        self._disconnects = self._counter("client_disconnects", "Requests whose client left before the response")
        self._keys = self._counter("key_requests", "Requests by name of the API key", "key")
        self._answers = self._counter("answers", "Query groups scored, by model version", "version")
        self._pairs = self._counter("pairs", "Items scored")
        self._tokens = self._counter("tokens", "Tokens of queries and items, before truncation")
        self._truncated = self._counter("truncated_items", "Items whose text was truncated")
        self._clipped = self._counter("clipped_values", "Numbers clipped to the range seen in training")
        self._call_items = self._histogram(
            "call_items", "Items per query group of a call, with padding", _ITEMS_BUCKETS
        )
        self._call_groups = self._histogram("call_groups", "Query groups per model call", _GROUPS_BUCKETS)
        self._scores = scores
        self._registry.register(scores)
        ProcessCollector(registry=self._registry)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"privrank_{name}", help_text, labels, registry=self._registry)

    def _histogram(self, name: str, help_text: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"privrank_{name}", help_text, labels, buckets=bounds, registry=self._registry)

    def register(self, collector: Collector) -> None:
        """Adds a collector of another part of the process."""
        self._registry.register(collector)

    def observe(self, record: RequestRecord, route: str, status: int) -> None:
        """Counts a finished request. status: 0 if the client disconnected before the response."""
        if status:
            self._child(self._requests, route, str(status)).inc()
            self._child(self._seconds, route).observe(record.seconds)
        if record.client_left:
            self._disconnects.inc()
        if record.key:
            self._child(self._keys, record.key).inc()
        for slug in record.problems:
            self._child(self._problems, slug).inc()
        for stage, seconds in record.stages.items():
            self._child(self._stages, stage).observe(seconds)
        for groups, items in record.calls:
            self._call_groups.observe(groups)
            self._call_items.observe(items)
        for version, scores in filter(None, record.scores):
            self._child(self._answers, str(version)).inc()
            self._scores.add(version, scores)
        if record.usage is not None:
            self._pairs.inc(record.usage.pairs)
            self._tokens.inc(record.usage.tokens)
            self._truncated.inc(record.usage.truncated)
            self._clipped.inc(record.usage.clipped)

    def count_refused(self, problem: Problem) -> None:
        """Counts a connection that was refused before it had a request."""
        self._problems.labels(problem.slug).inc()

    def to_text(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class Replacements(Collector):
    """Number of this process's predecessors that the supervisor replaced, by reason."""

    REASONS = ("died", "hung")

    def __init__(self, replaced: Mapping[str, int]) -> None:
        self._replaced = replaced

    def collect(self) -> Iterator[Metric]:
        help_text = "Replaced predecessors of this process, by reason"
        replacements = CounterMetricFamily("privrank_process_replacements", help_text, labels=["reason"])
        for reason in self.REASONS:
            replacements.add_metric([reason], self._replaced.get(reason, 0))
        yield replacements
