"""A toy experiment: the squares of two numbers."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.runner.cells import Cell
from experiments.runner.experiment import Experiment
from experiments.runner.report import Claim, claims_table
from features.task import Section


class ToySettings(Section):
    numbers: tuple[int, ...]


def _square(cell: Cell, _: Path) -> Any:
    return cell["number"] ** 2


EXPERIMENT = Experiment(
    name="toy",
    title="Toy squares",
    settings=ToySettings,
    cells=lambda settings, _, __: [{"number": number} for number in settings.numbers],
    gather=lambda _, __, squares: squares,
    claims=lambda _, squares: [Claim("above 3", str(squares), min(squares) > 3)],
    raw=lambda _, squares: {"squares": squares},
    body=lambda _, __, claims, ___: ["simulated", claims_table(claims)],
    figure=lambda _, __: Figure(),
    caption="nothing",
    packages=("numpy",),
    work=_square,
    version="squares 1",
)
