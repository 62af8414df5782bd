"""Teachers and recipes of a task file: the features that teachers see, and how students learn from them."""

import math
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, model_validator

from features.spec import Feature, FeatureSpec
from features.task import Section

# the keys of trainer.losses.ranking.LOSSES
LossName = Literal[
    "rank_bce", "rank_net", "softmax", "approx_ndcg", "gumbel_approx_ndcg", "list_mle", "lambda_rank", "mse"
]
MAX_PERMUTATIONS = 100_000  # ways to fill a group's places, which the exact coupled loss enumerates
MAX_THRESHOLD = 1e4  # if finite; beyond it float32 loses the sampling noise
PROBABILITY_LOSSES: tuple[LossName, ...] = ("rank_bce", "rank_net")  # these have no minimum for labels above 1
_NAME_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"


def weighable(spec: FeatureSpec) -> tuple[Feature, ...]:
    """The features that can weigh a group's losses: single numbers of the context."""
    return tuple(f for f in spec.at("context") if f.is_numeric and f.length == 1)


class TeacherConfig(Section):
    """A teacher sees every regular feature and the privileged ones named in `sees`; none: self-distillation."""

    name: str = Field(pattern=_NAME_PATTERN)
    sees: tuple[str, ...]
    sees_regular: bool = True  # False: the privileged features alone (generalised distillation, GenD)
    # above 1: cross-fitting, each query is scored by a model not trained on it
    folds: int = Field(default=1, ge=1, le=20)
    architecture: dict[str, Any] = {}  # overrides of the task's `teacher_architecture`: this teacher's own
    training: dict[str, Any] = {}  # overrides of the task's `teacher_training`: this teacher's own


class RankDistilConfig(Section):
    """One of the paper's losses, and its parameters; the paper's symbols in brackets."""

    # the keys of trainer.losses.rank_distil.RANK_DISTIL_LOSSES
    loss: Literal[
        "binary_sigmoid_logistic",
        "binary_softmax_logistic",
        "binary_regression_hinge",
        "pairwise_softmax_hinge",
        "pairwise_hinge_hinge",
        "pairwise_logistic_logistic",
        "coupled",
    ]
    top: int = Field(default=4, ge=1, le=1000)  # items a group (p) whose order the student learns
    sampled: int = Field(default=8, ge=1)  # items a group (m) drawn from the rest, without replacement
    mined: int = Field(default=4, ge=1, le=1000)  # of those, the items (b) that the student rates highest
    sampling: Literal["uniform", "softmax"] = "uniform"  # (Q) uniform, or by the softmax of teacher logits
    margin: float = Field(default=1.0, ge=0.0)  # (gamma) of the hinges, in student logits
    teacher_scale: float = Field(default=1.0, gt=0.0)  # (alpha) coupled: multiplies the teacher's logits
    # (M) coupled: scaled teacher logits outside the top are set to minus this; .inf: these items never get a place
    threshold: float = Field(default=math.inf, ge=0.0, allow_inf_nan=True)
    places: int = Field(default=2, ge=1)  # (r) coupled: number of first places of an order that count
    # coupled: orders sampled for each group; 0: exact, over all orders
    permutations: int = Field(default=0, ge=0, le=10_000)

    @model_validator(mode="after")
    def _consistent(self) -> "RankDistilConfig":
        if self.mined > self.sampled:
            raise ValueError(f"mined {self.mined} must not be above sampled {self.sampled}, of which they are chosen")
        if ignored := sorted(self.model_fields_set - {"loss", *settings_of_loss(self.loss)}):
            raise ValueError(f"the loss {self.loss!r} does not use {', '.join(ignored)}: remove that")
        if self.loss == "coupled":
            self._check_coupled()
        return self

    def _check_coupled(self) -> None:
        items, which = self.top, "top"
        if not math.isinf(self.threshold):
            items, which = self.top + self.mined, "top + mined"
            if self.threshold > MAX_THRESHOLD:
                raise ValueError(f"threshold {self.threshold:g} must be at most {MAX_THRESHOLD:g}, or .inf")
        if self.places > items:
            raise ValueError(f"places {self.places} must not be above {which} = {items}, the items that may come there")
        if not self.permutations and math.perm(items, self.places) > MAX_PERMUTATIONS:
            raise ValueError(
                f"{self.places} places for {which} = {items} items can be filled in more than {MAX_PERMUTATIONS} ways: "
                f"lower places or {which.replace('+', 'or')}, or set permutations to draw that many orders instead"
            )


