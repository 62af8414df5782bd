"""The scores' histogram and its drift, by hand."""

from math import isnan, log

import numpy as np
import pytest

from serving.observability.score_drift import FLOOR, MIN_SCORES, WINDOW, histogram_of, stability_index


def test_the_index_is_the_sum_over_bins_by_hand() -> None:
    # shares 1/2, 1/2 against 1/4, 3/4
    expected = (0.25 - 0.5) * log(0.25 / 0.5) + (0.75 - 0.5) * log(0.75 / 0.5)
    assert stability_index(np.array([10.0, 10.0]), np.array([1.0, 3.0])) == pytest.approx(expected)
    assert stability_index(np.array([3.0, 5.0]), np.array([30.0, 50.0])) == 0.0


def test_an_empty_bin_counts_as_the_floor() -> None:
    # shares 1, 0 against 0, 1: both bins (1 - FLOOR) * ln(1 / FLOOR)
    assert stability_index(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(
        2 * (1 - FLOOR) * log(1 / FLOOR)
    )


def test_scores_are_counted_in_the_exports_bins_ends_included() -> None:
    histogram = histogram_of({"edges": [0.0, 0.5, 1.0], "counts": [1, 1]})
    histogram.add(np.array([0.0, 0.49, 0.5, 1.0, 1.5]))
    assert histogram.counts == [2, 3]
    assert histogram.sum == pytest.approx(3.49)


def test_drift_is_nan_for_few_scores_or_without_the_exports_histogram() -> None:
    histogram = histogram_of({"edges": [0.0, 0.5, 1.0], "counts": [1, 1]})
    histogram.add(np.full(MIN_SCORES - 1, 0.2))
    assert isnan(histogram.drift)
    histogram.add(np.array([0.2]))
    assert histogram.drift > 0.25
    unknown = histogram_of({})
    unknown.add(np.full(MIN_SCORES, 0.2))
    assert isnan(unknown.drift)


def test_old_scores_decay() -> None:
    histogram = histogram_of({"edges": [0.0, 0.5, 1.0], "counts": [1, 1]})
    for _ in range(10):
        histogram.add(np.full(WINDOW // 4, 0.2))
    shifted = histogram.drift
    for _ in range(10):
        histogram.add(np.tile([0.2, 0.7], WINDOW // 8))
    assert histogram.drift < 0.05 < shifted
    assert sum(histogram.counts) == 20 * (WINDOW // 4)  # while Prometheus' counts only grow


@pytest.mark.parametrize(
    "said",
    [
        {"edges": [0.0, 1.0], "counts": []},
        {"edges": [0.0, 0.0, 1.0], "counts": [1, 2]},
        {"edges": [1.0, 0.5, 0.0], "counts": [1, 2]},
        {"edges": "0123", "counts": [1, 2, 3]},
        {"edges": [0.0, "x"], "counts": [1]},
        {"edges": {"a": 1}, "counts": None},
    ],
)
def test_an_invalid_histogram_in_the_manifest_is_ignored(said: dict[str, object]) -> None:
    histogram = histogram_of(said)
    histogram.add(np.full(MIN_SCORES, 0.5))
    assert len(histogram.counts) == 20
    assert isnan(histogram.drift)
