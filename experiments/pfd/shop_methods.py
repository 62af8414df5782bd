"""Pretraining, teachers and students on the logs of simulated shops: Table 3 of Yang et al. 2022.

A trial is a shop of its own: its seed draws the products, the queries and what shoppers do, and seeds the models, too.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from experiments.cells import Cell, load_settings, parse_arguments, run_cells
from experiments.comparison import Comparison, Measured, Trials
from experiments.report import Claim, Report, claims_table, panels, percent, table, write_report
from experiments.trials import PLACE, VERSION, run_trial, trial
from features.errors import exit_code_of
from features.task import Section, Task, load_task, merged
from trainer.metrics import Interval

TITLE = "Methods on the logs of simulated shops (Table 3 of Yang et al. 2022)"
CUTOFFS = (8, 16, 32)
FIRST = "ndcg@8"
BASELINE, ORACLE = "no_distillation", "oracle"
QUICK_SEEDS = 2


class Row(NamedTuple):
    """A model here, and its NDCG@8, @16 and @32 in the paper's Table 3, over the baseline's."""

    label: str
    kind: Literal["reference", "student", "teacher"]
    paper: tuple[float, float, float] | None = None


ROWS = {
    "random_order": Row("random order", "reference"),
    "bm25": Row("BM25", "reference"),
    BASELINE: Row("no-distillation", "student", (1.0, 1.0, 1.0)),
    "pretrained_on_click": Row("pretrained on click", "student", (1.043, 1.035, 1.031)),
    "pretrained_then_tuned": Row("pretrained on click, fine-tuned", "student", (1.077, 1.060, 1.054)),
    "pretrained_on_add": Row("pretrained on add", "student", (1.058, 1.046, 1.042)),
    "pretrained_on_add_then_tuned": Row("pretrained on add, fine-tuned", "student", (1.059, 1.045, 1.041)),
    "teacher_self": Row("teacher without privilege", "teacher", (1.0, 1.0, 1.0)),
    "self_distillation": Row("self-distilled student", "student", (1.028, 1.021, 1.019)),
    "teacher_position": Row("teacher position", "teacher", (1.182, 1.135, 1.121)),
    "from_position": Row("student of position", "student", (1.078, 1.057, 1.051)),
    "teacher_click": Row("teacher click", "teacher", (2.121, 1.902, 1.827)),
    "from_click": Row("student of click", "student", (1.082, 1.064, 1.057)),
    "teacher_add": Row("teacher add", "teacher", (2.292, 2.053, 1.972)),
    "from_add": Row("student of add", "student", (1.073, 1.056, 1.051)),
    "equal_weights": Row("student of all three", "student", (1.112, 1.085, 1.077)),
    "student": Row("student of all three, weighted", "student"),
    ORACLE: Row("oracle (true relevance)", "reference"),
}
COLOURS = {"reference": "#9aa5b1", "teacher": "#d9a441", "student": "#2f6fb3"}
PRETRAINED = ("pretrained_on_click", "pretrained_then_tuned", "pretrained_on_add", "pretrained_on_add_then_tuned")
TEACHERS = ("teacher_self", "teacher_position", "teacher_click", "teacher_add")  # as the paper orders them, best last
SINGLE = ("from_position", "from_click", "from_add")
MULTIPLE = ("equal_weights", "student")


class Settings(Section):
    """experiments/configs/shop_methods.yaml, which says what each is."""

    task: str
    seeds: int = Field(ge=1)
    recipes: tuple[Task, ...]
    quick: Task


def shop_trials(settings: Settings, quick: bool) -> list[Cell]:
    """A trial for every seed."""
    task = merged(load_task(settings.task), settings.quick if quick else {})
    task = merged(task, {"recipes": [*task["recipes"], *settings.recipes], "evaluation": {"cutoffs": list(CUTOFFS)}})
    logs, dataset, vocabulary = (f"{PLACE}/{name}" for name in ("logs", "dataset", "vocabulary"))
    data = {"dataset": dataset, "vocabulary": vocabulary, "relevance": f"{logs}/relevance.tsv.gz"}
    read = ("--input", f"{logs}/events-*.jsonl.gz", "--products", f"{logs}/products.jsonl.gz")
    jobs = [
        ("beam_jobs.simulate_logs", "--output", logs, "--workers", "1"),
        ("beam_jobs.build_elwc", *read, "--output", dataset),
        ("beam_jobs.build_vocabulary", "--dataset", dataset, "--output", vocabulary),
    ]
    seeds = range(1, (QUICK_SEEDS if quick else settings.seeds) + 1)
    return [
        trial(merged(task, {"seed": seed, "simulator": {"seed": seed}, "data": data}), jobs, seed=seed)
        for seed in seeds
    ]


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


def report(settings: Settings, found: Trials, quick: bool) -> Report:
    verdicts = judged(found[FIRST])
    return Report(
        name="shop_methods",
        title=TITLE,
        module="experiments.shop_methods",
        packages=("tensorflow", "apache-beam", "numpy"),
        settings=settings.model_dump(mode="json"),
        results={"claims": [asdict(each.claim) for each in verdicts], "trials": found.to_json(FIRST)},
        body=_body(settings, found, verdicts, quick),
        figure=_figure(found[FIRST]),
        caption="Simulated purchase NDCG@8 of every model over the baseline's, beside the paper's",
    )


def _body(settings: Settings, found: Trials, verdicts: Sequence[Judged], quick: bool) -> list[str]:
    missed = [f"- {each.sentence}" for each in verdicts if not each.held]
    return [
        *how_it_was_made(settings, found, quick),
        "## Purchase NDCG over the baseline's (simulated)",
        _methods_table(found),
        f"{_ends(found)} NDCG@32 is NDCG@16 where 16 items are shown. Models marked * see privileged features.",
        "## Seed by seed: purchase NDCG@8 over the baseline's (simulated)",
        _seeds_table(found),
        "## What was to be seen",
        "Behaviour is simulated. Rules were set before the run, for the gain in NDCG@8: *above* holds if its interval "
        f"lies above 0, *not below* unless it lies below 0. At 95% each, of {len(verdicts)} one may err by chance.",
        claims_table([each.claim for each in verdicts]),
        "## What did not come out",
        "\n".join(missed) if missed else "Every shape of the paper's table came out.",
    ]


def how_it_was_made(settings: Settings, found: Trials, quick: bool) -> list[str]:
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
    return table(head, rows)


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
    return table(("model", *(f"seed {each.seed}" for each in found.trials)), rows)


def _bracketed(interval: Interval) -> str:
    return f"{interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _figure(compared: Comparison) -> Figure:
    rows = dict(reversed(ROWS.items()))  # the first on top
    places, values = range(len(rows)), [over_baseline(compared, model) for model in rows]
    bars = [[max(v.value - v.low, 0.0) for v in values], [max(v.high - v.value, 0.0) for v in values]]
    figure, (axes,) = panels(1)
    figure.set_size_inches(8.5, 0.38 * len(rows) + 1.4)
    axes.barh(
        [row.label for row in rows.values()],
        [v.value for v in values],
        xerr=bars,
        color=[COLOURS[row.kind] for row in rows.values()],
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


def main() -> None:
    arguments = parse_arguments("shop_methods", TITLE)
    settings = load_settings(arguments.config, Settings)
    cells = shop_trials(settings, arguments.quick)
    results = run_cells(cells, run_trial, arguments.out, arguments.processes, VERSION)
    found = Trials([Measured(cell["seed"], result) for cell, result in zip(cells, results, strict=True)])
    write_report(report(settings, found, arguments.quick), arguments.out)
    print(f"wrote {arguments.out / 'shop_methods.md'}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
