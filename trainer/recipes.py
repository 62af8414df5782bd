"""The methods of a task file: what each teacher sees, and how each student learns from labels and teachers."""

import math
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, model_validator

from features.spec import Feature, FeatureSpec
from features.task import Section

LossName = Literal[
    "rank_bce", "rank_net", "softmax", "approx_ndcg", "gumbel_approx_ndcg", "list_mle", "lambda_rank", "mse"
]  # the keys of trainer.losses.LOSSES
MOST_WAYS = 100_000  # of filling the places of one group, which the exact coupled loss enumerates
LARGEST_THRESHOLD = 1e4  # a finite one; further down float32 would round the noise of the draws away
OF_PROBABILITIES: tuple[LossName, ...] = ("rank_bce", "rank_net")  # which have no minimum for labels above 1
NAME = r"^[a-z][a-z0-9_]{0,62}$"


def weighable(spec: FeatureSpec) -> tuple[Feature, ...]:
    """The features that can weigh a group's losses: single numbers of the context."""
    return tuple(f for f in spec.at("context") if f.is_numeric and f.length == 1)


class TeacherConfig(Section):
    """A teacher sees every regular feature and the privileged ones named in `sees`; none: self-distillation."""

    name: str = Field(pattern=NAME)
    sees: tuple[str, ...]
    sees_regular: bool = True  # False: the privileged features alone (generalised distillation, GenD)
    folds: int = Field(default=1, ge=1, le=20)  # above 1: cross-fitted, no training query scored by who trained on it
    architecture: dict[str, Any] = {}  # overrides of the task's `teacher_architecture`: this teacher's own
    training: dict[str, Any] = {}  # overrides of the task's `teacher_training`: this teacher's own


class RankDistilConfig(Section):
    """Which of the paper's losses, and its sizes; in brackets the paper's letters."""

    loss: Literal[
        "binary_sigmoid_logistic",
        "binary_softmax_logistic",
        "binary_regression_hinge",
        "pairwise_softmax_hinge",
        "pairwise_hinge_hinge",
        "pairwise_logistic_logistic",
        "coupled",
    ]  # the keys of trainer.rank_distil.RANK_DISTIL_LOSSES
    top: int = Field(default=4, ge=1, le=1000)  # items a group (p) whose order the student learns
    sampled: int = Field(default=8, ge=1)  # items a group (m) drawn from the rest, without replacement
    mined: int = Field(default=4, ge=1, le=1000)  # of those, the items (b) that the student rates highest
    sampling: Literal["uniform", "softmax"] = "uniform"  # (Q) the rest alike, or by the softmax of teacher logits
    margin: float = Field(default=1.0, ge=0.0)  # (gamma) of the hinges, in student logits
    teacher_scale: float = Field(default=1.0, gt=0.0)  # (alpha) coupled: multiplies the teacher's logits
    # (M) coupled: outside the top, the scaled teacher's logits are taken for minus this; .inf: they never get a place
    threshold: float = Field(default=math.inf, ge=0.0, allow_inf_nan=True)
    places: int = Field(default=2, ge=1)  # (r) coupled: how many of an order's first places count
    permutations: int = Field(default=0, ge=0, le=10_000)  # coupled: orders drawn for a group; 0: all, exactly

    @model_validator(mode="after")
    def _consistent(self) -> "RankDistilConfig":
        if self.mined > self.sampled:
            raise ValueError(f"mined {self.mined} must not be above sampled {self.sampled}, of which they are chosen")
        if self.loss == "coupled":
            self._check_coupled()
        return self

    def _check_coupled(self) -> None:
        items, which = self.top, "top"
        if not math.isinf(self.threshold):
            items, which = self.top + self.mined, "top + mined"
            if self.threshold > LARGEST_THRESHOLD:
                raise ValueError(f"threshold {self.threshold:g} must be at most {LARGEST_THRESHOLD:g}, or .inf")
        if self.places > items:
            raise ValueError(f"places {self.places} must not be above {which} = {items}, the items that may come there")
        if not self.permutations and math.perm(items, self.places) > MOST_WAYS:
            raise ValueError(
                f"{self.places} places for {which} = {items} items can be filled in more than {MOST_WAYS} ways: "
                f"lower places or {which.replace('+', 'or')}, or set permutations to draw that many orders instead"
            )


class Targets(Section):
    """What a teacher's logits t become before the student's teacher loss takes them for labels."""

    transform: Literal["probability", "affine", "softmax", "score"] = "probability"
    temperature: float = Field(default=1.0, gt=0.0)  # probability: sigma(t / temperature); softmax over a group's items
    slope: float = Field(default=1.0, gt=0.0)  # affine: max(slope * t + offset, 0)
    offset: float = 0.0


class Recipe(Section):
    """One way to train the student; `fit` trains each, in order, and compares them."""

    name: str = Field(pattern=NAME)
    teachers: tuple[str, ...] = ()  # names from `teachers`; their losses are averaged
    teacher_weights: tuple[NonNegativeFloat, ...] = ()  # of that average, in the order of `teachers`; empty: equal
    teacher_loss: LossName | None = None  # None: the data loss
    targets: Targets = Targets()  # the labels of the teacher loss
    rank_distil: RankDistilConfig | None = None  # in place of teacher_loss and targets
    alpha: float | None = Field(default=None, ge=0.0, le=1.0)  # weighs the data loss; None: 0.5 with teachers, else 1
    data_loss_groups: Literal["positive", "all"] = "positive"
    learns: str | None = None  # the feature to learn instead of the label: pretraining on click
    starts_from: str | None = None  # an earlier recipe, whose weights this one fine-tunes
    averages: tuple[str, ...] = ()  # earlier recipes whose logits' mean is the score; nothing is trained (SDR-ens)
    seed: int = 0  # added to the task's seed: members of an ensemble differ by it
    training: dict[str, Any] = {}  # overrides of the task's `training`: this recipe's own tuning

    @property
    def data_weight(self) -> float:
        """alpha of Yang et al., eq. 1."""
        if self.alpha is not None:
            return self.alpha
        return 0.5 if self.teachers else 1.0

    @model_validator(mode="after")
    def _consistent(self) -> "Recipe":
        if self.alpha is not None and self.alpha < 1.0 and not self.teachers:
            raise ValueError(
                f"alpha {self.alpha} leaves {1 - self.alpha:g} to teachers, but teachers is empty: name some"
            )
        if self.averages and (self.teachers or self.starts_from or self.learns):
            raise ValueError(f"averages {list(self.averages)} trains nothing: remove teachers, starts_from and learns")
        if self.rank_distil and (self.teacher_loss or self.targets != Targets()):
            raise ValueError("rank_distil takes the place of teacher_loss and targets: remove them, or rank_distil")
        if self.teacher_weights and (len(self.teacher_weights) != len(self.teachers) or not sum(self.teacher_weights)):
            raise ValueError(
                f"teacher_weights is {list(self.teacher_weights)}, expected one number for each of teachers "
                f"{list(self.teachers)}, not all 0"
            )
        return self
