"""Methods against one another on LETOR sets: Tables 1, 2 and 4 and Figure 2 of Yang et al. 2022.

Relevance judgements are people's; the binary labels are drawn from them (eq. 2), so every behaviour is simulated.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from pydantic import Field

from experiments.letor.ndcg_tables import CUTOFFS, FIRST, Row, ndcg_table
from experiments.letor.sets import LetorSettings, describe_setup, group_by_set, letor_trials, trials_to_json
from experiments.runner.cells import Cell
from experiments.runner.comparison import Trials
from experiments.runner.experiment import Experiment
from experiments.runner.report import Claim, claims_table, panels, percent
from features.task import Task
from trainer.evaluation.markdown_table import markdown_table
from trainer.recipes import LossName

# as the paper names them -> the recipe or teacher here, which is named after it and the loss
METHODS = {
    "No-distillation": "no_distillation",
    "Self-distillation": "self_distillation",
    "GenD teacher*": "teacher_gen",
    "GenD student": "gend",
    "PFD teacher*": "teacher_privileged",
    "PFD student": "pfd",
}
# Yang et al. 2022, Table 4: NDCG@8, @16, @32, in the order of METHODS
PAPER: Mapping[tuple[str, str], Sequence[Row]] = {
    ("yahoo", "rank_bce"): (
        (0.517, 0.557, 0.582),
        (0.522, 0.559, 0.585),
        (0.605, 0.633, 0.649),
        (0.557, 0.583, 0.607),
        (0.613, 0.638, 0.651),
        (0.566, 0.592, 0.614),
    ),
    ("istella", "rank_bce"): (
        (0.402, 0.446, 0.472),
        (0.402, 0.446, 0.472),
        (0.364, 0.406, 0.434),
        (0.380, 0.426, 0.455),
        (0.424, 0.466, 0.490),
        (0.417, 0.461, 0.486),
    ),
    ("web30k", "rank_bce"): (
        (0.241, 0.267, 0.301),
        (0.241, 0.268, 0.299),
        (0.174, 0.198, 0.237),
        (0.205, 0.233, 0.269),
        (0.249, 0.281, 0.312),
        (0.252, 0.281, 0.314),
    ),
    ("yahoo", "rank_net"): (
        (0.519, 0.550, 0.575),
        (0.525, 0.558, 0.581),
        (0.620, 0.643, 0.659),
        (0.586, 0.610, 0.631),
        (0.616, 0.636, 0.659),
        (0.585, 0.608, 0.628),
    ),
    ("istella", "rank_net"): (
        (0.395, 0.436, 0.460),
        (0.397, 0.437, 0.462),
        (0.365, 0.407, 0.433),
        (0.378, 0.422, 0.448),
        (0.413, 0.456, 0.477),
        (0.410, 0.453, 0.477),
    ),
    ("web30k", "rank_net"): (
        (0.227, 0.251, 0.287),
        (0.226, 0.254, 0.291),
        (0.162, 0.184, 0.218),
        (0.198, 0.219, 0.252),
        (0.231, 0.258, 0.289),
        (0.235, 0.264, 0.299),
    ),
}
# ibid., Table 1: regular and privileged features; query groups, documents a group, positive groups, of train and test
PAPER_SETS = {
    "yahoo": (500, 200, 14_477, 4_089, 30.02, 29.93, 0.0246, 0.0208),
    "istella": (170, 50, 23_171, 9_782, 315.90, 319.62, 0.0883, 0.0913),
    "web30k": (96, 40, 18_151, 6_072, 124.35, 123.34, 0.0354, 0.0349),
}


class LetorMethodsSettings(LetorSettings):
    """experiments/configs/letor_methods.yaml, which says what each is."""

    losses: tuple[LossName, ...] = Field(min_length=1)
    lambdamart: dict[str, Any]


def _trials(settings: LetorMethodsSettings, out: Path, quick: bool) -> list[Cell]:
    cells = letor_trials(settings, out, quick, _every_method(settings.losses))
    return [{**cell, "lambdamart": settings.lambdamart} for cell in cells]


def _every_method(losses: Sequence[LossName]) -> Task:
    """Every method with every loss, as data and as teacher loss."""
    seen: dict[str, dict[str, Any]] = {
        "self": {"sees": []},
        "gen": {"sees": ["privileged"], "sees_regular": False},
        "privileged": {"sees": ["privileged"]},
    }
    students: dict[str, list[str]] = {
        "no_distillation": [],
        "self_distillation": ["self"],
        "gend": ["gen"],
        "pfd": ["privileged"],
    }
    teachers = [
        {"name": f"{name}_{loss}", **what, "training": {"loss": loss}} for loss in losses for name, what in seen.items()
    ]
    recipes = [
        {"name": f"{name}_{loss}", "teachers": [f"{t}_{loss}" for t in taught], "training": {"loss": loss}}
        for loss in losses
        for name, taught in students.items()
    ]
    first = f"no_distillation_{losses[0]}"
    return {
        "teachers": teachers,
        "recipes": recipes,
        "evaluation": {"cutoffs": list(CUTOFFS), "baseline": first},
        "export": {"recipe": first},
    }


def _claims(settings: LetorMethodsSettings, found: Mapping[str, Trials]) -> list[Claim]:
    return [
        claim
        for name, of_set in found.items()
        for loss in settings.losses
        for claim in _claims_of_set(name, of_set, loss)
    ]


def _claims_of_set(name: str, found: Trials, loss: str) -> list[Claim]:
    """The shapes of Table 2."""
    names = {label: f"{name}_{loss}" for label, name in METHODS.items()}
    baseline = names["No-distillation"]
    pfd, again = (found[FIRST].gain(names[m], baseline) for m in ("PFD student", "Self-distillation"))
    over_self = found[FIRST].gain(names["PFD student"], names["Self-distillation"])
    where = f"{name}, {loss}: "
    return [
        Claim(f"{where}PFD above no-distillation in NDCG@8", percent(pfd), pfd.low > 0.0),
        Claim(f"{where}PFD above self-distillation", percent(over_self), over_self.low > 0.0),
        Claim(f"{where}self-distillation not below no-distillation beyond noise", percent(again), again.high > 0.0),
    ]


def _body(
    settings: LetorMethodsSettings, found: Mapping[str, Trials], claims: Sequence[Claim], quick: bool
) -> list[str]:
    parts = [
        *describe_setup(settings, found, quick),
        "The checkpoint is chosen on the validation split; the paper chose on the test split. Models marked * see "
        "privileged features. Gains are over no-distillation with the same loss.",
    ]
    parts += ["## Data sets (the paper's Table 1)", _sets_table(found)]
    for name in dict.fromkeys((*found, *settings.sets)):
        for loss in settings.losses:
            if name in found or (name, loss) in PAPER:
                parts += [f"## {name}, {loss}", _methods_table(name, found.get(name), loss)]
    return [*parts, "## What was to be seen", claims_table(claims)]


def _sets_table(found: Mapping[str, Trials]) -> str:
    head = ("data set", "groups: train", "test", "documents a group: train", "test", "positive: train", "test")
    rows = []
    for name, of_set in found.items():
        sizes = [[of_set.of_split(s, what) for what in ("groups", "items", "positive")] for s in ("train", "test")]
        numbers = [f"{groups:,.0f}" for groups, _, _ in sizes]
        numbers += [f"{items / groups:.2f}" for groups, items, _ in sizes]
        numbers += [f"{positive / groups:.2%}" for groups, _, positive in sizes]
        rows.append([name, *numbers])
    for name, (_, _, train, test, per_train, per_test, positive, positive_test) in PAPER_SETS.items():
        shares = (f"{positive:.2%}", f"{positive_test:.2%}")
        rows.append([f"{name} (paper)", f"{train:,}", f"{test:,}", f"{per_train:.2f}", f"{per_test:.2f}", *shares])
    return markdown_table(head, rows)


def _methods_table(name: str, found: Trials | None, loss: str) -> str:
    rows = {label: f"{model}_{loss}" for label, model in METHODS.items()}
    references = {"LambdaMART (LightGBM)": "lambdamart", "random order": "random_order"} if found else {}
    return ndcg_table(rows | references, found, PAPER.get((name, loss), ()), rows["No-distillation"])


def _figure(settings: LetorMethodsSettings, found: Mapping[str, Trials]) -> Figure:
    losses = settings.losses
    figure, axes = panels(max(len(found) * len(losses), 1))
    places = [(name, of_set, loss) for name, of_set in found.items() for loss in losses]
    for each, (name, of_set, loss) in zip(axes, places, strict=False):
        for label, model in METHODS.items():
            if "teacher" not in label:
                steps, values = of_set.curve(f"{model}_{loss}")
                each.plot(steps, values, label=label)
        each.set(title=f"{name}, {loss}", xlabel="step", ylabel="validation NDCG@8")
        each.legend(frameon=False)
    return figure


EXPERIMENT = Experiment(
    name="letor_methods",
    title="Methods on LETOR data sets, with teachers that see privileged features",
    settings=LetorMethodsSettings,
    cells=_trials,
    gather=lambda _, cells, results: group_by_set(cells, results),
    claims=_claims,
    raw=lambda _, found: trials_to_json(found),
    body=_body,
    figure=_figure,
    caption="Validation NDCG@8 while training, by method, each a mean over all folds and seeds",
    packages=("tensorflow", "numpy", "lightgbm"),
)
