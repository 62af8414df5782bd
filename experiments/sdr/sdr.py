"""Self-distilled rankers on graded labels: Tables 1 to 3 and Figures 2 to 4 of Qin et al. (SDR).

A teacher sees what its students see. A student learns from the labels and, listwise, from the teacher's transformed
scores. *alpha here weighs the data loss*, as in all of this project; the paper's alpha weighs the teacher.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.letor.sets import group_by_set, report_limits, trials_to_json
from experiments.runner.cells import Cell
from experiments.runner.comparison import Trials, gain_cell
from experiments.runner.experiment import Experiment
from experiments.runner.report import Claim, claims_table, draw_line, panels, percent
from experiments.sdr.models import ALPHA, ENSEMBLES, SdrSettings, combined, trials_of
from experiments.sdr.paper import (
    MAIN,
    PAPER_ALPHAS,
    PAPER_MAIN,
    PAPER_POINTWISE_OR_LISTWISE,
    POINTWISE_OR_LISTWISE,
    Row,
)
from experiments.sdr.toy import EXPLAINED, draw_toy, toy_claim, toy_table
from trainer.evaluation.markdown_table import markdown_table
from trainer.evaluation.metrics import Floats

IN_TABLES = (1, 5, 10)
FIRST = "ndcg@5"


# --- what was to be seen, each with the rule that decides it


def _claims(settings: SdrSettings, found: Mapping[str, Trials]) -> list[Claim]:
    of_sets = [claim for name, of_set in found.items() for claim in _claims_of_set(name, settings, of_set)]
    return [*of_sets, toy_claim()]


def _claims_of_set(name: str, settings: SdrSettings, found: Trials) -> list[Claim]:
    """The shapes of the paper's tables and figures, by NDCG@5."""

    def above(statement: str, model: str, baseline: str) -> Claim:
        gain = found[FIRST].gain(model, baseline)
        return Claim(f"{name}: {statement}", percent(gain), gain.low > 0.0)

    def no_gain(statement: str, model: str, baseline: str) -> Claim:
        gain = found[FIRST].gain(model, baseline)
        return Claim(f"{name}: {statement}", percent(gain), gain.low <= 0.0)

    return [
        above("SDR above its teacher", "sdr", "teacher_listwise"),
        above("SDR above the original loss alone", "sdr", "original"),
        above("SDR-ens above SDR", "sdr_ensemble", "sdr"),
        above("SDR-ens above DASALC-ens", "sdr_ensemble", "original_ensemble"),
        above("SDR above LambdaMART", "sdr", "lambdamart"),
        above("SDR-ens above LambdaMART", "sdr_ensemble", "lambdamart"),
        above("the listwise teacher above the pointwise one", "teacher_listwise", "teacher_pointwise"),
        above("listwise distillation above pointwise, of the listwise teacher", "sdr_1", "listwise_pointwise"),
        above(
            "listwise distillation above pointwise, of the pointwise teacher",
            "pointwise_listwise",
            "pointwise_pointwise",
        ),
        above("listwise distillation above the pointwise teacher", "pointwise_listwise", "teacher_pointwise"),
        no_gain("pointwise distillation not above the listwise teacher", "listwise_pointwise", "teacher_listwise"),
        no_gain("pointwise distillation not above the pointwise teacher", "pointwise_pointwise", "teacher_pointwise"),
        above("SDR above the teacher's objective alone", "sdr_1", "teacher_only"),
        _every_mixture_above(name, settings, found),
        _no_temperature_above(name, settings, found),
        _regularises(name, settings, found),
    ]


def _every_mixture_above(name: str, settings: SdrSettings, found: Trials) -> Claim:
    mixed = {alpha: model for alpha, model in settings.by_alpha.items() if 0.0 < alpha < 1.0}
    gains = {alpha: found[FIRST].gain(model, "original_1").value for alpha, model in mixed.items()}
    return Claim(
        f"{name}: every alpha strictly between 0 and 1 above the original loss alone, in the mean",
        ", ".join(f"{gain:+.1%} at {alpha:g}" for alpha, gain in gains.items()),
        min(gains.values()) > 0.0,
    )


def _no_temperature_above(name: str, settings: SdrSettings, found: Trials) -> Claim:
    gains = {t: found[FIRST].gain(model, "sdr_1").value for t, model in settings.by_temperature.items()}
    return Claim(
        f"{name}: the softmax transform below the affine one at every temperature, in the mean",
        ", ".join(f"{gain:+.1%} at {temperature:g}" for temperature, gain in gains.items()),
        max(gains.values()) < 0.0,
    )


