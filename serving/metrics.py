"""What Prometheus reads at /metrics. Labels hold routes, problems, versions, names of keys: never a client's text."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client import disable_created_metrics as without_times_of_creation
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from serving.line import Line
from serving.problems import Problem
from serving.record import Record
from serving.request_body import Bodies
from serving.score_drift import ScoreHistogram, histogram_of
from serving.served import Served
from serving.tracing import Tracing
from serving.versions import Versions

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # as the ranker's buckets are
GROUPS = (1, 2, 4, 8, 16, 32)

without_times_of_creation()  # type: ignore[no-untyped-call]


class Metrics:
    """All metrics of the process. Used on the event loop only."""

    def __init__(self, versions: Versions, line: Line, bodies: Bodies, tracing: Tracing) -> None:
        self._registry = CollectorRegistry()
        # labels() looks for a child under a lock, which takes longer than to count
        self._of: Callable[..., Any] = cache(lambda metric, *labels: metric.labels(*labels))
        self._requests = self._counter("requests", "Requests answered", "route", "status")
        self._seconds = self._histogram("request_seconds", "From a request's head to its answer", SECONDS, "route")
        self._stages = self._histogram("stage_seconds", "A stage of a ranking request", SECONDS, "stage")
        self._problems = self._counter("problems", "Problems answered, also of entries of a batch", "problem")
        self._left = self._counter("clients_left", "Requests whose client left before the answer")
        self._keys = self._counter("key_requests", "Requests by name of the API key", "key")
        self._answers = self._counter("answers", "Answers by model version", "version")
        self._pairs = self._counter("pairs", "Items scored")
        self._tokens = self._counter("tokens", "Tokens of queries and items, before truncation")
        self._truncated = self._counter("truncated_items", "Items that the model did not read to their end")
        self._clipped = self._counter("clipped_values", "Numbers outside of the range seen in training")
        self._call_items = self._histogram("call_items", "Items a group of a model call, with padding", ITEMS)
        self._call_groups = self._histogram("call_groups", "Query groups a model call", GROUPS)
        self._scores = _Scores(versions)
        self._registry.register(self._scores)
        self._registry.register(_State(versions, line, bodies, tracing))
        ProcessCollector(registry=self._registry)

    def _counter(self, name: str, said: str, *labels: str) -> Counter:
        return Counter(f"privrank_{name}", said, labels, registry=self._registry)

    def _histogram(self, name: str, said: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"privrank_{name}", said, labels, buckets=bounds, registry=self._registry)

    def register(self, collector: Collector) -> None:
        """Shows what another part of the process measures."""
        self._registry.register(collector)

    def observe(self, record: Record, route: str, status: int) -> None:
        """Counts a request that has ended. status: 0 when its client left before the answer."""
        if status:
            self._of(self._requests, route, str(status)).inc()
            self._of(self._seconds, route).observe(record.seconds)
        if record.client_left:
            self._left.inc()
        if record.key:
            self._of(self._keys, record.key).inc()
        for slug in record.problems:
            self._of(self._problems, slug).inc()
        for stage, seconds in record.stages.items():
            self._of(self._stages, stage).observe(seconds)
        for groups, items in record.calls:
            self._call_groups.observe(groups)
            self._call_items.observe(items)
        for version, scores in filter(None, record.scores):
            self._of(self._answers, str(version)).inc()
            self._scores.add(version, scores)
        if record.usage is not None:
            self._pairs.inc(record.usage.pairs)
            self._tokens.inc(record.usage.tokens)
            self._truncated.inc(record.usage.truncated)
            self._clipped.inc(record.usage.clipped)

    def count_refused(self, problem: Problem) -> None:
        """Counts a connection that was ended before it had a request."""
        self._problems.labels(problem.slug).inc()

    def to_text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self._registry)


class _Scores(Collector):
    """The scores of the versions in memory, in the bins of their exports, and how far they have drifted from those."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._histograms: dict[int, ScoreHistogram] = {}

    def add(self, version: int, scores: NDArray[np.float64]) -> None:
        resident = self._versions.models.resident if self._versions.models else {}
        if version not in self._histograms and version in resident:
            kept = {v: histogram for v, histogram in self._histograms.items() if v in resident}
            self._histograms = kept | {version: histogram_of(resident[version].manifest.score_histogram)}
        if version in self._histograms:
            self._histograms[version].add(scores)

    def collect(self) -> Iterator[Metric]:
        scores = HistogramMetricFamily(
            "privrank_scores", "Scores, sigma(logit), in the export's bins", labels=["version"]
        )
        told = "Population stability index of recent scores against the export's; NaN below 1000 scores"
        drift = GaugeMetricFamily("privrank_score_drift", told, labels=["version"])
        for version, histogram in self._histograms.items():
            totals = accumulate(histogram.counts)
            bounds = [*(f"{edge:g}" for edge in histogram.edges[1:-1]), "+Inf"]
            scores.add_metric([str(version)], list(zip(bounds, totals, strict=True)), histogram.sum)
            drift.add_metric([str(version)], histogram.drift)
        yield scores
        yield drift


