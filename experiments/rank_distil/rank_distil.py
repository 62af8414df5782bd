"""RankDistil's seven losses against one another, for top-k ranking on LETOR sets (Reddi et al. 2021).

Relevance judgements are people's; the binary labels are drawn from them (Yang et al. 2022, eq. 2), so every behaviour
is simulated. One teacher sees the privileged features; the students differ by the loss that they learn from it alone.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field

from experiments.letor.sets import LetorSettings, describe_setup, group_by_set, letor_trials, trials_to_json
from experiments.runner.cells import Cell
from experiments.runner.comparison import Comparison, Trials, gain_cell
from experiments.runner.experiment import Experiment
from experiments.runner.report import Claim, claims_table, draw_line, panels, percent
from features.task import Task
from trainer.evaluation.markdown_table import markdown_table
from trainer.recipes import settings_of_loss

CUTOFFS = (1, 3, 5)
FIRST, KEPT = "ndcg@5", "overlap@5"

TEACHER, BASELINE = "privileged", "no_distillation"
# Reddi et al. 2021, appendix B: P's loss and N's -> trainer.recipes.RankDistilConfig's name, and the recipe's
LOSSES = {
    "binary: sigmoid CE + logistic": "binary_sigmoid_logistic",
    "binary: softmax CE + logistic": "binary_softmax_logistic",
    "binary: regression + squared hinge": "binary_regression_hinge",
    "pairwise: softmax CE + hinge": "pairwise_softmax_hinge",
    "pairwise: hinge + hinge": "pairwise_hinge_hinge",
    "pairwise: logistic + logistic": "pairwise_logistic_logistic",
    "coupled": "coupled",
}
STUDENTS = {
    "no-distillation": BASELINE,
    "PFD, RankBCE": "pfd_rank_bce",
    "PFD, softmax": "pfd_softmax",
    **LOSSES,
    "coupled, by Monte-Carlo": "coupled_sampled",
}
ROWS = {"random order": "random_order", "the teacher*": f"teacher_{TEACHER}", **STUDENTS}


class RankDistilSettings(LetorSettings):
    """experiments/configs/rank_distil.yaml, which says what each is."""

    alpha: float = Field(ge=0.0, le=1.0)
    rank_distil: Task
    permutations: int = Field(ge=1)


def _trials(settings: RankDistilSettings, out: Path, quick: bool) -> list[Cell]:
    cells = letor_trials(settings, out, quick, students_task(settings))
    return [{**cell, "agreement": {"teacher": TEACHER, "cutoffs": list(CUTOFFS)}} for cell in cells]


def students_task(settings: RankDistilSettings) -> Task:
    """One teacher, and a student for each of STUDENTS."""
    learned: dict[str, dict[str, Any]] = {
        "pfd_rank_bce": {"teacher_loss": "rank_bce"},
        "pfd_softmax": {"teacher_loss": "softmax"},
        **{loss: {"rank_distil": {"loss": loss, **_used(settings, loss)}} for loss in LOSSES.values()},
        "coupled_sampled": {
            "rank_distil": {"loss": "coupled", **_used(settings, "coupled"), "permutations": settings.permutations}
        },
    }
    taught = {"teachers": [TEACHER], "alpha": settings.alpha}
    return {
        "teachers": [{"name": TEACHER, "sees": ["privileged"]}],
        "training": {"loss": "rank_bce"},
        "recipes": [{"name": BASELINE}, *({"name": name, **taught, **loss} for name, loss in learned.items())],
        "evaluation": {
            "metrics": ["ndcg", "precision", "recall"],
            "cutoffs": list(CUTOFFS),
            "baseline": BASELINE,
        },
        "export": {"recipe": BASELINE},
    }


def _used(settings: RankDistilSettings, loss: str) -> Task:
    """The settings that a loss uses, of those that the losses share."""
    return {name: value for name, value in settings.rank_distil.items() if name in settings_of_loss(loss)}


# --- what was to be seen, each with the rule that decides it


def _claims(_: RankDistilSettings, found: Mapping[str, Trials]) -> list[Claim]:
    return [claim for name, of_set in found.items() for claim in _claims_of_set(name, of_set)]


def _claims_of_set(name: str, found: Trials) -> list[Claim]:
    """The aim, that the student keeps the teacher's top, and whether that ranks better than plain distillation."""
    where, ranked, kept = f"{name}: ", found[FIRST], found[KEPT]
    bce, softmax = STUDENTS["PFD, RankBCE"], STUDENTS["PFD, softmax"]
    over_bce, over_softmax = (ranked.gain("coupled", other) for other in (bce, softmax))
    kept_over_bce = kept.gain("coupled", bce)
    sampled = ranked.gain("coupled_sampled", "coupled")
    return [
        _all_above(f"{where}each of the seven losses is above no-distillation in NDCG@5", ranked),
        _all_above(f"{where}each of them keeps more of the teacher's first 5 than no-distillation", kept),
        Claim(
            f"{where}coupled keeps more of the teacher's first 5 than PFD by RankBCE",
            percent(kept_over_bce),
            kept_over_bce.low > 0.0,
        ),
        Claim(f"{where}coupled is above PFD by RankBCE in NDCG@5", percent(over_bce), over_bce.low > 0.0),
        Claim(f"{where}coupled is above PFD by softmax in NDCG@5", percent(over_softmax), over_softmax.low > 0.0),
        Claim(
            f"{where}coupled by Monte-Carlo cannot be told from coupled in NDCG@5: the interval holds 0",
            percent(sampled),
            sampled.low <= 0.0 <= sampled.high,
        ),
    ]


