"""Sampled query groups as numeric columns; a text is stored as its hash and its lengths. Pure: no Beam."""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beam_jobs.drift.measures import Float64Array, Int64Array, ValueCodes
from beam_jobs.joins.log_features import CONTEXT_NAMES
from beam_jobs.joins.query_groups import normalise_query
from beam_jobs.joins.stable_hash import Hash64
from features.elwc import QueryGroup
from features.spec import Feature
from features.values import Value

# The group size, compared like a feature. No feature may have this name.
GROUP_SIZE = Feature.model_construct(name="items", type="int", level="context", role="regular")


@dataclass(frozen=True)
class Column:
    """One feature's values in the sampled groups.

    group: int64 [values], ascending: the group of each value.
    numbers: float64 [values, axes], as `axes_of` names them; 0 axes for categories.
    codes: uint64 [values], hashes of text and categorical values; empty for numbers.
    defaulted: bool [values], True where the value equals the feature's default.
    """

    feature: Feature
    group: Int64Array
    numbers: Float64Array
    codes: ValueCodes
    defaulted: NDArray[np.bool_]


@dataclass(frozen=True)
class Sample:
    """groups: number sampled out of `drawn_from`. names: code -> value, only values that may be shown."""

    groups: int
    drawn_from: int
    columns: Mapping[str, Column]
    names: Mapping[int, str]

    @property
    def whole(self) -> float:
        """Ratio of the population's groups to the sampled groups."""
        return self.drawn_from / self.groups


def axes_of(feature: Feature) -> tuple[str, ...]:
    """Names of a feature's numeric axes; "" is the value itself."""
    if feature.is_text:
        return ("characters", "words")
    if feature.length > 1:
        return tuple(f"element {place}" for place in range(feature.length))
    return ("",) if feature.is_numeric else ()


def may_show_values(feature: Feature) -> bool:
    """Whether a report may show the values that a manifest lists: categorical features other than ids."""
    return feature.type == "categorical" and feature.role != "id" and feature.name not in CONTEXT_NAMES


class ValueCoder:
    """64-bit hashes of one feature's values; texts that differ only in case, width or spaces get the same hash."""

    def __init__(self, feature: Feature) -> None:
        self._normalised = feature.is_text or feature.name in CONTEXT_NAMES
        self._hash = Hash64("value", feature.name)  # keyed by feature: equal values of two features differ

    def code(self, value: str) -> int:
        return self._hash.of(normalise_query(value) if self._normalised else value)


class _ColumnBuilder:
    def __init__(self, feature: Feature) -> None:
        self.feature = feature
        self._coder = ValueCoder(feature)
        self._axes = len(axes_of(feature))
        self._default = _as_stored(feature)
        self._group, self._numbers, self._codes = array("q"), array("d"), array("Q")
        self._defaulted = bytearray()

    def add(self, group: int, value: Value) -> None:
        self._group.append(group)
        self._defaulted.append(value == self._default)
        if isinstance(value, tuple):
            self._numbers.extend(value)
        elif not isinstance(value, str):
            self._numbers.append(value)
        else:
            code = self._coder.code(value)
            self._codes.append(code)
            if self.feature.is_text:
                self._numbers.extend((len(value), len(value.split())))

    def build(self) -> Column:
        return Column(
            self.feature,
            np.array(self._group, dtype=np.int64),
            np.array(self._numbers, dtype=np.float64).reshape(len(self._group), self._axes),
            np.array(self._codes, dtype=np.uint64),
            np.frombuffer(self._defaulted, dtype=np.bool_),
        )


def _as_stored(feature: Feature) -> Value | None:
    """The default as decoded from a record, where floats have 32 bits."""
    if feature.type != "float" or feature.default is None:
        return feature.default
    stored = np.float32(feature.default).tolist()  # type: ignore[arg-type]
    return tuple(stored) if isinstance(stored, list) else float(stored)


def sample_of(
    groups: Iterable[QueryGroup], features: Iterable[Feature], drawn_from: int, known: Mapping[int, str]
) -> Sample:
    """The columns of sampled groups, including GROUP_SIZE.

    drawn_from: number of groups in the population. known: code -> value, only values that may be shown.
    Errors: KeyError when a group lacks one of the features.
    """
    builders = {feature.name: _ColumnBuilder(feature) for feature in (*features, GROUP_SIZE)}
    at = {level: [n for n, b in builders.items() if b.feature.level == level] for level in ("context", "item")}
    count = 0
    for group in groups:
        context = {**group.context, GROUP_SIZE.name: len(group.items)}
        for name in at["context"]:
            builders[name].add(count, context[name])
        for name in at["item"]:
            builder = builders[name]
            for item in group.items:
                builder.add(count, item[name])
        count += 1
    return Sample(count, drawn_from, {name: builder.build() for name, builder in builders.items()}, known)