class _State(Collector):
    """What is true at the moment of asking."""

    def __init__(self, versions: Versions, line: Line, bodies: Bodies, tracing: Tracing) -> None:
        self._versions, self._line, self._bodies, self._tracing = versions, line, bodies, tracing

    def collect(self) -> Iterator[Metric]:
        versions, models = self._versions, self._versions.models
        yield GaugeMetricFamily("privrank_queue_waiting", "Requests waiting for a thread", self._line.waiting)
        yield GaugeMetricFamily("privrank_queue_scoring", "Requests in a thread", self._line.scoring)
        yield GaugeMetricFamily("privrank_bodies_arriving", "Requests whose body is arriving", self._bodies.arriving)
        yield CounterMetricFamily("privrank_model_switches", "Versions that were switched to", versions.switches)
        yield CounterMetricFamily(
            "privrank_model_refusals", "Attempts at a version that was refused", versions.refusals
        )
        spans = CounterMetricFamily("privrank_spans", "Spans by what became of them", labels=["outcome"])
        for outcome, count in self._tracing.spans.items():
            spans.add_metric([outcome], count)
        yield spans
        refused = GaugeMetricFamily("privrank_model_refused", "Versions that are refused", labels=["version"])
        for version in list(versions.refused):
            refused.add_metric([str(version)], 1)
        yield refused
        serving = GaugeMetricFamily("privrank_model_serving", "1 serves, 0 is in memory", labels=["name", "version"])
        if models is not None:
            for version, model in models.resident.items():
                serving.add_metric([model.name, str(version)], float(model is models.current))
        yield serving
        told = "Calls of the model that were made into one with other requests'"
        joined = CounterMetricFamily("privrank_calls_joined", told, labels=["version"])
        for version, model in (models.resident if models else {}).items():
            joined.add_metric([str(version)], model.ranker.joined)
        yield joined
        yield from _kept(models.resident if models else {})


def _kept(resident: Mapping[int, Served]) -> Iterator[Metric]:
    """What backends keep of texts that come again; nothing where they keep none."""
    held = GaugeMetricFamily("privrank_kept_bytes", "What is kept of texts that come again", labels=["version", "what"])
    told = "Looks at what is kept, by whether it was there"
    looks = CounterMetricFamily("privrank_kept_looks", told, labels=["version", "what", "found"])
    for version, model in resident.items():
        for what, kept in model.ranker.kept.items():
            held.add_metric([str(version), what], kept.nbytes)
            looks.add_metric([str(version), what, "yes"], kept.hits)
            looks.add_metric([str(version), what, "no"], kept.misses)
    yield from (held, looks) if held.samples else ()