def _all_above(statement: str, comparison: Comparison) -> Claim:
    """Every loss is above no-distillation, its interval too."""
    gains = {label: comparison.gain(loss, BASELINE) for label, loss in LOSSES.items()}
    least = min(gains, key=lambda label: gains[label].low)
    all_above = all(gain.low > 0.0 for gain in gains.values())
    return Claim(statement, f"least certain, {least}: {percent(gains[least])}", all_above)


# --- report

WHAT_THE_PAPER_PRINTS = """\
**Beside the paper.** Of Reddi et al. 2021 the appendix has been at hand: losses, algorithm and theorems, without a
measured figure. The paper's experiments are on other data, with many items to a query, and no digit of theirs could be
held against these; so no column here is the paper's. What can be held against it is what its theorems say the losses
are for: the student keeps the teacher's first items, in their order."""

RULE = "Decided before the run: *above* and *more* hold where the whole interval of the gain lies above 0."


def _body(settings: RankDistilSettings, found: Mapping[str, Trials], claims: Sequence[Claim], quick: bool) -> list[str]:
    knobs = ", ".join(f"{name} {value}" for name, value in settings.rank_distil.items())
    parts = [
        *describe_setup(settings, found, quick),
        f"All students have RankBCE as data loss and, but for no-distillation, alpha {settings.alpha:g} and the same "
        f"teacher (marked *, for it sees privileged features), trained by RankBCE; they differ by the teacher loss "
        f"alone. RankDistil's knobs: {knobs}; {settings.permutations} permutations a group where the coupled loss is "
        "drawn, by Monte-Carlo. No knob was tuned for one loss, and alpha weighs losses of different size alike. The "
        "checkpoint is chosen by NDCG@8 on the validation split.",
        WHAT_THE_PAPER_PRINTS,
    ]
    for name, of_set in found.items():
        parts += [
            f"## {name}: NDCG",
            "In round brackets: the gain over no-distillation.",
            _ndcg_table(of_set),
            f"## {name}: precision and recall",
            "Precision divides by k. With binary labels precision@1 is NDCG@1.",
            _means_table(of_set, [f"{metric}@{k}" for metric in ("precision", "recall") for k in CUTOFFS]),
            f"## {name}: agreement with the teacher",
            "overlap@k: the share of the teacher's first k items that are among the student's first k. in order@k: the "
            "share of groups in which the student's first k are the teacher's, in the same order. At k = 1 they are "
            "one. A student of which validation chose an early step has learned little of its teacher; chosen, in "
            f"the mean: {_kept_steps(of_set)}.",
            _means_table(of_set, [f"{metric}@{k}" for metric in ("overlap", "in_order") for k in CUTOFFS]),
        ]
    return [*parts, "## What was to be seen", RULE, claims_table(claims)]


def _kept_steps(found: Trials) -> str:
    """Which step validation chose of each student, a mean over trials."""
    chosen = {
        label: np.mean([trial.result["histories"][model]["best_step"] for trial in found.trials])
        for label, model in STUDENTS.items()
    }
    return "; ".join(f"{label} {step:.0f}" for label, step in chosen.items())


def _ndcg_table(found: Trials) -> str:
    against = {"PFD, RankBCE": "pfd_rank_bce", "coupled": "coupled"}
    head = ["method", *(f"NDCG@{k}" for k in CUTOFFS), *(f"@5 over {label}" for label in against)]
    rows = []
    for label, model in ROWS.items():
        over = BASELINE if model in STUDENTS.values() and model != BASELINE else None
        gains = [
            percent(found[FIRST].gain(model, other)) if model in STUDENTS.values() and model != other else ""
            for other in against.values()
        ]
        rows.append([label, *(gain_cell(found[f"ndcg@{k}"], model, over) for k in CUTOFFS), *gains])
    return markdown_table(head, rows)


def _means_table(found: Trials, metrics: Sequence[str]) -> str:
    """The rows of whom the metrics were measured: the teacher has no agreement with itself."""
    head = ["method", *(metric.replace("_", " ") for metric in metrics)]
    rows = [
        [label, *(gain_cell(found[metric], model, None) for metric in metrics)]
        for label, model in ROWS.items()
        if model in found[metrics[0]].models
    ]
    return markdown_table(head, rows)


def _figure(_: RankDistilSettings, found: Mapping[str, Trials]) -> Figure:
    figure, axes = panels(2 * len(found))
    places = [(name, of_set[metric], metric) for name, of_set in found.items() for metric in (FIRST, KEPT)]
    for each, (name, comparison, metric) in zip(axes, places, strict=True):
        _draw_gains(each, comparison)
        each.set(title=f"{name}, {metric}", ylabel="gain over no-distillation")
    return figure


def _draw_gains(axes: Axes, comparison: Comparison) -> None:
    taught = {label: model for label, model in STUDENTS.items() if model != BASELINE}
    gains = [comparison.gain(model, BASELINE) for model in taught.values()]
    draw_line(axes, range(len(taught)), gains, "95% interval", color="#2f6fb3", marker="o", linestyle="none")
    axes.axhline(0.0, color="#9aa5b1", linewidth=1.0)
    axes.set_xticks(range(len(taught)), list(taught), rotation=60, ha="right", fontsize=8)
    axes.yaxis.set_major_formatter("{x:+.0%}")


EXPERIMENT = Experiment(
    name="rank_distil",
    title="RankDistil's losses for top-k ranking, with a teacher that sees privileged features",
    settings=RankDistilSettings,
    cells=_trials,
    gather=lambda _, cells, results: group_by_set(cells, results),
    claims=_claims,
    raw=lambda _, found: trials_to_json(found),
    body=_body,
    figure=_figure,
    caption="Each student's gain over no-distillation, in NDCG@5 and in what it keeps of the teacher's first 5",
)
