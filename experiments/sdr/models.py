"""The models of SDR's tables and figures: every teacher and student as one task, on the graded labels of LETOR sets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from experiments.letor.sets import LetorSettings, letor_trials
from experiments.runner.cells import Cell
from features.task import Task
from trainer.recipes import Targets

CUTOFFS = (5, 1, 10)  # the first decides, LambdaMART's rounds too
LOSSES = {"listwise": "softmax", "pointwise": "mse"}  # a teacher, and its loss, which is its students' data loss too
ENSEMBLES = {"original": "the original loss alone", "sdr": "SDR"}  # methods with several members
MEMBER_SEEDS = 100  # between members: far enough that no trial's teacher has another trial's member's seed
ALPHA = 0.5  # of SDR, as in the paper


class SdrSettings(LetorSettings):
    """experiments/configs/sdr.yaml, which says what each is."""

    model: Task
    lambdamart: dict[str, Any]
    affine: Targets
    members: int = Field(ge=2)
    alphas: tuple[float, ...]
    temperatures: tuple[float, ...] = Field(min_length=1)
    pointwise_alphas: tuple[float, ...] = Field(min_length=1)

    def members_of(self, method: str) -> list[str]:
        return [f"{method}_{number}" for number in range(1, self.members + 1)]

    def pointwise_students(self, teacher: str) -> dict[str, float]:
        """Recipe -> alpha."""
        return {_named(f"{teacher}_pointwise", alpha): alpha for alpha in self.pointwise_alphas}

    @property
    def by_alpha(self) -> dict[float, str]:
        """Model by our alpha, ascending."""
        others = {alpha: _named("alpha", alpha) for alpha in self.alphas}
        return dict(sorted({**others, 0.0: "teacher_only", ALPHA: "sdr_1", 1.0: "original_1"}.items()))

    @property
    def by_temperature(self) -> dict[float, str]:
        return {temperature: _named("temperature", temperature) for temperature in sorted(self.temperatures)}


def _named(what: str, value: float) -> str:
    """`alpha_0_25`: names of recipes hold no point."""
    return f"{what}_{value:g}".replace(".", "_")


def _every_model(settings: SdrSettings) -> Task:
    """Every model, over a set's task."""
    return {
        **settings.model,
        "letor": {"labels": "graded", "min_documents": 1},
        "features": {"label": {"type": "int"}},
        "teachers": [{"name": name, "sees": [], "training": {"loss": loss}} for name, loss in LOSSES.items()],
        "recipes": recipes_of(settings),
        "evaluation": {"cutoffs": list(CUTOFFS), "baseline": "original_1"},
        "export": {"recipe": "original_1"},
    }


def recipes_of(settings: SdrSettings) -> list[Task]:
    """Every student, and the ensembles."""
    affine = settings.affine.model_dump(exclude_unset=True)
    by_alpha = {alpha: name for alpha, name in settings.by_alpha.items() if alpha not in (ALPHA, 1.0)}
    return [
        *(
            {"name": name, "seed": number * MEMBER_SEEDS}
            for number, name in enumerate(settings.members_of("original"), start=1)
        ),
        *(student(name, affine, number=number) for number, name in enumerate(settings.members_of("sdr"), start=1)),
        *({"name": f"{method}_ensemble", "averages": settings.members_of(method)} for method in ENSEMBLES),
        *(student(name, affine, alpha=alpha) for alpha, name in by_alpha.items()),
        *(
            student(name, {"transform": "softmax", "temperature": temperature})
            for temperature, name in settings.by_temperature.items()
        ),
        student("pointwise_listwise", affine, teacher="pointwise"),
        *(
            student(name, {"transform": "score"}, teacher_loss="mse", alpha=alpha, teacher=teacher)
            for teacher in LOSSES
            for name, alpha in settings.pointwise_students(teacher).items()
        ),
    ]


def student(
    name: str,
    targets: Task,
    teacher_loss: str = "softmax",
    alpha: float = ALPHA,
    teacher: str = "listwise",
    number: int = 1,
) -> Task:
    """A recipe. number: of its member's seed, which is not the teacher's: a student starts from weights of its own."""
    return {
        "name": name,
        "teachers": [teacher],
        "teacher_loss": teacher_loss,
        "targets": targets,
        "alpha": alpha,
        "seed": number * MEMBER_SEEDS,
        "training": {"loss": LOSSES[teacher]},
    }


def trials_of(settings: SdrSettings, out: Path, quick: bool) -> list[Cell]:
    """A trial of every model, for every set at hand, fold and seed."""
    cells = letor_trials(settings, out, quick, _every_model(settings))
    return [{**cell, "task": with_all_regular(cell["task"]), "lambdamart": settings.lambdamart} for cell in cells]


def with_all_regular(task: Task) -> Task:
    """The task of a set with no privileged feature: its models all see all of them."""
    features = {name: feature for name, feature in task["features"].items() if name != "privileged"}
    privileged = task["features"].get("privileged", {"length": 0})["length"]
    regular = {**features["regular"], "length": features["regular"]["length"] + privileged}
    return {**task, "features": {**features, "regular": regular}}


def combined(settings: SdrSettings, result: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's result, and in it the models that tables speak of beside those trained.

    `original` and `sdr` are means over members, group by group. A pointwise student is the one whose alpha was best on
    the validation split.
    """

    def on_validation(name: str) -> float:
        return float(max(result["histories"][name]["validation_ndcg"]))

    made_of = {method: settings.members_of(method) for method in ENSEMBLES}
    for teacher in LOSSES:
        made_of[f"{teacher}_pointwise"] = [max(settings.pointwise_students(teacher), key=on_validation)]
    per_group = {
        metric: models
        | {name: np.mean([models[part] for part in parts], axis=0).round(6).tolist() for name, parts in made_of.items()}
        for metric, models in result["per_group"].items()
    }
    return {**result, "per_group": per_group, "made_of": made_of}
