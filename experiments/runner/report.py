"""Writes an experiment's results.json, <name>.md (with the paper's numbers) and <name>.png.

Also the parts of reports: estimates, Markdown tables, claims, lines with error bars.
"""

import io
import json
import platform
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.runner.files import write_atomically
from trainer.evaluation.markdown_table import markdown_table
from trainer.evaluation.metrics import Floats, Interval

PANEL_INCHES = (5.5, 4.2)


@dataclass(frozen=True)
class Report:
    """The content of an experiment's report.

    name: of the .md and the .png. packages: whose versions decide the digits. settings: as resolved. results: raw,
    JSON values. body: the Markdown below the title and how it was made. figure, caption: the chart and its description.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    settings: dict[str, Any]
    results: dict[str, Any]
    body: Sequence[str]
    figure: Figure
    caption: str

    def write(self, out: Path) -> None:
        """Writes the three files. Errors: InputError when `out` cannot be written."""
        command, versions = command_line(sys.argv[1:]), environment(self.packages)
        made_by = {"command": command, "environment": versions, "settings": self.settings}
        write_atomically(out / "results.json", _json_by_line({**made_by, **self.results}).encode())
        write_atomically(out / f"{self.name}.png", png(self.figure))
        made_with = ", ".join(f"{name} {number}" for name, number in versions.items())
        page = [
            f"# {self.title}",
            f"Made by `{command}` with {made_with}; settings and raw results: [results.json](results.json).",
            f"![{self.caption}]({self.name}.png)",
            *self.body,
        ]
        write_atomically(out / f"{self.name}.md", ("\n\n".join(page) + "\n").encode())


def command_line(arguments: Sequence[str]) -> str:
    """The command line that was run."""
    return shlex.join(["python", "-m", "experiments", *arguments])


def environment(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of packages; no information on the machine."""
    return {"python": platform.python_version()} | {package: version(package) for package in packages}


def _json_by_line(content: dict[str, Any]) -> str:
    """JSON with a line for each key of the two outer levels."""

    def lines(value: Any, depth: int) -> str:
        if depth == 0 or not isinstance(value, dict):
            return json.dumps(value, allow_nan=False, separators=(",", ":"))
        inner = ",\n".join(f"{' ' * (3 - depth)}{json.dumps(key)}: {lines(v, depth - 1)}" for key, v in value.items())
        return f"{{\n{inner}\n{' ' * (2 - depth)}}}"

    return lines(content, depth=2) + "\n"


# --- statistics


@dataclass(frozen=True)
class Estimate:
    """A simulated mean and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Floats) -> "Estimate":
        """values: [draws], or means of equally large chunks of draws."""
        return cls(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))

    @property
    def interval(self) -> Interval:
        """Three standard errors either way."""
        return Interval(self.value, self.value - 3.0 * self.error, self.value + 3.0 * self.error)

    def distance(self, expected: float) -> float:
        """In standard errors."""
        return abs(self.value - expected) / self.error

    def clearly_above(self, other: "Estimate") -> bool:
        """By more than three standard errors of the difference of two independent estimates."""
        return bool(self.value - other.value > 3.0 * np.hypot(self.error, other.error))

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"


def percent(interval: Interval) -> str:
    """`+9.5% [+8.1%, +11.0%]`; `-` for NaN."""
    return "-" if np.isnan(interval.value) else f"{interval.value:+.1%} [{interval.low:+.1%}, {interval.high:+.1%}]"


@dataclass(frozen=True)
class Claim:
    """An expectation set before the run, its measured value, and whether it held."""

    statement: str
    measured: str
    held: bool


def claims_table(claims: Sequence[Claim]) -> str:
    rows = ([claim.statement, claim.measured, "yes" if claim.held else "**no**"] for claim in claims)
    return markdown_table(("claim", "measured", "held"), rows)


# --- figures


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels side by side."""
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * count, height), layout="constrained")
    axes = [figure.add_subplot(1, count, index) for index in range(1, count + 1)]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw_line(axes: Axes, at: Sequence[float], values: Sequence[Interval], label: str, **style: Any) -> None:
    """A line with a bar from low to high at each point. style: matplotlib's, such as color, marker, linestyle."""
    middle = [v.value for v in values]
    # a mean and its quantiles may differ in their last digit, either way
    bars = [[max(v.value - v.low, 0.0) for v in values], [max(v.high - v.value, 0.0) for v in values]]
    axes.errorbar(at, middle, yerr=bars, label=label, capsize=2, **style)


def png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()
