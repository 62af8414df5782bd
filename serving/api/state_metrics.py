"""Prometheus metrics of the process's state: queue, versions, caches and tracing."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serving.api.request_body import BodyReader
from serving.models.loaded_model import LoadedModel
from serving.models.version_manager import VersionManager
from serving.observability.span_export import SpanExporter
from serving.ranking.request_queue import RequestQueue


class StateCollector(Collector):
    """State of queue, versions and tracing at scrape time."""

    def __init__(
        self, versions: VersionManager, queue: RequestQueue, bodies: BodyReader, tracing: SpanExporter
    ) -> None:
        self._versions, self._queue, self._bodies, self._tracing = versions, queue, bodies, tracing

    def collect(self) -> Iterator[Metric]:
        versions, models = self._versions, self._versions.models
        yield GaugeMetricFamily("privrank_queue_waiting", "Requests waiting for a thread", self._queue.waiting)
        yield GaugeMetricFamily("privrank_queue_scoring", "Requests being scored", self._queue.scoring)
        yield GaugeMetricFamily("privrank_bodies_arriving", "Bodies being received", self._bodies.arriving)
        yield CounterMetricFamily("privrank_model_switches", "Switches of the serving version", versions.switches)
        yield CounterMetricFamily("privrank_model_refusals", "Refused attempts to load a version", versions.refusals)
        polls = CounterMetricFamily("privrank_version_polls", "Polls of the export directory", labels=["result"])
        polls.add_metric(["succeeded"], versions.polls.succeeded)
        polls.add_metric(["failed"], versions.polls.failed)
        yield polls
        help_text = "Seconds since the last successful poll of the export directory"
        yield GaugeMetricFamily("privrank_version_poll_age_seconds", help_text, versions.polls.age)
        spans = CounterMetricFamily("privrank_spans", "Spans by export outcome", labels=["outcome"])
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
        help_text = "Model calls that were merged into another request's call"
        joined = CounterMetricFamily("privrank_calls_joined", help_text, labels=["version"])
        for version, model in (models.resident if models else {}).items():
            joined.add_metric([str(version)], model.ranker.batched_calls)
        yield joined
        yield from _cache_metrics(models.resident if models else {})


def _cache_metrics(resident: Mapping[int, LoadedModel]) -> Iterator[Metric]:
    """Sizes and lookups of the backends' caches; nothing if they have none."""
    size = GaugeMetricFamily("privrank_cache_bytes", "Bytes in the cache", labels=["version", "cache"])
    help_text = "Cache lookups, by whether the entry was found"
    lookups = CounterMetricFamily("privrank_cache_requests", help_text, labels=["version", "cache", "result"])
    for version, model in resident.items():
        for name, cached in model.ranker.caches.items():
            size.add_metric([str(version), name], cached.nbytes)
            lookups.add_metric([str(version), name, "hit"], cached.hits)
            lookups.add_metric([str(version), name, "miss"], cached.misses)
    yield from (size, lookups) if size.samples else ()
