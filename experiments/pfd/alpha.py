"""How much weight may the labels have? Figure 3 and A.7 of Yang et al. 2022.

alpha weighs the data loss, 1 - alpha the teacher's. Labels being sparse, the sum of the data loss is much the smaller:
so what decides is not alpha but the ratio of the two weighted terms, which is taken from what the training saw.
"""

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from pydantic import Field, field_validator

from experiments.letor.ndcg_tables import BASELINE, CUTOFFS, FIRST
from experiments.letor.sets import LetorSettings, describe_setup, group_by_set, letor_trials, trials_to_json
from experiments.runner.cells import Cell
from experiments.runner.comparison import Trials, gain_cell
from experiments.runner.experiment import Experiment
from experiments.runner.report import Claim, claims_table, draw_line, panels, percent
from features.task import Task
from trainer.evaluation.markdown_table import markdown_table

USUAL = 0.5  # the alpha of all other experiments, here and in the paper
DOMINATES = 2.0  # times the other term is as large
FLAT = 0.01  # of NDCG@8: what may lie between an alpha and the usual one, interval included
A7_FROM, A7_TO, A7_GAIN = 0.3, 0.95, 0.025


class AlphaSettings(LetorSettings):
    """experiments/configs/alpha.yaml, which says what each is."""

    alphas: tuple[float, ...] = Field(min_length=2)

    @field_validator("alphas")
    @classmethod
    def _usable(cls, alphas: tuple[float, ...]) -> tuple[float, ...]:
        if list(alphas) != sorted(set(alphas)) or not 0.0 <= alphas[0] <= alphas[-1] < 1.0 or USUAL not in alphas:
            raise ValueError(f"alphas must ascend from 0 or more to less than 1, with {USUAL} among them")
        return alphas


def model_of(alpha: float) -> str:
    """0.95 -> pfd_0_95."""
    return f"pfd_{alpha:g}".replace(".", "_")


def _with_fewer_alphas(settings: AlphaSettings) -> AlphaSettings:
    few = sorted({settings.alphas[0], USUAL, settings.alphas[-1]})
    return settings.model_copy(update={"alphas": tuple(few)})


def _trials(settings: AlphaSettings, out: Path, quick: bool) -> list[Cell]:
    return letor_trials(settings, out, quick, _students(settings.alphas))


def _students(alphas: Sequence[float]) -> Task:
    """A student for every alpha, all of one teacher."""
    return {
        "teachers": [{"name": "privileged", "sees": ["privileged"]}],
        "recipes": [
            {"name": BASELINE},
            *({"name": model_of(alpha), "teachers": ["privileged"], "alpha": alpha} for alpha in alphas),
        ],
        "training": {"loss": "rank_bce"},
        "evaluation": {"cutoffs": list(CUTOFFS), "baseline": BASELINE},
        "export": {"recipe": BASELINE},
    }


class Terms(NamedTuple):
    """Equation 1's two, weighted, an item's mean over a whole training and all trials."""

    data: float
    teacher: float

    @property
    def ratio(self) -> float:
        """The teacher term over the data term; infinite where alpha is 0."""
        return self.teacher / self.data if self.data else inf


def terms(found: Trials, model: str) -> Terms:
    (_, both), (_, teacher) = (found.curve(model, which) for which in ("training_loss", "teacher_term"))
    return Terms(float((both - teacher).mean()), float(teacher.mean()))


def _claims(settings: AlphaSettings, found: Mapping[str, Trials]) -> list[Claim]:
    """Figure 3 and A.7."""
    return [
        claim(name, of_set, settings.alphas) for name, of_set in found.items() for claim in (_flat, _small, _as_in_a7)
    ]


def _flat(name: str, found: Trials, alphas: Sequence[float]) -> Claim:
    among = [alpha for alpha in alphas if terms(found, model_of(alpha)).ratio >= DOMINATES]
    apart = {a: found[FIRST].gain(model_of(a), model_of(USUAL)) for a in among if a != USUAL}
    return Claim(
        f"{name}: flat while the teacher term is at least {DOMINATES:g} times the data term: at every such alpha "
        f"NDCG@8 is within {FLAT:.0%} of that at alpha {USUAL}, interval included",
        ", ".join(f"{alpha:g}: {percent(of_alpha)}" for alpha, of_alpha in apart.items()) or "no other such alpha",
        bool(apart) and all(of_alpha.low >= -FLAT and of_alpha.high <= FLAT for of_alpha in apart.values()),
    )


def _small(name: str, found: Trials, alphas: Sequence[float]) -> Claim:
    usual = found[FIRST].gain(model_of(USUAL), BASELINE)
    among = [alpha for alpha in alphas if terms(found, model_of(alpha)).ratio <= 1.0 / DOMINATES]
    gains = {alpha: found[FIRST].gain(model_of(alpha), BASELINE) for alpha in among}
    return Claim(
        f"{name}: small while the data term is at least {DOMINATES:g} times the teacher term: at every such alpha the "
        f"gain is less than half of that at alpha {USUAL}, which is above 0, interval included",
        f"{USUAL}: {percent(usual)}; "
        + (", ".join(f"{alpha:g}: {gain.value:+.1%}" for alpha, gain in gains.items()) or "no such alpha"),
        bool(gains) and usual.low > 0.0 and all(gain.value < usual.value / 2.0 for gain in gains.values()),
    )