def settings_of_loss(loss: str) -> tuple[str, ...]:
    """The fields of `RankDistilConfig` that a loss uses, beside `loss`."""
    used = ("top", "sampled", "mined", "sampling")
    if loss == "coupled":
        return (*used, "teacher_scale", "threshold", "places", "permutations")
    return (*used, "margin") if loss.endswith("_hinge") else used


class Targets(Section):
    """The transform of a teacher's logits t to the labels of the student's teacher loss."""

    transform: Literal["probability", "affine", "softmax", "score"] = "probability"
    temperature: float = Field(default=1.0, gt=0.0)  # probability: sigma(t / temperature); softmax over a group's items
    slope: float = Field(default=1.0, gt=0.0)  # affine: max(slope * t + offset, 0)
    offset: float = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> "Targets":
        used = {
            "probability": {"temperature"},
            "softmax": {"temperature"},
            "affine": {"slope", "offset"},
            "score": set(),
        }
        if ignored := sorted(self.model_fields_set - {"transform"} - used[self.transform]):
            raise ValueError(f"the transform {self.transform!r} does not use {', '.join(ignored)}: remove that")
        return self


class Recipe(Section):
    """One way to train the student; `fit` trains each, in order, and compares them."""

    name: str = Field(pattern=_NAME_PATTERN)
    teachers: tuple[str, ...] = ()  # names from `teachers`; their losses are averaged
    # weights of that average, in the order of `teachers`; empty: equal
    teacher_weights: tuple[NonNegativeFloat, ...] = ()
    teacher_loss: LossName | None = None  # None: the data loss
    targets: Targets = Targets()  # the labels of the teacher loss
    rank_distil: RankDistilConfig | None = None  # replaces teacher_loss and targets
    alpha: float | None = Field(default=None, ge=0.0, le=1.0)  # weighs the data loss; None: 0.5 with teachers, else 1
    data_loss_groups: Literal["positive", "all"] = "positive"
    learns: str | None = None  # the feature to learn instead of the label: pretraining on click
    starts_from: str | None = None  # an earlier recipe, whose weights this one fine-tunes
    averages: tuple[str, ...] = ()  # earlier recipes whose logits' mean is the score; nothing is trained (SDR-ens)
    seed: int = 0  # added to the task's seed: members of an ensemble differ by it
    architecture: dict[str, Any] = {}  # overrides of the task's `student`: a student of another size
    training: dict[str, Any] = {}  # overrides of the task's `training`: this recipe's own tuning

    @property
    def data_weight(self) -> float:
        """alpha of Yang et al., eq. 1."""
        if self.alpha is not None:
            return self.alpha
        return 0.5 if self.teachers else 1.0

    @model_validator(mode="after")
    def _consistent(self) -> "Recipe":
        self._check_ignored()
        if self.rank_distil and (self.teacher_loss or self.targets != Targets()):
            raise ValueError("rank_distil takes the place of teacher_loss and targets: remove them, or rank_distil")
        if self.teacher_weights and (len(self.teacher_weights) != len(self.teachers) or not sum(self.teacher_weights)):
            raise ValueError(
                f"teacher_weights is {list(self.teacher_weights)}, expected one number for each of teachers "
                f"{list(self.teachers)}, not all 0"
            )
        return self

    def _check_ignored(self) -> None:
        """Errors: ValueError for a key that has no effect beside the others."""
        if self.averages and (ignored := sorted(self.model_fields_set - {"name", "averages"})):
            raise ValueError(f"averages {list(self.averages)} trains nothing: remove {', '.join(ignored)}")
        if self.alpha is not None and self.alpha < 1.0 and not self.teachers:
            raise ValueError(
                f"alpha {self.alpha} leaves {1 - self.alpha:g} to teachers, but teachers is empty: name some"
            )
        if self.teachers and self.data_weight == 1.0:
            raise ValueError(f"alpha {self.alpha} leaves nothing to teachers {list(self.teachers)}: lower it")
        of_teachers = self.model_fields_set & {"teacher_loss", "targets", "rank_distil", "teacher_weights"}
        if of_teachers and not self.teachers:
            raise ValueError(
                f"teachers is empty, so nothing uses {', '.join(sorted(of_teachers))}: name some, or remove that"
            )
        if not self.data_weight and "data_loss_groups" in self.model_fields_set:
            raise ValueError(f"data_loss_groups {self.data_loss_groups!r} has no effect with alpha 0: remove it")
