"""Pretraining, teachers and students on the logs of simulated shops: Table 3 of Yang et al. 2022.

A trial is a shop of its own: its seed draws the products, the queries and what shoppers do, and seeds the models, too.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from experiments.pfd.shop_models import BASELINE, ORACLE, ROWS
from experiments.runner.cells import Cell
from experiments.runner.comparison import Comparison, TrialResult, Trials
from experiments.runner.experiment import Experiment
from experiments.runner.report import Claim, claims_table, panels, percent
from experiments.runner.trials import WORKDIR_PLACEHOLDER, trial
from features.task import Section, Task, load_task, merged
from trainer.evaluation.markdown_table import markdown_table
from trainer.evaluation.metrics import Interval

CUTOFFS = (8, 16, 32)
FIRST = "ndcg@8"
QUICK_SEEDS = 2
_COLOURS = {"reference": "#9aa5b1", "teacher": "#d9a441", "student": "#2f6fb3"}
PRETRAINED = ("pretrained_on_click", "pretrained_then_tuned", "pretrained_on_add", "pretrained_on_add_then_tuned")
TEACHERS = ("teacher_self", "teacher_position", "teacher_click", "teacher_add")  # as the paper orders them, best last
SINGLE = ("from_position", "from_click", "from_add")
MULTIPLE = ("equal_weights", "student")


class ShopSettings(Section):
    """experiments/configs/shop_methods.yaml, which says what each is."""

    task: str
    seeds: int = Field(ge=1)
    recipes: tuple[Task, ...]
    quick: Task


def _trials(settings: ShopSettings, _: Path, quick: bool) -> list[Cell]:
    """A trial for every seed."""
    task = merged(load_task(settings.task), settings.quick if quick else {})
    task = merged(task, {"recipes": [*task["recipes"], *settings.recipes], "evaluation": {"cutoffs": list(CUTOFFS)}})
    logs, dataset, vocabulary = (f"{WORKDIR_PLACEHOLDER}/{name}" for name in ("logs", "dataset", "vocabulary"))
    data = {"dataset": dataset, "vocabulary": vocabulary, "relevance": f"{logs}/relevance.tsv.gz"}
    read = ("--input", f"{logs}/events-*.jsonl.gz", "--products", f"{logs}/products.jsonl.gz")
    jobs = [
        ("simulator", "--output", logs, "--workers", "1"),
        ("beam_jobs.build_elwc", *read, "--output", dataset),
        ("beam_jobs.build_vocabulary", "--dataset", dataset, "--output", vocabulary),
    ]
    seeds = range(1, (QUICK_SEEDS if quick else settings.seeds) + 1)
    return [trial(merged(task, {"seed": seed, "simulator": {"seed": seed}}), jobs, data, seed=seed) for seed in seeds]


# --- what Table 3 shows, each with the rule that decides it


class Shape(NamedTuple):
    """In NDCG@8 `model` is above `other`: its gain's interval is above 0. Or, not `clearly`, it is not below `other`:
    the interval is not below 0."""

    subject: str
    model: str
    other: str
    clearly: bool = True


def shapes(found: Comparison) -> list[Shape]:
    """found: tells which of some models is the best one, where that is who is compared."""

    def best(models: Sequence[str]) -> str:
        return max(models, key=lambda model: found.mean(model).value)

    return [
        *(Shape("PFD pays", student, BASELINE) for student in (*SINGLE, *MULTIPLE)),
        Shape("Self-distillation does no harm", "self_distillation", BASELINE, clearly=False),
        *(Shape("The order of the teachers", better, worse) for worse, better in pairwise(TEACHERS)),
        Shape("The best teacher does not make the best student", best(("from_position", "from_click")), "from_add"),
        *(Shape("Several teachers match the best single one", s, best(SINGLE), clearly=False) for s in MULTIPLE),
        *(Shape("Pretraining pays", pretrained, BASELINE) for pretrained in PRETRAINED),
        Shape("Fine-tuning helps after clicks", "pretrained_then_tuned", "pretrained_on_click"),
        Shape(
            "Fine-tuning does no harm after adds", "pretrained_on_add_then_tuned", "pretrained_on_add", clearly=False
        ),
        *(Shape("Several teachers beat the best pretraining", student, best(PRETRAINED)) for student in MULTIPLE),
    ]


class Judged(NamedTuple):
    shape: Shape
    gain: Interval  # of the shape's model over the other

    @property
    def held(self) -> bool:
        return self.gain.low > 0.0 if self.shape.clearly else self.gain.high >= 0.0

    @property
    def claim(self) -> Claim:
        subject, model, other, clearly = self.shape
        relation = "above" if clearly else "not below"
        statement = f"{subject}: {_label(model)} {relation} {_label(other)}"
        return Claim(statement, f"{percent(self.gain)}; paper: {in_paper(model, other)}", self.held)

    @property
    def sentence(self) -> str:
        """What came out instead, for a shape that did not."""
        subject, model, other, _ = self.shape
        relation = "is clearly below" if self.gain.high < 0.0 else "cannot be told from"
        return f"{subject}: {_label(model)} {relation} {_label(other)} ({self.claim.measured})."


def judged(found: Comparison) -> list[Judged]:
    return [Judged(shape, found.gain(shape.model, shape.other)) for shape in shapes(found)]


def in_paper(model: str, other: str) -> str:
    """The paper's gain in NDCG@8 of a row over another."""
    ours, theirs = ROWS[model].paper, ROWS[other].paper
    return f"{ours[0] / theirs[0] - 1.0:+.1%}" if ours and theirs else "no such row"


