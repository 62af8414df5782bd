"""How far the scores of late have moved from those of the export's validation split: the population stability index."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW = 200_000  # scores; beyond, all counts are halved, so that old scores weigh less and less
FEWEST = 1000  # scores before drift is told: fewer would be noise
FLOOR = 1e-4  # share that an empty bin counts as


class ScoreHistogram:
    """Counts of sigma(logit) in the bins of the manifest's histogram.

    edges: ascending, one more than bins. expected: the export's counts; none, or all 0, when it has no histogram.
    """

    def __init__(self, edges: Sequence[float], expected: Sequence[float]) -> None:
        self.edges = list(edges)
        self._inner = self.edges[1:-1]
        self._expected = np.asarray(expected, np.float64)
        self.counts = [0] * (len(self.edges) - 1)  # since the process began
        self.sum = 0.0
        self._recent = [0.0] * len(self.counts)

    def add(self, scores: NDArray[np.float64]) -> None:
        """scores: [n], 0 to 1; what lies outside of the edges counts in the nearest bin.

        Without numpy: it lets go of the interpreter's lock for a moment, which a thread that scores takes, and keeps
        for a millisecond and more of the event loop's time.
        """
        numbers: list[float] = scores.tolist()
        for number in numbers:
            place = bisect_right(self._inner, number)
            self.counts[place] += 1
            self._recent[place] += 1.0
        self.sum += sum(numbers)
        if sum(self._recent) > WINDOW:
            self._recent = [count / 2 for count in self._recent]

    @property
    def drift(self) -> float:
        """The index of the recent scores against the export's; NaN while it cannot be told."""
        if sum(self._recent) < FEWEST or not self._expected.sum():
            return float("nan")
        return stability_index(self._expected, np.array(self._recent))


def histogram_of(said: dict[str, Any]) -> ScoreHistogram:
    """For a manifest's score_histogram; where that is none, bins of 0.05 and nothing expected."""
    edges, counts = _numbers(said.get("edges")), _numbers(said.get("counts"))
    if counts and len(edges) == len(counts) + 1 and sorted(set(edges)) == edges:
        return ScoreHistogram(edges, counts)
    return ScoreHistogram([place / 20 for place in range(21)], [0.0] * 20)


def _numbers(value: Any) -> list[float]:
    """A list of numbers as it is; anything else as none."""
    return value if isinstance(value, list) and all(type(number) in (int, float) for number in value) else []


def stability_index(expected: NDArray[np.float64], found: NDArray[np.float64]) -> float:
    """Sum over bins of (q - p) * ln(q / p), p and q the two shares, FLOOR at least.

    0 where they are equal. By custom, below 0.1 is calm and above 0.25 a shift worth a look.
    """
    p, q = (np.maximum(counts / counts.sum(), FLOOR) for counts in (expected, found))
    return float(((q - p) * np.log(q / p)).sum())
