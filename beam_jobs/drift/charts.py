"""Histograms of two sides as rectangles and text of an SVG image. Pure: no Beam."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from beam_jobs.drift.report import format_number, format_percent, printable_value

_WIDTH, _HEIGHT = 420.0, 130.0  # pixels, without the scale below
_SCALE_HEIGHT = 18.0  # pixels
_LINE_HEIGHT, _NAMES_WIDTH, _LONGEST_BAR = 26.0, 250.0, 160.0  # pixels


class Bar(NamedTuple):
    """One rectangle. side: a or b. title: tooltip."""

    side: str
    x: float
    y: float
    width: float
    height: float
    title: str


class TextLine(NamedTuple):
    """A line of text. anchor: start, middle or end."""

    x: float
    y: float
    anchor: str
    text: str


class Chart(NamedTuple):
    title: str
    width: float
    height: float
    bars: Sequence[Bar]
    words: Sequence[TextLine]


def histogram_chart(title: str, histogram: Mapping[str, Sequence[float]]) -> Chart:
    """A pair of bars for each bar of `feature_figures.histogram`."""
    edges, count = histogram["edges"], len(histogram["a"])
    highest = max(*histogram["a"], *histogram["b"])
    slot = _WIDTH / count
    bars = []
    for index in range(count):
        for side, shift in (("a", 0.06), ("b", 0.5)):
            share = histogram[side][index]
            height = _HEIGHT * share / highest
            text = f"{side.upper()}: {format_percent(share)} of the values are {_range(edges, index, count)}"
            bars.append(Bar(side, (index + shift) * slot, _HEIGHT - height, 0.44 * slot, height, text))
    by_value = len(edges) == count
    scale = [
        TextLine((index + by_value / 2) * slot, _HEIGHT + _SCALE_HEIGHT - 4, anchor, format_number(edges[index]))
        for index, anchor in {0: "start", count // 2: "middle", len(edges) - 1: "end"}.items()
    ]
    return Chart(title, _WIDTH, _HEIGHT + _SCALE_HEIGHT, bars, scale)


def _range(edges: Sequence[float], index: int, count: int) -> str:
    if len(edges) == count:
        return format_number(edges[index])
    if index == 0:
        return f"below {format_number(edges[1])}"
    if index == count - 1:
        return f"at least {format_number(edges[index])}"
    return f"at least {format_number(edges[index])} and below {format_number(edges[index + 1])}"


def shares_chart(title: str, top: Sequence[Mapping[str, Any]]) -> Chart:
    """One line per value, with its name and one bar per side."""
    highest = max(max(entry["a"], entry["b"]) for entry in top)
    bars, words = [], []
    for index, entry in enumerate(top):
        words.append(TextLine(_NAMES_WIDTH - 8, index * _LINE_HEIGHT + 16, "end", printable_value(entry["value"])))
        for side, shift in (("a", 3), ("b", 13)):
            text = f"{side.upper()}: {format_percent(entry[side])} of the values are {printable_value(entry['value'])}"
            bars.append(
                Bar(side, _NAMES_WIDTH, index * _LINE_HEIGHT + shift, _LONGEST_BAR * entry[side] / highest, 9, text)
            )
    return Chart(title, _NAMES_WIDTH + _LONGEST_BAR, len(top) * _LINE_HEIGHT, bars, words)