def _label(model: str) -> str:
    return ROWS[model].label


# --- report


def _gather(_: ShopSettings, cells: Sequence[Cell], results: Sequence[Any]) -> Trials:
    return Trials([TrialResult(cell["seed"], result) for cell, result in zip(cells, results, strict=True)])


def _body(settings: ShopSettings, found: Trials, claims: Sequence[Claim], quick: bool) -> list[str]:
    missed = [f"- {each.sentence}" for each in judged(found[FIRST]) if not each.held]
    return [
        *describe_shops(settings, found, quick),
        "## Purchase NDCG over the baseline's (simulated)",
        _methods_table(found),
        f"{_ends(found)} NDCG@32 is NDCG@16 where 16 items are shown. Models marked * see privileged features.",
        "## Seed by seed: purchase NDCG@8 over the baseline's (simulated)",
        _seeds_table(found),
        "## What was to be seen",
        "Behaviour is simulated. Rules were set before the run, for the gain in NDCG@8: *above* holds if its interval "
        f"lies above 0, *not below* unless it lies below 0. At 95% each, of {len(claims)} one may err by chance.",
        claims_table(claims),
        "## What did not come out",
        "\n".join(missed) if missed else "Every shape of the paper's table came out.",
    ]


def describe_shops(settings: ShopSettings, found: Trials, quick: bool) -> list[str]:
    """What a reader must know first."""
    sizes = "; ".join(
        f"{split}: {found.of_split(split, 'groups'):,.0f}, {found.of_split(split, 'positive'):,.0f} of them positive"
        for split in ("train", "test")
    )
    parts = [
        f"**All behaviour is simulated** (docs/simulator.md). Each of {len(found.trials)} seeds is a shop of its own: "
        f"it draws products, queries and what shoppers do, with the parameters of `{settings.task}`, and seeds the "
        f"models. Query groups, a mean over shops: {sizes}. Figures are over the {found[FIRST].groups:,} positive test "
        "groups of all shops; intervals are 95%, paired, of a bootstrap over queries and seeds, and rough with so few "
        "seeds: see seed by seed, too. The raw results are those of NDCG@8, by which every claim is judged.",
        f"Of the test queries' texts, {shared_texts(found):.0%} occur in more than one shop, with other products. The "
        "bootstrap draws such a text as one query: what is hard about it is hard in every shop. The teacher without "
        "privilege is built like the student; the others are small, without a transformer. The recipes' tuning and the "
        "weights of the weighted teachers were chosen on the demo's logs, whose seed is 7. The paper's figures are "
        "from a real shop's logs.",
    ]
    if quick:
        parts.append("**A quick run on small logs, which says nothing of the methods.**")
    return parts


def shared_texts(found: Trials) -> float:
    """The share of the distinct texts of positive test queries that occur in several trials."""
    seen = Counter(query for each in found.trials for query in set(each.result["queries"]))
    return sum(count > 1 for count in seen.values()) / len(seen)