def _regularises(name: str, settings: SdrSettings, found: Trials) -> Claim:
    original, distilled = (last_third(curves_of(method, settings, found)) for method in ENSEMBLES)
    comparisons = (f"{what} {distilled[what]:.3f} against {original[what]:.3f}" for what in original)
    return Claim(
        f"{name}: in the last third of training SDR fits training labels less and ranks validation data better",
        ", ".join(comparisons),
        distilled[ON_TRAINING] > original[ON_TRAINING] and distilled[RANKING] > original[RANKING],
    )


# --- learning curves

ON_TRAINING, ON_VALIDATION, RANKING = "data loss on training data", "data loss on validation data", "validation NDCG@8"


def curves_of(method: str, settings: SdrSettings, found: Trials) -> dict[str, list[float]]:
    """`step`, ON_TRAINING, ON_VALIDATION and RANKING, each a mean over members and trials.

    A loss is a mean over items; of training data one since the point before, with dropout and noise. Members of one
    number see the same batches in the same order, whatever their method.
    """
    alpha = ALPHA if method == "sdr" else 1.0

    def mean(which: str) -> Floats:
        values: Floats = np.mean([found.curve(member, which)[1] for member in settings.members_of(method)], axis=0)
        return values

    return {
        "step": [float(step) for step in found.curve(f"{method}_1")[0]],
        ON_TRAINING: ((mean("training_loss") - mean("teacher_term")) / alpha).round(4).tolist(),
        ON_VALIDATION: mean("validation_loss").round(4).tolist(),
        RANKING: mean("validation_ndcg").round(4).tolist(),
    }


