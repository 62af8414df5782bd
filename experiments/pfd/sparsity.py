"""Distillation by the share of positive query groups on LETOR sets: Figure 4 of Yang et al. 2022, with RankBCE.

The higher tau of eq. 2, the fewer groups have a positive label; the others stay, unlabelled. Relevance judgements are
people's; the binary labels are drawn from them, so every behaviour is simulated.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from matplotlib.figure import Figure
from pydantic import Field

from experiments.cells import Cell, load_settings, parse_arguments, run_cells
from experiments.comparison import Trials
from experiments.letor import LetorSettings, by_set_and, how_it_was_made, letor_trials, of_task_scale
from experiments.letor_methods import METHODS, PAPER, PAPER_SETS
from experiments.report import Claim, Report, claims_table, draw_line, panels, percent, table, write_report
from experiments.trials import VERSION, run_trial
from features.errors import exit_code_of
from features.task import Task, merged

TITLE = "Distillation by the share of positive query groups"
METRIC = "ndcg@8"
BASELINE, SELF, PFD = "no_distillation", "self_distillation", "pfd"
CHANGE: Task = {
    "training": {"loss": "rank_bce"},
    "teachers": [{"name": "self", "sees": []}, {"name": "privileged", "sees": ["privileged"]}],
    "recipes": [{"name": BASELINE}, {"name": SELF, "teachers": ["self"]}, {"name": PFD, "teachers": ["privileged"]}],
    "evaluation": {"cutoffs": [8], "baseline": BASELINE},
    "export": {"recipe": BASELINE},
}

ByTau = Mapping[float, Trials]  # ascending: the densest positives first


class Settings(LetorSettings):
    """experiments/configs/sparsity.yaml, which says what each is."""

    taus: tuple[float, ...] = Field(min_length=2)


def sweep(settings: Settings, out: Path, quick: bool) -> list[Cell]:
    """Every trial at every tau; a quick run's at both ends."""
    taus = (min(settings.taus), max(settings.taus)) if quick else settings.taus
    return [with_tau(cell, tau) for cell in letor_trials(settings, out, quick, CHANGE) for tau in taus]


def with_tau(cell: Cell, of_paper: float) -> Cell:
    """The trial with another tau, given in the paper's scale."""
    tau = of_task_scale(cell["task"], of_paper)
    return {**cell, "tau": tau, "task": merged(cell["task"], {"letor": {"tau": tau}})}


def claims(name: str, by_tau: ByTau) -> list[Claim]:
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


def report(settings: Settings, found: Mapping[str, ByTau], quick: bool) -> Report:
    judged = [claim for name, by_tau in found.items() for claim in claims(name, by_tau)]
    return Report(
        name="sparsity",
        title=TITLE,
        module="experiments.sparsity",
        packages=("tensorflow", "numpy"),
        settings=settings.model_dump(mode="json"),
        results={
            "claims": [asdict(claim) for claim in judged],
            "trials_by_tau": {
                name: {f"{tau:g}": trials.to_json() for tau, trials in by_tau.items()} for name, by_tau in found.items()
            },
        },
        body=[*_body(settings, found, quick), "## What was to be seen", claims_table(judged)],
        figure=_figure(found),
        caption="Gain in NDCG@8 over no-distillation, of PFD and self-distillation, by the share of positive groups",
    )


def _body(settings: Settings, found: Mapping[str, ByTau], quick: bool) -> list[str]:
    parts = [
        *how_it_was_made(settings, found, quick),
        "The higher tau, the fewer groups have a positive label, which all models learn from and are measured on; "
        "students of a teacher learn from the other groups, too. Where positives are dense even a random order does "
        "well, so there is less to gain.",
    ]
    for name, by_tau in found.items():
        parts += [f"## {name}", _table(by_tau)]
    return [*parts, "## The paper", PAPER_SAYS, _paper_table()]


def _table(by_tau: ByTau) -> str:
    head = ("tau", "positive groups of train", "positive groups of test", "random order", "no-distillation")
    gains = ("self-distillation", "PFD", "PFD over self-distillation")
    rows = []
    for tau, trials in by_tau.items():
        compared = trials[METRIC]
        pairs = ((SELF, BASELINE), (PFD, BASELINE), (PFD, SELF))
        means = [f"{compared.mean(model).value:.3f}" for model in ("random_order", BASELINE)]
        measured = [percent(compared.gain(*pair)) for pair in pairs]
        rows.append([f"{tau:g}", f"{share(trials):.1%}", f"{compared.groups:,}", *means, *measured])
    return table((*head, *gains), rows)


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
    return table((*head, "PFD over self-distillation"), rows)


def share(trials: Trials) -> float:
    """Of training groups, those with a positive label."""
    return trials.of_split("train", "positive") / trials.of_split("train", "groups")


def _figure(found: Mapping[str, ByTau]) -> Figure:
    figure, axes = panels(len(found))
    for each, (name, by_tau) in zip(axes, found.items(), strict=True):
        shares = [share(trials) for trials in by_tau.values()]
        for label, model in (("PFD", PFD), ("self-distillation", SELF)):
            gains = [trials[METRIC].gain(model, BASELINE) for trials in by_tau.values()]
            draw_line(each, shares, gains, label, marker=".")
        each.axhline(0.0, color="#9aa5b1", linewidth=1.0)
        each.set(title=name, xlabel="share of positive groups", ylabel="gain in NDCG@8 over no-distillation")
        each.legend(frameon=False)
    return figure


def main() -> None:
    arguments = parse_arguments("sparsity", TITLE)
    settings = load_settings(arguments.config, Settings)
    cells: Sequence[Cell] = sweep(settings, arguments.out, arguments.quick)
    results = run_cells(cells, run_trial, arguments.out, arguments.processes, VERSION)
    found = by_set_and("tau", cells, results)
    write_report(report(settings, found, arguments.quick), arguments.out)
    print(f"wrote {arguments.out / 'sparsity.md'}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