def over_baseline(compared: Comparison, model: str) -> Interval:
    """A model's mean as a multiple of the baseline's."""
    gain = compared.gain(model, BASELINE)
    return Interval(1.0 + gain.value, 1.0 + gain.low, 1.0 + gain.high)


def share_of_distance(compared: Comparison, model: str) -> float:
    """How much of the baseline's distance to the oracle a model closes: 0 none, 1 all of it."""
    start = compared.mean(BASELINE).value
    return (compared.mean(model).value - start) / (compared.mean(ORACLE).value - start)


def _methods_table(found: Trials) -> str:
    head = [
        "model",
        *(f"simulated @{k}" for k in CUTOFFS),
        "distance to the oracle closed @8",
        *(f"paper @{k}" for k in CUTOFFS),
    ]
    rows = []
    for model, row in ROWS.items():
        measured = [_bracketed(over_baseline(found[f"ndcg@{cutoff}"], model)) for cutoff in CUTOFFS]
        paper = [f"{value:.3f}" for value in row.paper] if row.paper else ["-"] * len(CUTOFFS)
        mark, closed = ("*", "-") if row.kind == "teacher" else ("", f"{share_of_distance(found[FIRST], model):.0%}")
        rows.append([row.label + mark, *measured, closed, *paper])
    return markdown_table(head, rows)


def _ends(found: Trials) -> str:
    """The two ends and the baseline, in NDCG itself."""
    names = ("random_order", BASELINE, ORACLE)
    return (
        "Simulated purchase NDCG@8 itself: "
        + ", ".join(f"{ROWS[name].label} {_bracketed(found[FIRST].mean(name))}" for name in names)
        + "."
    )


def _seeds_table(found: Trials) -> str:
    rows = []
    for model, row in ROWS.items():
        by_model = [each.result["per_group"][FIRST] for each in found.trials]
        rows.append([row.label, *(f"{np.mean(of[model]) / np.mean(of[BASELINE]):.3f}" for of in by_model)])
    return markdown_table(("model", *(f"seed {each.seed}" for each in found.trials)), rows)


def _bracketed(interval: Interval) -> str:
    return f"{interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _figure(_: ShopSettings, found: Trials) -> Figure:
    compared = found[FIRST]
    rows = dict(reversed(ROWS.items()))  # the first on top
    places, values = range(len(rows)), [over_baseline(compared, model) for model in rows]
    bars = [[max(v.value - v.low, 0.0) for v in values], [max(v.high - v.value, 0.0) for v in values]]
    figure, (axes,) = panels(1)
    figure.set_size_inches(8.5, 0.38 * len(rows) + 1.4)
    axes.barh(
        [row.label for row in rows.values()],
        [v.value for v in values],
        xerr=bars,
        color=[_COLOURS[row.kind] for row in rows.values()],
        capsize=3,
        height=0.7,
    )
    in_paper = [(row.paper[0], place) for place, row in zip(places, rows.values(), strict=True) if row.paper]
    axes.plot(*zip(*in_paper, strict=True), "D", color="#1d2733", markersize=4, label="paper (a real shop's logs)")
    for place, value, row in zip(places, values, rows.values(), strict=True):
        end = max(value.high, row.paper[0] if row.paper else 0.0)
        axes.text(end, place, f"  {value.value:.3f}", va="center", fontsize=9)
    axes.axvline(1.0, color="#1d2733", linewidth=0.8)
    axes.set_xlabel("simulated purchase NDCG@8 over the baseline's, 95% intervals")
    axes.legend(frameon=False, loc="lower right")
    return figure


EXPERIMENT = Experiment(
    name="shop_methods",
    title="Methods on the logs of simulated shops (Table 3 of Yang et al. 2022)",
    settings=ShopSettings,
    cells=_trials,
    gather=_gather,
    claims=lambda _, found: [each.claim for each in judged(found[FIRST])],
    raw=lambda _, found: {"trials": found.to_json(FIRST)},
    body=_body,
    figure=_figure,
    caption="Simulated purchase NDCG@8 of every model over the baseline's, beside the paper's",
    packages=("tensorflow", "apache-beam", "numpy"),
)
