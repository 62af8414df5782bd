"""Shared by experiments on LETOR data sets: the sets, their label draws, and their trials."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import Field

from experiments.letor.simulated import write_simulated_set
from experiments.runner.cells import Cell
from experiments.runner.comparison import TrialResult, Trials
from experiments.runner.trials import WORKDIR_PLACEHOLDER, trial
from features.errors import InputError
from features.task import Section, Task, load_task, merged

SPLITS = ("train", "valid", "test")
SIMULATED = "simulated"  # the set of a quick run
SMALL_TASK = Path(__file__).parents[1] / "configs" / "mq2008.yaml"  # task file of the simulated set
DATA = {"dataset": f"{WORKDIR_PLACEHOLDER}/dataset"}  # of a trial
PAPER_TAU = 4.8  # of eq. 2, on the paper's data sets, whose relevance goes to 4
ByTau: TypeAlias = Mapping[float, Trials]  # by a tau of eq. 2, ascending


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
    """Settings shared by all experiments on LETOR sets. Seeds count from 1."""

    data: str  # folder of data sets; missing ones are left out, and the report lists them
    sets: dict[str, LetorSet] = Field(min_length=1)
    quick: Task  # with --quick: merged into the task, whose data set is simulated

    def available_sets(self, out: Path, quick: bool) -> dict[str, LetorSet]:
        """The sets to run, with full paths; for a quick run, one set simulated into `out`."""
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
    settings: LetorSettings, out: Path, quick: bool, change: Task, label_values: Mapping[str, str | float] | None = None
) -> list[Cell]:
    """Cells of a trial for every available set, fold and seed.

    change: merged into each set's task: teachers, recipes and so on. label_values: added to each cell as labels.
    """
    cells = []
    for name, data_set in settings.available_sets(out, quick).items():
        task = merged(merged(load_task(data_set.task), change), settings.quick if quick else {})
        for number, fold in enumerate(data_set.folds, start=1):
            for seed in range(1, data_set.seeds + 1):
                labels = {"set": name, "fold": number, "seed": seed, **(label_values or {})}
                cells.append(trial({**task, "seed": seed}, [conversion_job(fold)], DATA, **labels))
    return cells


def conversion_job(fold: Fold) -> list[Any]:
    """The Beam job that converts a fold's files to a trial's dataset."""
    files = [part for split in SPLITS for part in (f"--{split}", *vars(fold)[split])]
    return ["beam_jobs.letor_to_elwc", *files, "--output", f"{WORKDIR_PLACEHOLDER}/dataset", "--workers", "1"]


def group_by_set(cells: Sequence[Cell], results: Sequence[Any]) -> dict[str, Trials]:
    """Groups the results of `letor_trials`' cells by set."""
    return {
        name: Trials([TrialResult(c["seed"], r) for c, r in zip(cells, results, strict=True) if c["set"] == name])
        for name in dict.fromkeys(cell["set"] for cell in cells)
    }


def group_by_set_and(what: str, cells: Sequence[Cell], results: Sequence[Any]) -> dict[str, dict[float, Trials]]:
    """Groups results by set, then by the cells' value of `what`, ascending."""
    found: dict[str, dict[float, Trials]] = {}
    for number in sorted({cell[what] for cell in cells}):
        of_number = [(cell, result) for cell, result in zip(cells, results, strict=True) if cell[what] == number]
        for name, trials in group_by_set([cell for cell, _ in of_number], [result for _, result in of_number]).items():
            found.setdefault(name, {})[number] = trials
    return found


def trials_to_json(found: Mapping[str, Trials]) -> dict[str, Any]:
    """Raw results by set, for results.json."""
    return {"trials": {name: of_set.to_json() for name, of_set in found.items()}}


def trials_by_tau_to_json(found: Mapping[str, ByTau]) -> dict[str, dict[str, Any]]:
    """Raw results by set and tau, for results.json."""
    return {name: {f"{tau:g}": trials.to_json() for tau, trials in by_tau.items()} for name, by_tau in found.items()}


def scaled_tau(task: Task, tau: float) -> float:
    """Converts a tau of the paper to the scale of a task's relevance, given by its `letor.tau`."""
    return round(tau * float(task["letor"]["tau"]) / PAPER_TAU, 6)


def describe_setup(settings: LetorSettings, found: Mapping[str, Any], quick: bool) -> list[str]:
    """First paragraphs of a report: how the labels were made, and its limits."""
    return [
        "Labels are drawn from people's relevance judgements by eq. 2 of Yang et al. 2022, anew for every fold and "
        "seed, which also seeds the models: **the behaviour is simulated.** Figures are over positive test groups of "
        "all folds and seeds; intervals are 95%, paired, of a bootstrap over queries and seeds.",
        *report_limits(settings, found, quick),
    ]


def report_limits(settings: LetorSettings, found: Mapping[str, Any], quick: bool) -> list[str]:
    """Limits of a report: a quick run, or missing sets."""
    if quick:
        return ["**A quick run on a simulated data set, which says nothing of the methods.**"]
    if lacking := missing_sets(settings, found):
        return [
            f"Not at hand where this was made: {', '.join(lacking)}. Who has the files puts them below "
            f"`{settings.data}`, as the settings name them, and runs the same command, which fills their rows."
        ]
    return []


def missing_sets(settings: LetorSettings, found: Mapping[str, Any]) -> list[str]:
    """The sets in the settings that this run lacks."""
    return [name for name in settings.sets if name not in found]
