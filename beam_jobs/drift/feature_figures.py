"""Summary figures of one feature on both sides, shown beside the findings. Pure: no Beam."""

from collections.abc import Collection
from typing import Any

import numpy as np

from beam_jobs.drift import measures
from beam_jobs.drift.feature_pairs import ComparisonSide, FeaturePair
from beam_jobs.drift.group_sample import Column, axes_of
from beam_jobs.drift.measures import Float64Array

_QUANTILES = (1, 5, 25, 50, 75, 95, 99)  # percent
_BARS = 20  # of a histogram
_TAIL_BINS = 100  # a histogram spans the 1/100 to the 99/100 quantile

_Axes = list[tuple[int, str]]


def figures(pair: FeaturePair, axes: Collection[str]) -> dict[str, Any]:
    """The figures as JSON. axes: names from `axes_of` to show."""
    feature = pair.feature
    shown = [(index, axis) for index, axis in enumerate(axes_of(feature)) if axis in axes]
    return {
        "type": feature.type,
        "level": feature.level,
        "role": feature.role,
        "a": _of_side(pair.a, pair.column_a, shown),
        "b": _of_side(pair.b, pair.column_b, shown),
        "histograms": {
            axis: histogram(pair.column_a.numbers[:, index], pair.column_b.numbers[:, index]) for index, axis in shown
        },
        "top": [] if feature.is_numeric else _named_shares(pair),
    }


def _of_side(side: ComparisonSide, column: Column, shown: _Axes) -> dict[str, Any]:
    total = side.total(column.feature)
    result: dict[str, Any] = {"sampled_values": len(column.group)}
    result |= {"values": total.values, "missing": total.missing} if total else {}
    if len(column.codes):
        result["distinct_in_sample"] = len(np.unique(column.codes))
    result["numbers"] = {axis: _quantiles(column.numbers[:, index]) for index, axis in shown}
    if total and "" in result["numbers"]:
        result["numbers"][""] |= {"minimum": total.minimum, "maximum": total.maximum, "mean": total.mean}
    return result


def _quantiles(values: Float64Array) -> dict[str, float]:
    cuts = zip(_QUANTILES, np.percentile(values, _QUANTILES).tolist(), strict=True)
    result = {"minimum": values.min(), **{f"{percent}%": cut for percent, cut in cuts}, "maximum": values.max()}
    return {name: float(value) for name, value in {**result, "mean": values.mean()}.items()}


def _named_shares(pair: FeaturePair) -> list[dict[str, Any]]:
    """The most frequent values that may be shown."""
    top, *counts = pair.top_counts()
    a, b = ((result.sum(axis=0) / result.sum()).tolist() for result in counts)
    named = [(index, pair.name_of(int(code))) for index, code in enumerate(top)]
    return [{"value": name, "a": a[index], "b": b[index]} for index, name in named if name is not None]


def histogram(a: Float64Array, b: Float64Array) -> dict[str, list[float]]:
    """Shares of both sides' values in common bars: one per value if there are few values, else of equal width.

    Bar k holds the values in [edges[k], edges[k + 1]); the first bar has no lower end and the last no upper end. With
    one bar per value, `edges` are the values.
    """
    edges = np.unique(np.concatenate([a, b]))
    inner = edges[1:]
    if len(edges) > _BARS:
        cuts = measures.quantile_edges(a, b, _TAIL_BINS)
        edges = np.linspace(cuts[0], cuts[-1], _BARS + 1)
        inner = edges[1:-1]
    counts = [np.bincount(np.searchsorted(inner, values, side="right"), minlength=len(inner) + 1) for values in (a, b)]
    return {"edges": edges.tolist(), "a": (counts[0] / len(a)).tolist(), "b": (counts[1] / len(b)).tolist()}