def _as_in_a7(name: str, found: Trials, alphas: Sequence[float]) -> Claim:
    gains = {a: found[FIRST].gain(model_of(a), BASELINE) for a in alphas if A7_FROM <= a <= A7_TO}
    least = min(gains, key=lambda alpha: gains[alpha].value)
    return Claim(
        f"{name}: as A.7 says of Istella, over {A7_GAIN:.1%} in NDCG@8 at every alpha from {A7_FROM} to {A7_TO}",
        f"the least, at {least:g}: {percent(gains[least])}",
        gains[least].value > A7_GAIN,
    )


def _raw(settings: AlphaSettings, found: Mapping[str, Trials]) -> dict[str, Any]:
    of_sets = {
        name: {model_of(alpha): terms(of_set, model_of(alpha))._asdict() for alpha in settings.alphas}
        for name, of_set in found.items()
    }
    return {"terms": of_sets, **trials_to_json(found)}


IN_THE_PAPER = """\
The paper draws Figure 3 (Yahoo) and prints none of its numbers. In words: the teacher loss is about 20 times the data
loss at alpha 0.5, and PFD is best only where the teacher's dominates. Gains in NDCG@8 at alpha 0.5: Yahoo +9.5%,
Istella +3.7%, Web30k +4.5% (Table 2); at every alpha from 0.3 to 0.95: Istella over 2.5%, Web30k over 2.6% (A.7)."""

WHAT_ELSE_CHANGES = """\
Every model takes the same number of steps, of the same number of groups; no-distillation's are positive groups alone.
So PFD near alpha 1 is not no-distillation: it sees fewer labels a step and, both terms being divided by all items of
the batch, weighs them less beside the l2 penalty."""


def _body(settings: AlphaSettings, found: Mapping[str, Trials], claims: Sequence[Claim], quick: bool) -> list[str]:
    parts = [
        *describe_setup(settings, found, quick),
        "Both losses are RankBCE. The terms are alpha * data loss and (1 - alpha) * teacher loss, an item's mean over "
        "whole trainings, to their last step, and over trials. Gains are over no-distillation.",
        IN_THE_PAPER,
        WHAT_ELSE_CHANGES,
    ]
    for name, of_set in found.items():
        parts += [f"## {name}", _table(of_set, settings.alphas)]
    return [*parts, "## What was to be seen", claims_table(claims)]


def _table(found: Trials, alphas: Sequence[float]) -> str:
    rows = [["no-distillation", "", "", "", gain_cell(found[FIRST], BASELINE, None)]]
    for alpha in alphas:
        model = model_of(alpha)
        data, teacher = of_alpha = terms(found, model)
        ratio = f"{of_alpha.ratio:.3g}"
        rows.append([f"{alpha:g}", f"{data:.4f}", f"{teacher:.4f}", ratio, gain_cell(found[FIRST], model, BASELINE)])
    return markdown_table(("alpha", "data term", "teacher term", "teacher over data", "NDCG@8"), rows)


def _figure(settings: AlphaSettings, found: Mapping[str, Trials]) -> Figure:
    alphas = settings.alphas
    figure, (by_alpha, by_ratio) = panels(2)
    for name, of_set in found.items():
        gains = {alpha: of_set[FIRST].gain(model_of(alpha), BASELINE) for alpha in alphas}
        ratios = {alpha: terms(of_set, model_of(alpha)).ratio for alpha in alphas if alpha > 0.0}
        draw_line(by_alpha, range(len(alphas)), list(gains.values()), name, marker=".")
        draw_line(by_ratio, list(ratios.values()), [gains[alpha] for alpha in ratios], name, marker=".")
    by_alpha.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    by_alpha.set(xlabel="alpha, evenly spaced", ylabel="gain in NDCG@8 over no-distillation")
    by_ratio.set(xlabel="teacher term over data term (at alpha 0 infinite: left out)", xscale="log")
    by_ratio.axvline(1.0, color="#9aa5b1", linewidth=0.8)
    for each in (by_alpha, by_ratio):
        each.axhline(0.0, color="#9aa5b1", linewidth=0.8)
        each.yaxis.set_major_formatter(PercentFormatter(1.0))
        each.legend(frameon=False)
    return figure


EXPERIMENT = Experiment(
    name="alpha",
    title="PFD by alpha, the weight of the data loss",
    settings=AlphaSettings,
    cells=_trials,
    gather=lambda _, cells, results: group_by_set(cells, results),
    claims=_claims,
    raw=_raw,
    body=_body,
    figure=_figure,
    caption="Gain in NDCG@8 over no-distillation, by alpha and by the ratio of the two terms of the loss",
    quick_settings=_with_fewer_alphas,
)
