"""NDCG tables of LETOR sets with the paper's figures, and a chart of the gains."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.runner.comparison import Trials, gain_cell
from experiments.runner.report import draw_line, panels
from trainer.evaluation.markdown_table import markdown_table

CUTOFFS = (8, 16, 32)
FIRST = "ndcg@8"  # which decides
BASELINE = "no_distillation"

Row: TypeAlias = tuple[float, float, float]  # NDCG at the CUTOFFS
Published: TypeAlias = Mapping[str, Sequence[Row]]  # by data set, in the order of a table's first rows


def ndcg_tables(rows: Mapping[str, str], found: Mapping[str, Trials], published: Published) -> list[str]:
    """A heading and a table for every data set: the available ones, then the paper's others.

    rows: label in the first column -> model. Gains are over BASELINE.
    """
    parts = []
    for name in dict.fromkeys((*found, *published)):
        parts += [f"## {name}", ndcg_table(rows, found.get(name), published.get(name, ()))]
    return parts


def ndcg_table(
    rows: Mapping[str, str], found: Trials | None, published: Sequence[Row], baseline: str = BASELINE
) -> str:
    """One data set's table; `found` is None if the set is missing. Gains are over the baseline."""
    lines, in_paper = [], dict(zip(rows, published, strict=False))
    for label, model in rows.items():
        measured = ["not at hand"] * len(CUTOFFS)
        if found:
            over = None if model == baseline else baseline
            measured = [gain_cell(found[f"ndcg@{cutoff}"], model, over) for cutoff in CUTOFFS]
        figures = [f"{value:.3f}" for value in in_paper[label]] if label in in_paper else ["-"] * len(CUTOFFS)
        lines.append([label, *measured, *figures])
    head = ("model", *(f"NDCG@{cutoff}" for cutoff in CUTOFFS), *(f"paper @{cutoff}" for cutoff in CUTOFFS))
    return markdown_table(head, lines)


def gain_figure(rows: Mapping[str, str], found: Mapping[str, Trials]) -> Figure:
    """A panel for every available data set: each model's gains over no-distillation."""
    figure, axes = panels(len(found))
    others = {label: model for label, model in rows.items() if model != BASELINE}
    for each, (name, of_set) in zip(axes, found.items(), strict=True):
        for place, cutoff in enumerate(CUTOFFS):
            at = [row + 0.15 * (place - 1) for row in range(len(others))]
            gains = [of_set[f"ndcg@{cutoff}"].gain(model, BASELINE) for model in others.values()]
            draw_line(each, at, gains, f"NDCG@{cutoff}", marker="o", linestyle="none")
        each.axhline(0.0, color="#9aa5b1", linewidth=0.8)
        each.set(title=name, ylabel="gain over no-distillation")
        each.set_xticks(range(len(others)), [label.replace(", ", ",\n") for label in others])
        each.yaxis.set_major_formatter(PercentFormatter(1.0))
        each.legend(frameon=False)
    return figure
