"""Histograms of two sides as the rectangles and words of an SVG picture. Pure: no Beam."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from beam_jobs.comparison_report import number, percent, printable

WIDTH, HEIGHT = 420.0, 130.0  # pixels of a histogram, its scale below not counted
SCALE = 18.0  # pixels of the scale
LINE, NAMES, LONGEST = 26.0, 250.0, 160.0  # pixels: of a value's line, of the values' names, of the longest bar


class Bar(NamedTuple):
    """One rectangle. side: a or b. title: shown when the pointer rests on it."""

    side: str
    x: float
    y: float
    width: float
    height: float
    title: str


class Words(NamedTuple):
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
    words: Sequence[Words]


def histogram_chart(title: str, histogram: Mapping[str, Sequence[float]]) -> Chart:
    """A pair of bars for each range, or value, of `feature_figures.histogram`."""
    edges, count = histogram["edges"], len(histogram["a"])
    highest = max(*histogram["a"], *histogram["b"])
    slot = WIDTH / count
    bars = []
    for place in range(count):
        for side, shift in (("a", 0.06), ("b", 0.5)):
            share = histogram[side][place]
            height = HEIGHT * share / highest
            text = f"{side.upper()}: {percent(share)} {_range(edges, place, count)}"
            bars.append(Bar(side, (place + shift) * slot, HEIGHT - height, 0.44 * slot, height, text))
    by_value = len(edges) == count
    scale = [
        Words((place + by_value / 2) * slot, HEIGHT + SCALE - 4, anchor, number(edges[place]))
        for place, anchor in {0: "start", count // 2: "middle", len(edges) - 1: "end"}.items()
    ]
    return Chart(title, WIDTH, HEIGHT + SCALE, bars, scale)


def _range(edges: Sequence[float], place: int, count: int) -> str:
    if len(edges) == count:
        return f"are {number(edges[place])}"
    if place == 0:
        return f"lie below {number(edges[1])}"
    if place == count - 1:
        return f"are {number(edges[place])} or more"
    return f"are {number(edges[place])} or more, below {number(edges[place + 1])}"


def shares_chart(title: str, top: Sequence[Mapping[str, Any]]) -> Chart:
    """A line for each value, with its name and a bar a side."""
    highest = max(max(entry["a"], entry["b"]) for entry in top)
    bars, words = [], []
    for place, entry in enumerate(top):
        words.append(Words(NAMES - 8, place * LINE + 16, "end", printable(entry["value"])))
        for side, shift in (("a", 3), ("b", 13)):
            text = f"{side.upper()}: {percent(entry[side])} are {printable(entry['value'])}"
            bars.append(Bar(side, NAMES, place * LINE + shift, LONGEST * entry[side] / highest, 9, text))
    return Chart(title, NAMES + LONGEST, len(top) * LINE, bars, words)
