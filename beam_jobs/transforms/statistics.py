"""Mergeable statistics of one split, of bounded size. Pure: no Beam."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_jobs.joins.query_groups import BuiltGroup
from beam_jobs.transforms.label_lookalikes import LabelSample
from features.manifest import FeatureStatistics, SplitStatistics
from features.spec import Feature, FeatureSpec
from features.values import Value

_Floats = NDArray[np.float64]


class FeatureTally:
    """One feature's running statistics; beam_jobs/transforms/category_counts.py counts categorical values."""

    def __init__(self, feature: Feature) -> None:
        self.feature = feature
        self.count = 0
        self.missing = 0
        # numbers only: float64 [length]
        self.minimum = np.full(feature.length, np.inf)
        self.maximum = np.full(feature.length, -np.inf)
        self.mean = np.zeros(feature.length)
        self.squares = np.zeros(feature.length)  # sum of squared deviations from the mean
        self.numbers = 0
        self.longest = 0

    def add(self, column: Sequence[Value] | _Floats) -> None:
        """Adds a column of values; numbers may come as an array [n] or [n, length]."""
        self.count += len(column)
        if not len(column):
            return
        if self.feature.type == "bool" and isinstance(column, list):
            column = np.frombuffer(bytes(column), dtype=np.uint8)  # much faster than converting Python's bools
        if self.feature.is_numeric:
            self._add_numbers(np.asarray(column, dtype=np.float64).reshape(len(column), -1))
        elif self.feature.is_text:
            self.longest = max(self.longest, max(map(len, column)))

    def _add_numbers(self, numbers: _Floats) -> None:
        mean = numbers.mean(axis=0)
        self._merge_moments(len(numbers), mean, np.square(numbers - mean).sum(axis=0))
        self.minimum = np.minimum(self.minimum, numbers.min(axis=0))
        self.maximum = np.maximum(self.maximum, numbers.max(axis=0))

    def _merge_moments(self, numbers: int, mean: _Floats, squares: _Floats) -> None:
        # Chan, Golub and LeVeque 1979: no cancellation, in any order of merging
        total = self.numbers + numbers
        if not total:
            return
        difference = mean - self.mean
        self.squares = self.squares + squares + difference * difference * self.numbers * numbers / total
        self.mean = self.mean + difference * numbers / total
        self.numbers = total

    def merge(self, other: "FeatureTally") -> None:
        self.count += other.count
        self.missing += other.missing
        self._merge_moments(other.numbers, other.mean, other.squares)
        self.minimum = np.minimum(self.minimum, other.minimum)
        self.maximum = np.maximum(self.maximum, other.maximum)
        self.longest = max(self.longest, other.longest)

    def to_statistics(self) -> FeatureStatistics:
        numbers: dict[str, Any] = {}
        if self.numbers:
            deviation = np.sqrt(self.squares / self.numbers)
            found = {"minimum": self.minimum, "maximum": self.maximum, "mean": self.mean, "deviation": deviation}
            numbers = {name: tuple(n.tolist()) if len(n) > 1 else float(n[0]) for name, n in found.items()}
        return FeatureStatistics(
            count=self.count,
            missing=self.missing,
            longest=self.longest if self.feature.is_text else None,
            **numbers,
        )


class SplitTally:
    """One split's running statistics."""

    def __init__(self, spec: FeatureSpec) -> None:
        self.spec = spec
        self.groups = 0
        self.groups_with_label = 0
        self.items = 0
        self.features = {feature.name: FeatureTally(feature) for feature in spec}
        self.stamped_later: Counter[str] = Counter()
        self.positions_have_gaps = 0
        self.positions_vary = 0
        self.items_capped = 0
        self.sample = LabelSample(spec)

    def add(self, groups: Sequence[BuiltGroup]) -> None:
        """Adds one or more groups of the split; many at a time are faster."""
        label = self.spec.label.name
        self.groups += len(groups)
        self.items += sum(built.group.count for built in groups)
        self.groups_with_label += sum(any(built.group.items[label]) for built in groups)
        self.positions_have_gaps += sum(built.positions_have_gaps for built in groups)
        self.positions_vary += sum(built.positions_vary for built in groups)
        self.items_capped += sum(built.items_capped for built in groups)
        for name, tally in self.features.items():
            if tally.feature.level == "item":
                tally.add(list(chain.from_iterable([built.group.items[name] for built in groups])))
            else:
                tally.add([built.group.context[name] for built in groups])
        for name in chain.from_iterable([built.defaulted for built in groups]):
            self.features[name].missing += 1
        self.stamped_later.update(chain.from_iterable([built.stamped_later for built in groups]))
        if groups[0].split == "train":
            self.sample.add(groups)

    def merge(self, other: "SplitTally") -> None:
        self.groups += other.groups
        self.groups_with_label += other.groups_with_label
        self.items += other.items
        self.stamped_later.update(other.stamped_later)
        self.positions_have_gaps += other.positions_have_gaps
        self.positions_vary += other.positions_vary
        self.items_capped += other.items_capped
        for name, tally in self.features.items():
            tally.merge(other.features[name])
        self.sample.merge(other.sample)

    def to_statistics(self) -> SplitStatistics:
        features = {name: tally.to_statistics() for name, tally in self.features.items()}
        return SplitStatistics(
            groups=self.groups, groups_with_label=self.groups_with_label, items=self.items, features=features
        )

    def warnings(self, split: str) -> Iterable[str]:
        """Yields warnings, one sentence each."""
        if not self.groups:
            yield f"split {split} has no query group: too few distinct queries, or its share in dataset.splits is 0"
        for name, items in sorted(self.stamped_later.items()):
            if self.spec[name].role == "regular":
                yield (
                    f"regular feature {name!r} of {items} items in {split} comes from product rows stamped after the "
                    "impression: it may tell what happened later. Log it with the impression"
                )
        if self.groups and "position" in self.spec and not self.positions_vary:
            position = self.features["position"]
            low, high = float(position.minimum[0]), float(position.maximum[0])
            found = f"is {low:g} for every item" if low == high else "is the same for all items of a group"
            yield (
                f"position {found} in {split}: a teacher that sees it learns nothing from it. Log each item's place, 0 "
                "at the top, or leave the position teacher out"
            )
        elif self.positions_have_gaps:
            yield (
                f"{self.positions_have_gaps} of {self.groups} groups in {split} have positions other than 0, 1, 2, "
                "...: gaps, repeats, or another base than 0"
            )
        if self.items_capped:
            yield f"{self.items_capped} items in {split} lay beyond dataset.max_items and were left out"
        if split == "train":
            yield from self.sample.warnings()
