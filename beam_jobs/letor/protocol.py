"""The LETOR protocol: selects query groups and derives their features and labels. Pure: no Beam.

Source: Yang et al. 2022, 4.1 and A.1.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from beam_jobs.letor.labels import binary_labels, gumbels
from beam_jobs.letor.lines import JudgedGroup, LetorFloats
from features.errors import InputError
from features.spec import FeatureSpec
from features.task import Section

LEFT_OUT_REASONS = NO_RELEVANCE, TOO_FEW = "no_relevance", "too_few_documents"
# name -> level, types, role of the features that LETOR files can fill; all but `privileged` are required
_LETOR_FEATURES = {
    "query": ("context", ("text",), "id"),
    "item_id": ("item", ("text",), "id"),
    "regular": ("item", ("float",), "regular"),
    "privileged": ("item", ("float", "bool"), "privileged"),
    "label": ("item", ("bool", "int"), "label"),
}
_LABEL_TYPES = {"gumbel": "bool", "graded": "int"}


class LetorOptions(Section):
    """The `letor:` section: options of the conversion of LETOR files to a dataset."""

    min_documents: int = Field(default=10, ge=1)  # smallest group; one document must have positive relevance
    labels: Literal["gumbel", "graded"] = "gumbel"  # gumbel: 0 or 1, drawn by relevance; graded: the relevance
    temperature: float = Field(default=4.0, gt=0)  # t of eq. 2; larger values give less random labels
    tau: float = 4.8  # relevance at which a label is 1 with probability 1/2
    absent_features: Literal["refuse", "zero"] = "refuse"  # features that no line names; zero: their value is 0
    privileged_tau: float | None = None  # tau of a drawn privileged bool; None: privileged features come from the files


@dataclass(frozen=True)
class LetorProtocol:
    """The protocol of one task.

    Errors: InputError when the spec has a feature that LETOR files cannot fill, or lacks a required one.
    """

    spec: FeatureSpec
    options: LetorOptions
    seed: int

    def __post_init__(self) -> None:
        _check_spec(self.spec, self.options)

    @property
    def features(self) -> int:
        """Number of features of a document in the files: regular plus privileged."""
        return self.spec["regular"].length + self.privileged

    @property
    def privileged(self) -> int:
        """Number of features of the files that become privileged."""
        drawn = self.options.privileged_tau is not None
        return self.spec["privileged"].length if "privileged" in self.spec and not drawn else 0

    def left_out_reason(self, group: JudgedGroup) -> str | None:
        """The reason for leaving a group out; None if the group is used."""
        if not group.relevance.any():
            return NO_RELEVANCE
        return TOO_FEW if len(group.relevance) < self.options.min_documents else None

    def labels(self, group: JudgedGroup) -> np.ndarray[Any, Any]:
        """Labels of the group's documents: bool [n] if drawn, int64 [n] if graded."""
        if self.options.labels == "graded":
            return group.relevance
        return self.draw_labels(group, self.options.tau)

    def draw_labels(self, group: JudgedGroup, tau: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """bool [n]; every tau uses the same Gumbel draws."""
        draws = gumbels(self.seed, group.query, group.item_ids)
        return binary_labels(group.relevance, draws, self.options.temperature, tau)


def signed_log1p(values: LetorFloats) -> np.ndarray[Any, np.dtype[np.float32]]:
    """sign(x) * log(1 + |x|), as stored in float32. Source: Yang et al. 2022, A.1."""
    logarithms: np.ndarray[Any, np.dtype[np.float32]] = np.copysign(np.log1p(np.abs(values)), values).astype(np.float32)
    return logarithms


def _check_spec(spec: FeatureSpec, options: LetorOptions) -> None:
    """Errors: InputError."""
    for feature in spec:
        if feature.name not in _LETOR_FEATURES:
            raise InputError(f"features.{feature.name}: LETOR files have only {', '.join(_LETOR_FEATURES)}: remove it")
        level, types, role = _LETOR_FEATURES[feature.name]
        if feature.level != level or feature.type not in types or feature.role != role:
            found = f"{feature.level}, {feature.type}, {feature.role}"
            raise InputError(f"features.{feature.name} is {found}, expected {level}, {' or '.join(types)}, {role}")
    if missing := _LETOR_FEATURES.keys() - set(spec.features) - {"privileged"}:
        raise InputError(f"features: {', '.join(sorted(missing))} missing, expected as in configs/letor.yaml: add it")
    if spec.label.type != (expected := _LABEL_TYPES[options.labels]):
        raise InputError(f"features.label: type {spec.label.type}, but letor.labels {options.labels} gives {expected}")
    _check_privileged_feature(spec, options)


def _check_privileged_feature(spec: FeatureSpec, options: LetorOptions) -> None:
    """Errors: InputError."""
    tau, found = options.privileged_tau, spec["privileged"].type if "privileged" in spec else "absent"
    if tau is None:
        if found == "bool":
            raise InputError(
                "features.privileged is bool, but letor.privileged_tau is not set: set it, to draw the values, or make "
                "privileged a float whose length is the number of privileged features in the files"
            )
        return
    if found != "bool":
        raise InputError(
            f"letor.privileged_tau is {tau:g}, but features.privileged is {found}: make it {{type: bool, level: item, "
            "role: privileged} and give regular the length of all features in the files, or remove letor.privileged_tau"
        )
    if options.labels == "graded":
        raise InputError(
            f"letor.privileged_tau is {tau:g}, but letor.labels is graded, which draws nothing: set letor.labels to "
            "gumbel, or remove letor.privileged_tau"
        )
