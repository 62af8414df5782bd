"""The figures of one feature on both sides: what a report shows beside the findings. Pure: no Beam."""

from collections.abc import Collection
from typing import Any

import numpy as np

from beam_jobs import drift
from beam_jobs.drift import Floats
from beam_jobs.feature_pairs import Pair, Side
from beam_jobs.group_sample import Column, axes_of

QUANTILES = (1, 5, 25, 50, 75, 95, 99)  # percent
BARS = 20  # of a histogram
BEYOND = 100  # one part in so many lies below a histogram's first edge, and as much above its last

Axes = list[tuple[int, str]]


def figures(pair: Pair, axes: Collection[str]) -> dict[str, Any]:
    """As JSON. axes: the numbers of the feature to show, as `axes_of` names them."""
    feature = pair.feature
    shown = [(place, axis) for place, axis in enumerate(axes_of(feature)) if axis in axes]
    return {
        "type": feature.type,
        "level": feature.level,
        "role": feature.role,
        "a": _of_side(pair.a, pair.column_a, shown),
        "b": _of_side(pair.b, pair.column_b, shown),
        "histograms": {
            axis: histogram(pair.column_a.numbers[:, place], pair.column_b.numbers[:, place]) for place, axis in shown
        },
        "top": [] if feature.is_numeric else _named_shares(pair),
    }


def _of_side(side: Side, column: Column, shown: Axes) -> dict[str, Any]:
    total = side.total(column.feature)
    found: dict[str, Any] = {"sampled_values": len(column.group)}
    found |= {"values": total.values, "missing": total.missing} if total else {}
    if len(column.codes):
        found["distinct_in_sample"] = len(np.unique(column.codes))
    found["numbers"] = {axis: _quantiles(column.numbers[:, place]) for place, axis in shown}
    if total and "" in found["numbers"]:
        found["numbers"][""] |= {"minimum": total.minimum, "maximum": total.maximum, "mean": total.mean}
    return found


def _quantiles(values: Floats) -> dict[str, float]:
    cuts = zip(QUANTILES, np.percentile(values, QUANTILES).tolist(), strict=True)
    found = {"minimum": values.min(), **{f"{percent}%": cut for percent, cut in cuts}, "maximum": values.max()}
    return {name: float(value) for name, value in {**found, "mean": values.mean()}.items()}


def _named_shares(pair: Pair) -> list[dict[str, Any]]:
    """The commonest values, of those that may be shown."""
    top, *counts = pair.top_counts()
    a, b = ((found.sum(axis=0) / found.sum()).tolist() for found in counts)
    named = [(place, pair.name_of(int(code))) for place, code in enumerate(top)]
    return [{"value": name, "a": a[place], "b": b[place]} for place, name in named if name is not None]


def histogram(a: Floats, b: Floats) -> dict[str, list[float]]:
    """The shares of both sides' values in the same bars: one a value where these are few, else of equal width.

    Bar k holds the values in [edges[k], edges[k + 1]), but the first has no lower end and the last no upper one. Where
    each value has its bar, `edges` are the values.
    """
    edges = np.unique(np.concatenate([a, b]))
    inner = edges[1:]
    if len(edges) > BARS:
        cuts = drift.quantile_edges(a, b, BEYOND)
        edges = np.linspace(cuts[0], cuts[-1], BARS + 1)
        inner = edges[1:-1]
    counts = [np.bincount(np.searchsorted(inner, values, side="right"), minlength=len(inner) + 1) for values in (a, b)]
    return {"edges": edges.tolist(), "a": (counts[0] / len(a)).tolist(), "b": (counts[1] / len(b)).tolist()}
