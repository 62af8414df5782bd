"""What experiments on LETOR data sets share: the sets, their label draws, and the trials that come of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from experiments.cells import Cell
from experiments.comparison import Measured, Trials
from experiments.simulated_letor import write_simulated_set
from experiments.trials import PLACE, trial
from features.errors import InputError
from features.task import Section, Task, load_task, merged

SPLITS = ("train", "valid", "test")
SIMULATED = "simulated"  # the set of a quick run
SMALL_TASK = Path(__file__).parent / "configs" / "mq2008.yaml"  # which fits it
PAPER_TAU = 4.8  # of eq. 2, on the paper's data sets, whose relevance goes to 4


class Fold(Section):
    """Files of a fold, below the folder of data sets."""

    train: tuple[str, ...] = Field(min_length=1)
    valid: tuple[str, ...] = Field(min_length=1)
    test: tuple[str, ...] = Field(min_length=1)


class LetorSet(Section):
    """A data set and how it is trained."""

    task: str  # a task file: the lengths of the features, `letor`, `student`, `training`
    folds: tuple[Fold, ...] = Field(min_length=1)
    seeds: int = Field(ge=1)  # draws of the labels, for each fold


class LetorSettings(Section):
    """What every experiment on LETOR sets is told. Seeds count from 1."""

    data: str  # the folder of data sets; one that is not there is left out, and the report says so
    sets: dict[str, LetorSet] = Field(min_length=1)
    quick: Task  # with --quick: what changes in the task; its data set is simulated

    def at_hand(self, out: Path, quick: bool) -> dict[str, LetorSet]:
        """The sets to run, with whole paths; a quick run's is simulated into `out`."""
        if quick:
            fold = Fold(**write_simulated_set(out / SIMULATED))
            return {SIMULATED: LetorSet(task=str(SMALL_TASK), folds=(fold,), seeds=2)}
        found = {}
        for name, data_set in self.sets.items():
            folds = tuple(
                Fold(**{split: tuple(f"{self.data}/{f}" for f in vars(fold)[split]) for split in SPLITS})
                for fold in data_set.folds
            )
            if all(Path(file).exists() for fold in folds for split in SPLITS for file in vars(fold)[split]):
                found[name] = data_set.model_copy(update={"folds": folds})
        if not found:
            raise InputError(
                f"data is {self.data}, where no data set of {', '.join(self.sets)} is whole: put one there, or see "
                "the experiment work with --quick, which simulates one"
            )
        return found


def letor_trials(
    settings: LetorSettings, out: Path, quick: bool, change: Task, told: Mapping[str, str | float] | None = None
) -> list[Cell]:
    """A trial for every set at hand, fold and seed.

    change: what the experiment sets over each set's task: teachers, recipes and so on. told: what names the change.
    """
    cells = []
    for name, data_set in settings.at_hand(out, quick).items():
        task = merged(merged(load_task(data_set.task), change), settings.quick if quick else {})
        task = merged(task, {"data": {"dataset": f"{PLACE}/dataset", "relevance": None}})
        for number, fold in enumerate(data_set.folds, start=1):
            for seed in range(1, data_set.seeds + 1):
                cells.append(
                    trial({**task, "seed": seed}, [conversion(fold)], set=name, fold=number, seed=seed, **(told or {}))
                )
    return cells


def conversion(fold: Fold) -> list[Any]:
    """The Beam job that makes a trial's dataset of a fold's files."""
    files = [part for split in SPLITS for part in (f"--{split}", *vars(fold)[split])]
    return ["beam_jobs.letor_to_elwc", *files, "--output", f"{PLACE}/dataset", "--workers", "1"]


def by_set(cells: Sequence[Cell], results: Sequence[Any]) -> dict[str, Trials]:
    """The results of `letor_trials`' cells, each set's together."""
    return {
        name: Trials([Measured(c["seed"], r) for c, r in zip(cells, results, strict=True) if c["set"] == name])
        for name in dict.fromkeys(cell["set"] for cell in cells)
    }


def by_set_and(what: str, cells: Sequence[Cell], results: Sequence[Any]) -> dict[str, dict[float, Trials]]:
    """As `by_set`, and each set's by the number that its cells have for `what`, ascending."""
    found: dict[str, dict[float, Trials]] = {}
    for number in sorted({cell[what] for cell in cells}):
        of_number = [(cell, result) for cell, result in zip(cells, results, strict=True) if cell[what] == number]
        for name, trials in by_set([cell for cell, _ in of_number], [result for _, result in of_number]).items():
            found.setdefault(name, {})[number] = trials
    return found


def of_task_scale(task: Task, tau: float) -> float:
    """A tau of the paper in the scale of a task's relevance, which the task's own `letor.tau` tells."""
    return round(tau * float(task["letor"]["tau"]) / PAPER_TAU, 6)


def how_it_was_made(settings: LetorSettings, found: Mapping[str, Any], quick: bool) -> list[str]:
    """What a reader of any of these reports must know first."""
    return [
        "Labels are drawn from people's relevance judgements by eq. 2 of Yang et al. 2022, anew for every fold and "
        "seed, which also seeds the models: **the behaviour is simulated.** Figures are over positive test groups of "
        "all folds and seeds; intervals are 95%, paired, of a bootstrap over queries and seeds.",
        *limits_of(settings, found, quick),
    ]


def limits_of(settings: LetorSettings, found: Mapping[str, Any], quick: bool) -> list[str]:
    """Why a report may say little: it is of a quick run, or sets were not at hand."""
    if quick:
        return ["**A quick run on a simulated data set, which says nothing of the methods.**"]
    if lacking := missing_sets(settings, found):
        return [
            f"Not at hand where this was made: {', '.join(lacking)}. Who has the files puts them below "
            f"`{settings.data}`, as the settings name them, and runs the same command, which fills their rows."
        ]
    return []


def missing_sets(settings: LetorSettings, found: Mapping[str, Any]) -> list[str]:
    """The sets that a whole run would have and this one had not."""
    return [name for name in settings.sets if name not in found]