def last_third(curves: Mapping[str, list[float]]) -> dict[str, float]:
    """Means over the last third of training: what one point says of training data depends on its few batches."""
    return {
        what: float(np.mean(values[-max(len(values) // 3, 1) :])) for what, values in curves.items() if what != "step"
    }


# --- report


def _gather(settings: SdrSettings, cells: Sequence[Cell], results: Sequence[Any]) -> dict[str, Trials]:
    return group_by_set(cells, [combined(settings, result) for result in results])


def _raw(settings: SdrSettings, found: Mapping[str, Trials]) -> dict[str, Any]:
    curves = {
        name: {method: curves_of(method, settings, of_set) for method in ENSEMBLES} for name, of_set in found.items()
    }
    return {**trials_to_json(found), "curves": curves}


HOW = """\
Labels are people's graded relevance as it is, and all features are regular: a teacher and its students see the same.
Nothing is drawn but the models' seeds and the documents' order. Teachers and students have one form and one budget;
checkpoints are chosen on the validation split. Figures are over the test groups with a relevant document, of all folds
and seeds; intervals are 95%, paired, of a bootstrap over queries and seeds.

**alpha weighs the data loss**: the paper's alpha, which weighs the teacher, is one minus it. SDR has alpha = 0.5, as in
the paper. In Table 1 "one member" and "SDR" are means over the members of the ensembles. Every other table has one
student of each kind, SDR's first member among them, all from the same initial weights and with the same batches. A
pointwise student is, of a few alphas, the one that was best on the validation split."""
LEARNING = """\
The paper draws a ranking metric on training and on validation data. What the trainer records of training data is the
loss: here the data loss alone, without the teacher's term, and with dropout and noise. The figure has the curves."""

RULE = """\
Unless it says "in the mean", a claim of a gain holds where all of the gain's interval, in NDCG@5, is above 0. One that
does not hold is not refuted by that: the paper's own gains of SDR over DASALC are from -0.2% to +1.5%, on far more
queries than MQ2008 has."""


def _body(settings: SdrSettings, found: Mapping[str, Trials], claims: Sequence[Claim], quick: bool) -> list[str]:
    parts = [HOW, *report_limits(settings, found, quick)]
    for name in dict.fromkeys((*found, *(name for name in settings.sets if name in PAPER_MAIN))):
        parts += _tables(name, settings, found.get(name))
    parts += ["## The example of Theorem 1 (Figure 4)", EXPLAINED, toy_table()]
    return [*parts, "## What was to be seen", RULE, claims_table(claims)]


def _tables(name: str, settings: SdrSettings, found: Trials | None) -> list[str]:
    """A set's tables; of one that is not at hand, those that the paper has."""
    of_alphas = {_of_alpha(alpha): model for alpha, model in settings.by_alpha.items()}
    of_temperatures = {f"softmax, T = {t:g}": model for t, model in settings.by_temperature.items()}
    in_paper = name == "web30k"
    tables: list[tuple[str, Mapping[str, str], str, Mapping[str, Row]]] = [
        ("methods (Table 1; gains over one DASALC member)", MAIN, "original", PAPER_MAIN.get(name, {})),
        (
            "pointwise or listwise (Table 2; gains over the listwise teacher)",
            POINTWISE_OR_LISTWISE,
            "teacher_listwise",
            PAPER_POINTWISE_OR_LISTWISE if in_paper else {},
        ),
        (
            "alpha (Table 3 and Figure 2; gains over alpha = 1)",
            of_alphas,
            "original_1",
            {_of_alpha(alpha): row for alpha, row in PAPER_ALPHAS.items()} if in_paper else {},
        ),
        (
            "the transform of teacher scores (Figure 3, left; gains over the affine one)",
            {"affine (SDR)": "sdr_1", **of_temperatures},
            "sdr_1",
            {},
        ),
    ]
    parts = []
    for heading, models, baseline, paper in tables:
        if found or paper:
            parts += [f"## {name}: {heading}", _table(models, found, baseline, paper)]
    if found:
        parts += [f"## {name}: the last third of training (Figure 3, right)", LEARNING, _curves_table(settings, found)]
    return parts


def _of_alpha(alpha: float) -> str:
    named = {1.0: ": the original loss alone", ALPHA: ": SDR", 0.0: ": the teacher's objective alone"}
    return f"{alpha:g} (the paper's {1 - alpha:g}){named.get(alpha, '')}"


def _table(models: Mapping[str, str], found: Trials | None, baseline: str, paper: Mapping[str, Row]) -> str:
    """models: label -> model. paper: label -> NDCG in percent; without any, there are no columns for it."""
    head = [
        "model",
        *(f"NDCG@{cutoff}" for cutoff in IN_TABLES),
        *(f"paper @{cutoff}" for cutoff in IN_TABLES if paper),
    ]
    rows = []
    for label, model in models.items():
        measured = ["not at hand"] * len(IN_TABLES)
        if found:
            over = None if model == baseline else baseline
            measured = [gain_cell(found[f"ndcg@{cutoff}"], model, over) for cutoff in IN_TABLES]
        published = [f"{value / 100:.4f}" for value in paper[label]] if label in paper else ["-"] * len(IN_TABLES)
        rows.append([label, *measured, *(published if paper else [])])
    return markdown_table(head, rows)


def _curves_table(settings: SdrSettings, found: Trials) -> str:
    rows = []
    for method, label in ENSEMBLES.items():
        means = last_third(curves_of(method, settings, found))
        rows.append([label, *(f"{mean:.3f}" for mean in means.values())])
    return markdown_table(("students of", ON_TRAINING, ON_VALIDATION, RANKING), rows)


def _figure(settings: SdrSettings, found: Mapping[str, Trials]) -> Figure:
    figure, axes = panels(3 * len(found) + 1)
    for place, (name, of_set) in enumerate(found.items()):
        by_alpha, by_temperature, by_step = axes[3 * place : 3 * place + 3]
        _draw_gains(by_alpha, of_set, settings.by_alpha)
        by_alpha.set(title=f"{name}: alpha", xlabel="alpha, the data loss's weight (the paper's is 1 - alpha)")
        _draw_gains(by_temperature, of_set, settings.by_temperature, "softmax transform")
        affine = of_set[FIRST].gain("sdr_1", "original_1").value
        by_temperature.axhline(affine, color="#d9a441", linestyle="--", label="affine transform (SDR)")
        by_temperature.set(title=f"{name}: transform of teacher scores", xlabel="temperature")
        by_temperature.set_xscale("log", base=2)
        by_temperature.set_xticks(list(settings.by_temperature), [f"{t:g}" for t in settings.by_temperature])
        by_temperature.legend(frameon=False)
        for (method, label), color in zip(ENSEMBLES.items(), ("#2f6fb3", "#d9a441"), strict=True):
            curves = curves_of(method, settings, of_set)
            by_step.plot(curves["step"], curves[ON_TRAINING], "--", color=color, label=f"{label}, training data")
            by_step.plot(curves["step"], curves[ON_VALIDATION], color=color, label=f"{label}, validation data")
        by_step.set(title=f"{name}: learning curves", xlabel="step", ylabel="data loss an item")
        by_step.legend(frameon=False)
    draw_toy(axes[-1])
    return figure


def _draw_gains(axes: Axes, found: Trials, models: Mapping[float, str], label: str = "SDR") -> None:
    """models: the place on the x axis -> the model."""
    gains = [found[FIRST].gain(model, "original_1") for model in models.values()]
    draw_line(axes, list(models), gains, label, marker=".")
    axes.axhline(0.0, color="#9aa5b1", linewidth=1)
    axes.set_ylabel("gain in NDCG@5 over the original loss alone")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.1%}")


EXPERIMENT = Experiment(
    name="sdr",
    title="Self-distilled rankers (SDR) on graded labels",
    settings=SdrSettings,
    cells=trials_of,
    gather=_gather,
    claims=_claims,
    raw=_raw,
    body=_body,
    figure=_figure,
    caption="By set: gain by alpha, by the softmax transform's temperature, learning curves; Theorem 1's example",
    packages=("tensorflow", "numpy", "lightgbm"),
)
