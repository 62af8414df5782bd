"""The LETOR protocol: which query groups stay, and what their features and labels become. Pure: no Beam.

Source: Yang et al. 2022, 4.1 and A.1.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from beam_jobs.letor import Floats, JudgedGroup
from beam_jobs.letor_labels import binary_labels, gumbels
from features.errors import InputError
from features.spec import FeatureSpec
from features.task import Section

LEFT_OUT = NO_RELEVANCE, TOO_FEW = "no_relevance", "too_few_documents"  # why a group is
# name -> level, types, role: what LETOR files can fill, and all of it but `privileged` is needed
FEATURES = {
    "query": ("context", ("text",), "id"),
    "item_id": ("item", ("text",), "id"),
    "regular": ("item", ("float",), "regular"),
    "privileged": ("item", ("float", "bool"), "privileged"),
    "label": ("item", ("bool", "int"), "label"),
}
LABEL_TYPES = {"gumbel": "bool", "graded": "int"}


class LetorOptions(Section):
    """`letor:`, what decides how LETOR files become a dataset."""

    min_documents: int = Field(default=10, ge=1)  # that a group needs; it needs one of positive relevance, too
    labels: Literal["gumbel", "graded"] = "gumbel"  # 1 or 0, drawn by relevance; or relevance as it is
    temperature: float = Field(default=4.0, gt=0)  # t of eq. 2; the larger, the less is left to chance
    tau: float = 4.8  # the relevance at which a document's label would be 1 as often as 0
    privileged_tau: float | None = None  # the same of a privileged bool; None: features of the files are privileged


@dataclass(frozen=True)
class LetorProtocol:
    """Errors: InputError when the spec names what LETOR files do not have, or lacks what they need."""

    spec: FeatureSpec
    options: LetorOptions
    seed: int

    def __post_init__(self) -> None:
        refuse_unfillable(self.spec, self.options)

    @property
    def features(self) -> int:
        """The features of a document in the files, regular and privileged together."""
        return self.spec["regular"].length + self.privileged

    @property
    def privileged(self) -> int:
        """The features of the files that become privileged."""
        drawn = self.options.privileged_tau is not None
        return self.spec["privileged"].length if "privileged" in self.spec and not drawn else 0

    def left_out(self, group: JudgedGroup) -> str | None:
        """Why a group is left out; None where it stays."""
        if not group.relevance.any():
            return NO_RELEVANCE
        return TOO_FEW if len(group.relevance) < self.options.min_documents else None

    def labels(self, group: JudgedGroup) -> np.ndarray[Any, Any]:
        """One a document: bool [n] where they are drawn, int64 [n] where they are the relevance."""
        if self.options.labels == "graded":
            return group.relevance
        return self.drawn(group, self.options.tau)

    def drawn(self, group: JudgedGroup, tau: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """bool [n]; whatever tau, from the same draws."""
        draws = gumbels(self.seed, group.query, group.item_ids)
        return binary_labels(group.relevance, draws, self.options.temperature, tau)


def log1p(values: Floats) -> np.ndarray[Any, np.dtype[np.float32]]:
    """sign(x) * log(1 + |x|), float32, as it is stored. Yang et al. 2022, A.1."""
    logarithms: np.ndarray[Any, np.dtype[np.float32]] = np.copysign(np.log1p(np.abs(values)), values).astype(np.float32)
    return logarithms


def refuse_unfillable(spec: FeatureSpec, options: LetorOptions) -> None:
    """Errors: InputError."""
    for feature in spec:
        if feature.name not in FEATURES:
            raise InputError(f"features.{feature.name}: LETOR files give only {', '.join(FEATURES)}: remove it")
        level, types, role = FEATURES[feature.name]
        if feature.level != level or feature.type not in types or feature.role != role:
            found = f"{feature.level}, {feature.type}, {feature.role}"
            raise InputError(f"features.{feature.name} is {found}, expected {level}, {' or '.join(types)}, {role}")
    if missing := FEATURES.keys() - set(spec.features) - {"privileged"}:
        raise InputError(f"features: no {', '.join(sorted(missing))}, which the dataset needs; see configs/letor.yaml")
    if spec.label.type != (expected := LABEL_TYPES[options.labels]):
        raise InputError(f"features.label: type {spec.label.type}, but letor.labels {options.labels} gives {expected}")
    refuse_unfillable_privilege(spec, options)


def refuse_unfillable_privilege(spec: FeatureSpec, options: LetorOptions) -> None:
    """Errors: InputError."""
    tau, found = options.privileged_tau, spec["privileged"].type if "privileged" in spec else "absent"
    if tau is None:
        if found == "bool":
            raise InputError(
                "features.privileged is bool, but letor.privileged_tau, by which it would be drawn, is missing: add "
                "it, or make privileged a float with the length that it takes of the files' features"
            )
        return
    if found != "bool":
        raise InputError(
            f"letor.privileged_tau is {tau:g}, but features.privileged is {found}: make it {{type: bool, level: item, "
            "role: privileged} and regular as long as the files' features, or remove letor.privileged_tau"
        )
    if options.labels == "graded":
        raise InputError(
            f"letor.privileged_tau is {tau:g} with letor.labels graded, but it shares the draws of labels that are "
            "drawn: make letor.labels gumbel, or remove letor.privileged_tau"
        )
