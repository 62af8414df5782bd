"""Distillation by the share of positive query groups on LETOR sets: Figure 4 of Yang et al. 2022, with RankBCE.

The higher tau of eq. 2, the fewer groups have a positive label; the others stay, unlabelled. Relevance judgements are
people's; the binary labels are drawn from them, so every behaviour is simulated.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from pydantic import Field

from experiments.letor.sets import (
    ByTau,
    LetorSettings,
    describe_setup,
    group_by_set_and,
    letor_trials,
    scaled_tau,
    trials_by_tau_to_json,
)
from experiments.pfd.letor_methods import METHODS, PAPER, PAPER_SETS
from experiments.runner.cells import Cell
from experiments.runner.experiment import Experiment
from experiments.runner.report import Claim, claims_table, draw_line, panels, percent
from features.task import Task, merged
from trainer.evaluation.markdown_table import markdown_table

METRIC = "ndcg@8"
BASELINE, SELF, PFD = "no_distillation", "self_distillation", "pfd"
CHANGE: Task = {
    "training": {"loss": "rank_bce"},
    "teachers": [{"name": "self", "sees": []}, {"name": "privileged", "sees": ["privileged"]}],
    "recipes": [{"name": BASELINE}, {"name": SELF, "teachers": ["self"]}, {"name": PFD, "teachers": ["privileged"]}],
    "evaluation": {"cutoffs": [8], "baseline": BASELINE},
    "export": {"recipe": BASELINE},
}


class SparsitySettings(LetorSettings):
    """experiments/configs/sparsity.yaml, which says what each is."""

    taus: tuple[float, ...] = Field(min_length=2)


def _trials(settings: SparsitySettings, out: Path, quick: bool) -> list[Cell]:
    """Every trial at every tau; a quick run's at both ends."""
    taus = (min(settings.taus), max(settings.taus)) if quick else settings.taus
    return [with_tau(cell, tau) for cell in letor_trials(settings, out, quick, CHANGE) for tau in taus]


def with_tau(cell: Cell, of_paper: float) -> Cell:
    """The trial with another tau, given in the paper's scale."""
    tau = scaled_tau(cell["task"], of_paper)
    return {**cell, "tau": tau, "task": merged(cell["task"], {"letor": {"tau": tau}})}


def _claims(_: SparsitySettings, found: Mapping[str, ByTau]) -> list[Claim]:
    return [claim for name, by_tau in found.items() for claim in _claims_of_set(name, by_tau)]


def _claims_of_set(name: str, by_tau: ByTau) -> list[Claim]:
    """The shape of Figure 4, judged at its two ends. Grows: the two 95% intervals do not touch."""
    densest, *_, sparsest = by_tau.values()

    def grows(statement: str, baseline: str) -> Claim:
        dense, sparse = (trials[METRIC].gain(PFD, baseline) for trials in (densest, sparsest))
        return Claim(statement, f"{percent(dense)} to {percent(sparse)}", sparse.low > dense.high)

    at_sparsest = sparsest[METRIC].gain(PFD, BASELINE)
    ends = "from the densest to the sparsest positives, by intervals that do not touch"
    return [
        Claim(f"{name}: PFD above no-distillation at the sparsest", percent(at_sparsest), at_sparsest.low > 0.0),
        grows(f"{name}: PFD's gain over no-distillation grows {ends}", BASELINE),
        grows(f"{name}: PFD's gain over self-distillation grows {ends}", SELF),
    ]


def _body(settings: SparsitySettings, found: Mapping[str, ByTau], claims: Sequence[Claim], quick: bool) -> list[str]:
    parts = [
        *describe_setup(settings, found, quick),
        "The higher tau, the fewer groups have a positive label, which all models learn from and are measured on; "
        "students of a teacher learn from the other groups, too. Where positives are dense even a random order does "
        "well, so there is less to gain.",
    ]
    for name, by_tau in found.items():
        parts += [f"## {name}", _table(by_tau)]
    return [*parts, "## The paper", PAPER_SAYS, _paper_table(), "## What was to be seen", claims_table(claims)]


def _table(by_tau: ByTau) -> str:
    head = ("tau", "positive groups of train", "positive groups of test", "random order", "no-distillation")
    gains = ("self-distillation", "PFD", "PFD over self-distillation")
    rows = []
    for tau, trials in by_tau.items():
        compared = trials[METRIC]
        pairs = ((SELF, BASELINE), (PFD, BASELINE), (PFD, SELF))
        means = [f"{compared.mean(model).value:.3f}" for model in ("random_order", BASELINE)]
        measured = [percent(compared.gain(*pair)) for pair in pairs]
        rows.append([f"{tau:g}", f"{trials.positive_share('train'):.1%}", f"{compared.groups:,}", *means, *measured])
    return markdown_table((*head, *gains), rows)


PAPER_SAYS = """\
Figure 4 is drawn, and none of its numbers are printed. These, of the same methods and loss at tau = 4.8, follow from
Tables 1 and 4; positives are far sparser there."""


def _paper_table() -> str:
    rows = []
    for name, (*_, positive, _) in PAPER_SETS.items():
        ndcg = dict(zip(METHODS, (at_8 for at_8, *_ in PAPER[name, "rank_bce"]), strict=True))
        plain, again, pfd = (ndcg[m] for m in ("No-distillation", "Self-distillation", "PFD student"))
        gains = (f"{better / worse - 1:+.1%}" for better, worse in ((again, plain), (pfd, plain), (pfd, again)))
        rows.append([name, f"{positive:.1%}", f"{plain:.3f}", *gains])
    head = ("data set", "positive groups of train", "no-distillation", "self-distillation", "PFD")
    return markdown_table((*head, "PFD over self-distillation"), rows)


def _figure(_: SparsitySettings, found: Mapping[str, ByTau]) -> Figure:
    figure, axes = panels(len(found))
    for each, (name, by_tau) in zip(axes, found.items(), strict=True):
        shares = [trials.positive_share("train") for trials in by_tau.values()]
        for label, model in (("PFD", PFD), ("self-distillation", SELF)):
            gains = [trials[METRIC].gain(model, BASELINE) for trials in by_tau.values()]
            draw_line(each, shares, gains, label, marker=".")
        each.axhline(0.0, color="#9aa5b1", linewidth=1.0)
        each.set(title=name, xlabel="share of positive groups", ylabel="gain in NDCG@8 over no-distillation")
        each.legend(frameon=False)
    return figure


EXPERIMENT = Experiment(
    name="sparsity",
    title="Distillation by the share of positive query groups",
    settings=SparsitySettings,
    cells=_trials,
    gather=lambda _, cells, results: group_by_set_and("tau", cells, results),
    claims=_claims,
    raw=lambda _, found: {"trials_by_tau": trials_by_tau_to_json(found)},
    body=_body,
    figure=_figure,
    caption="Gain in NDCG@8 over no-distillation, of PFD and self-distillation, by the share of positive groups",
)
