"""Sampled query groups as columns of numbers. Texts leave only their codes and lengths. Pure: no Beam."""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beam_jobs.drift import Codes, Floats, Ints
from beam_jobs.query_groups import CONTEXT_NAMES, Hash64, normalise_query
from features.elwc import QueryGroup
from features.spec import Feature
from features.values import Value

# The size of groups, judged as if it were a feature; its name is one that no feature may have.
ITEMS = Feature.model_construct(name="items", type="int", level="context", role="regular")


@dataclass(frozen=True)
class Column:
    """One feature's values in the sampled groups.

    group: int64 [values], ascending: the group of each value.
    numbers: float64 [values, axes], as `axes_of` names them; no axes for categories.
    codes: uint64 [values], of text and categories the values themselves; empty for numbers.
    defaulted: bool [values], where the value is the feature's default.
    """

    feature: Feature
    group: Ints
    numbers: Floats
    codes: Codes
    defaulted: NDArray[np.bool_]


@dataclass(frozen=True)
class Sample:
    """groups: sampled, of `drawn_from`. names: code -> value, of values that may be shown."""

    groups: int
    drawn_from: int
    columns: Mapping[str, Column]
    names: Mapping[int, str]

    @property
    def whole(self) -> float:
        """How many times the sample the whole is."""
        return self.drawn_from / self.groups


def axes_of(feature: Feature) -> tuple[str, ...]:
    """What the numbers of a feature are; "" is the value itself."""
    if feature.is_text:
        return ("characters", "words")
    if feature.length > 1:
        return tuple(f"element {place}" for place in range(feature.length))
    return ("",) if feature.is_numeric else ()


def may_be_shown(feature: Feature) -> bool:
    """Whether a report may show the feature's values: categories, but no text, no query, and nothing that is an id."""
    return feature.type == "categorical" and feature.role != "id" and feature.name not in CONTEXT_NAMES


class Coder:
    """64 bits for each value of one feature; texts that differ in case, width or spaces alone are the same."""

    def __init__(self, feature: Feature) -> None:
        self._normalised = feature.is_text or feature.name in CONTEXT_NAMES
        self._hash = Hash64("value", feature.name)  # the same value of another feature has another code, and no name

    def code(self, value: str) -> int:
        return self._hash.of(normalise_query(value) if self._normalised else value)


class _ColumnBuilder:
    def __init__(self, feature: Feature) -> None:
        self.feature = feature
        self._coder = Coder(feature)
        self._axes = len(axes_of(feature))
        self._default = _as_stored(feature)
        self._group, self._numbers, self._codes = array("q"), array("d"), array("Q")
        self._defaulted = bytearray()

    def add(self, group: int, value: Value, names: dict[int, str]) -> None:
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
            elif may_be_shown(self.feature):
                names[code] = value

    def build(self) -> Column:
        return Column(
            self.feature,
            np.array(self._group, dtype=np.int64),
            np.array(self._numbers, dtype=np.float64).reshape(len(self._group), self._axes),
            np.array(self._codes, dtype=np.uint64),
            np.frombuffer(self._defaulted, dtype=np.bool_),
        )


def _as_stored(feature: Feature) -> Value | None:
    """The default as a record gives it back: floats have 32 bits there."""
    if feature.type != "float" or feature.default is None:
        return feature.default
    stored = np.float32(feature.default).tolist()  # type: ignore[arg-type]
    return tuple(stored) if isinstance(stored, list) else float(stored)


def sample_of(
    groups: Iterable[QueryGroup], features: Iterable[Feature], drawn_from: int, known: Mapping[int, str]
) -> Sample:
    """The columns of sampled groups, the groups' sizes among them under the name of ITEMS.

    drawn_from: the groups that these were sampled from. known: code -> value, of further values that may be shown.
    Errors: KeyError when a group lacks one of the features.
    """
    builders = {feature.name: _ColumnBuilder(feature) for feature in (*features, ITEMS)}
    at = {level: [n for n, b in builders.items() if b.feature.level == level] for level in ("context", "item")}
    names = dict(known)
    count = 0
    for group in groups:
        context = {**group.context, ITEMS.name: len(group.items)}
        for name in at["context"]:
            builders[name].add(count, context[name], names)
        for name in at["item"]:
            builder = builders[name]
            for item in group.items:
                builder.add(count, item[name], names)
        count += 1
    return Sample(count, drawn_from, {name: builder.build() for name, builder in builders.items()}, names)
