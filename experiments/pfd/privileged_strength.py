"""PFD by how much a privileged feature tells of the label, on LETOR sets: Figure 5 of Yang et al. 2022, with RankBCE.

All features of the files are regular. The one privileged feature z is drawn as the label y is (eq. 2), from the same
draws, with a tau of its own: far below the label's, z is nearly constant; at the label's, z is y. So every behaviour,
z and y, is simulated; relevance judgements are people's.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field, field_validator

from experiments.letor.sets import (
    PAPER_TAU,
    ByTau,
    LetorSet,
    LetorSettings,
    describe_setup,
    group_by_set_and,
    letor_trials,
    scaled_tau,
    trials_by_tau_to_json,
)
from experiments.runner.cells import Cell
from experiments.runner.comparison import Comparison, TrialResult, Trials
from experiments.runner.experiment import Experiment
from experiments.runner.report import Claim, claims_table, draw_line, panels, percent
from features.task import Task, merged
from trainer.evaluation.markdown_table import markdown_table

METRIC = "ndcg@8"
BASELINE, PFD, TEACHER = "no_distillation", "pfd", "teacher_privileged"
CHANGE: Task = {
    "training": {"loss": "rank_bce"},
    "teachers": [{"name": "privileged", "sees": ["privileged"]}],
    "recipes": [{"name": BASELINE}, {"name": PFD, "teachers": ["privileged"]}],
    "evaluation": {"cutoffs": [8], "baseline": BASELINE},
    "export": {"recipe": BASELINE},
}


class PrivilegedStrengthSettings(LetorSettings):
    """experiments/configs/privileged_strength.yaml, which says what each is."""

    privileged_taus: tuple[float, ...] = Field(min_length=3)

    @field_validator("privileged_taus")
    @classmethod
    def _end_where_z_is_y(cls, taus: tuple[float, ...]) -> tuple[float, ...]:
        if taus != tuple(sorted(set(taus))) or taus[-1] != PAPER_TAU:
            raise ValueError(f"must rise to {PAPER_TAU}, where z is y")
        return taus

    @field_validator("sets")
    @classmethod
    def _seeds_can_be_halved(cls, sets: dict[str, LetorSet]) -> dict[str, LetorSet]:
        for name, data_set in sets.items():
            if data_set.seeds < 2:
                raise ValueError(f"{name}.seeds must be 2 or more: each half of them chooses the best z for the other")
        return sets


def _trials(settings: PrivilegedStrengthSettings, out: Path, quick: bool) -> list[Cell]:
    """Every trial with every z; a quick run's with the weakest, a middle one and the strongest."""
    taus = settings.privileged_taus
    if quick:
        taus = (taus[0], taus[len(taus) // 2], taus[-1])
    return [with_drawn_privilege(cell, tau) for cell in letor_trials(settings, out, quick, CHANGE) for tau in taus]


def with_drawn_privilege(cell: Cell, of_paper: float) -> Cell:
    """The trial with all features of the files regular and a drawn z, its privileged_tau in the paper's scale."""
    task = cell["task"]
    tau = scaled_tau(task, of_paper)
    length = task["features"]["regular"]["length"] + task["features"]["privileged"]["length"]
    change = {
        "features": {"regular": {"length": length}, "privileged": {"type": "bool", "length": 1}},
        "letor": {"privileged_tau": tau},
    }
    return {**cell, "privileged_tau": tau, "task": merged(task, change)}


def correlation(result: Mapping[str, Any]) -> float:
    """Pearson's, of z and y over a trial's training documents.

    Of one pair of draws, the one with the higher tau is 1 only where the other is. So with shares p <= q of ones,
    their covariance is p - p q, and the correlation sqrt(p (1 - q) / (q (1 - p))).
    """
    means = result["splits"]["train"]["means"]
    p, q = sorted((means["label"], means["privileged"]))
    return math.sqrt(p * (1.0 - q) / (q * (1.0 - p)))


def merge_by_tau(by_tau: ByTau) -> list[TrialResult]:
    """Trials that hold the models of every privileged_tau: a fold and seed has the same labels whatever z is."""
    together = []
    for same in zip(*(trials.trials for trials in by_tau.values()), strict=True):
        per_group = {
            at(model, tau): values
            for tau, trial in zip(by_tau, same, strict=True)
            for model, values in trial.result["per_group"][METRIC].items()
        }
        together.append(TrialResult(same[0].seed, {**same[0].result, "per_group": {METRIC: per_group}}))
    return together


def at(model: str, tau: float) -> str:
    """A model's name in trials of `merge_by_tau`."""
    return f"{model} {tau:g}"


def best(trials: Sequence[TrialResult], taus: Sequence[float]) -> float:
    """The privileged_tau of the best student in trials of `merge_by_tau`."""
    compared = Comparison(trials, METRIC)
    return max(taus, key=lambda tau: compared.mean(at(PFD, tau)).value)


def peak_and_ends(trials: Sequence[TrialResult], taus: Sequence[float]) -> Comparison:
    """Students of the best z, `peak`, of the weakest and of z = y, `weakest` and `strongest`; trials of `merge_by_tau`.

    The best z of odd seeds is chosen on even seeds and vice versa, which avoids selection bias.
    """
    best_of_others = {rest: best([t for t in trials if t.seed % 2 != rest], taus) for rest in (0, 1)}
    judged = []
    for trial in trials:
        found = trial.result["per_group"][METRIC]
        places = {"peak": best_of_others[trial.seed % 2], "weakest": taus[0], "strongest": taus[-1]}
        students = {name: found[at(PFD, tau)] for name, tau in places.items()}
        judged.append(TrialResult(trial.seed, {**trial.result, "per_group": {METRIC: students}}))
    return Comparison(judged, METRIC)


def _claims(_: PrivilegedStrengthSettings, found: Mapping[str, ByTau]) -> list[Claim]:
    return [claim for name, by_tau in found.items() for claim in _claims_of_set(name, by_tau)]


def _claims_of_set(name: str, by_tau: ByTau) -> list[Claim]:
    """The shape of Figure 5."""
    together, taus = merge_by_tau(by_tau), list(by_tau)
    compared, judged = Comparison(together, METRIC), peak_and_ends(together, taus)
    teachers = [compared.mean(at(TEACHER, tau)).value for tau in taus]
    rise, fall = (judged.gain("peak", end) for end in ("weakest", "strongest"))
    peak = "the student of the best z, chosen by the other half of the seeds, is above that of"
    return [
        Claim(
            f"{name}: each more predictive z makes a better teacher",
            " to ".join(f"{value:.3f}" for value in teachers),
            all(weaker < stronger for weaker, stronger in pairwise(teachers)),
        ),
        Claim(f"{name}: PFD's gain first rises: {peak} the weakest z", percent(rise), rise.low > 0.0),
        Claim(f"{name}: PFD's gain then falls: {peak} z = y", percent(fall), fall.low > 0.0),
    ]


def _body(
    settings: PrivilegedStrengthSettings, found: Mapping[str, ByTau], claims: Sequence[Claim], quick: bool
) -> list[str]:
    parts = [
        *describe_setup(settings, found, quick),
        "All features of the files are regular; the teacher sees z beside them. z is drawn like the label y, from the "
        "same draws, with `letor.privileged_tau`; where that is `letor.tau`, z is y. Correlations are over all "
        "documents of train. The paper draws Figure 5 and prints none of its numbers.",
    ]
    for name, by_tau in found.items():
        parts += [f"## {name}", _table(by_tau)]
    return [*parts, "## What was to be seen", claims_table(claims)]


def _table(by_tau: ByTau) -> str:
    head = ("privileged_tau", "correlation of z and y", "teacher, NDCG@8", "PFD student", "no-distillation")
    rows = []
    for tau, trials in by_tau.items():
        means = [f"{trials[METRIC].mean(model).value:.3f}" for model in (TEACHER, PFD, BASELINE)]
        gain = percent(trials[METRIC].gain(PFD, BASELINE))
        rows.append([f"{tau:g}", f"{correlation_of(trials):.2f}", *means, gain])
    return markdown_table((*head, "PFD's gain"), rows)


def correlation_of(trials: Trials) -> float:
    """A mean over trials."""
    return float(np.mean([correlation(trial.result) for trial in trials.trials]))


def _figure(_: PrivilegedStrengthSettings, found: Mapping[str, ByTau]) -> Figure:
    figure, axes = panels(len(found))
    for each, (name, by_tau) in zip(axes, found.items(), strict=True):
        gains = [trials[METRIC].gain(PFD, BASELINE) for trials in by_tau.values()]
        draw_line(each, [correlation_of(trials) for trials in by_tau.values()], gains, "PFD", marker=".")
        each.axhline(0.0, color="#9aa5b1", linewidth=1.0)
        each.set(title=name, xlabel="correlation of z and y", ylabel="gain in NDCG@8 over no-distillation")
    return figure


EXPERIMENT = Experiment(
    name="privileged_strength",
    title="PFD by how much the privileged feature tells of the label",
    settings=PrivilegedStrengthSettings,
    cells=_trials,
    gather=lambda _, cells, results: group_by_set_and("privileged_tau", cells, results),
    claims=_claims,
    raw=lambda _, found: {"trials_by_privileged_tau": trials_by_tau_to_json(found)},
    body=_body,
    figure=_figure,
    caption="PFD's gain in NDCG@8 over no-distillation, by the correlation of the privileged feature and the label",
)
