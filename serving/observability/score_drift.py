"""Scores and their drift: the population stability index of recent scores against the export's validation split."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

WINDOW = 200_000  # scores; above, all counts are halved, so that old scores decay
MIN_SCORES = 1000  # scores below which drift is NaN, because it would be noise
FLOOR = 1e-4  # share of an empty bin


class ScoreHistogram:
    """Counts of sigma(logit) in the bins of the manifest's histogram.

    edges: ascending, [bins + 1]. expected: the export's counts, [bins]; empty or all 0 if it has no histogram.
    """

    def __init__(self, edges: Sequence[float], expected: Sequence[float]) -> None:
        self.edges = list(edges)
        self._inner = self.edges[1:-1]
        self._expected = np.asarray(expected, np.float64)
        self.counts = [0] * (len(self.edges) - 1)  # since the process started
        self.sum = 0.0
        self._recent = [0.0] * len(self.counts)

    def add(self, scores: NDArray[np.float64]) -> None:
        """scores: [n], 0 to 1; values outside the edges count in the nearest bin.

        Does not use numpy, which would release the interpreter's lock: a scoring thread would take it and block the
        event loop for a millisecond or more.
        """
        numbers: list[float] = scores.tolist()
        for number in numbers:
            index = bisect_right(self._inner, number)
            self.counts[index] += 1
            self._recent[index] += 1.0
        self.sum += sum(numbers)
        if sum(self._recent) > WINDOW:
            self._recent = [count / 2 for count in self._recent]

    @property
    def drift(self) -> float:
        """Stability index of the recent scores against the export's; NaN below MIN_SCORES or without a histogram."""
        if sum(self._recent) < MIN_SCORES or not self._expected.sum():
            return float("nan")
        return stability_index(self._expected, np.array(self._recent))


def histogram_of(stored: dict[str, Any]) -> ScoreHistogram:
    """Builds the histogram of a manifest's `score_histogram`; if invalid, bins of 0.05 without expected counts."""
    edges, counts = _numbers(stored.get("edges")), _numbers(stored.get("counts"))
    if counts and len(edges) == len(counts) + 1 and sorted(set(edges)) == edges:
        return ScoreHistogram(edges, counts)
    return ScoreHistogram([index / 20 for index in range(21)], [0.0] * 20)


def _numbers(value: Any) -> list[float]:
    """Returns a list of numbers unchanged, and [] for anything else."""
    return value if isinstance(value, list) and all(type(number) in (int, float) for number in value) else []


def stability_index(expected: NDArray[np.float64], observed: NDArray[np.float64]) -> float:
    """Sum over bins of (q - p) * ln(q / p), where p and q are the shares of expected and observed, at least FLOOR.

    0 for equal shares. Usual reading: below 0.1 is stable, above 0.25 is a significant shift.
    """
    p, q = (np.maximum(counts / counts.sum(), FLOOR) for counts in (expected, observed))
    return float(((q - p) * np.log(q / p)).sum())


class ScoreCollector(Collector):
    """Score histograms of the versions in memory, in the bins of their exports, and their drift."""

    def __init__(self, stored: Callable[[], Mapping[int, dict[str, Any]]]) -> None:
        """stored: returns the `score_histogram` of each version in memory, as its manifest has it."""
        self._stored = stored
        self._histograms: dict[int, ScoreHistogram] = {}

    def add(self, version: int, scores: NDArray[np.float64]) -> None:
        if version not in self._histograms and version in (stored := self._stored()):
            current = {v: histogram for v, histogram in self._histograms.items() if v in stored}
            self._histograms = current | {version: histogram_of(stored[version])}
        if version in self._histograms:
            self._histograms[version].add(scores)

    def collect(self) -> Iterator[Metric]:
        scores = HistogramMetricFamily(
            "privrank_scores", "Scores, sigma(logit), in the export's bins", labels=["version"]
        )
        help_text = "Population stability index of recent scores against the export's; NaN below 1000 scores"
        drift = GaugeMetricFamily("privrank_score_drift", help_text, labels=["version"])
        for version, histogram in self._histograms.items():
            totals = accumulate(histogram.counts)
            bounds = [*(f"{edge:g}" for edge in histogram.edges[1:-1]), "+Inf"]
            scores.add_metric([str(version)], list(zip(bounds, totals, strict=True)), histogram.sum)
            drift.add_metric([str(version)], histogram.drift)
        yield scores
        yield drift
