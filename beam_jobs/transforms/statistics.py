"""Statistics of one split: mergeable tallies of bounded size. Pure: no Beam."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_jobs.label_lookalikes import LabelSample
from beam_jobs.query_groups import BuiltGroup
from features.manifest import FeatureStatistics, SplitStatistics
from features.spec import Feature, FeatureSpec
from features.values import Value

Floats = NDArray[np.float64]

MOST_VALUES = 10_000  # categorical values that a manifest lists
_VALUES_HELD = 100_000  # categorical values counted at a time; beyond it the rarest are forgotten


class FeatureTally:
    """One feature's running statistics."""

    def __init__(self, feature: Feature) -> None:
        self.feature = feature
        self.count = 0
        self.missing = 0
        # of numbers, one of each element: float64 [length]
        self.minimum = np.full(feature.length, np.inf)
        self.maximum = np.full(feature.length, -np.inf)
        self.mean = np.zeros(feature.length)
        self.squares = np.zeros(feature.length)  # sum of squared deviations from the mean
        self.numbers = 0
        self.longest = 0
        self.values: Counter[str] = Counter()

    def add(self, column: Sequence[Value] | Floats) -> None:
        """A column of this feature's values; of numbers it may be an array [n] or [n, length]."""
        self.count += len(column)
        if not len(column):
            return
        if self.feature.type == "bool" and isinstance(column, list):
            column = np.frombuffer(bytes(column), dtype=np.uint8)  # numpy takes its time with Python's own
        if self.feature.is_numeric:
            self._add_numbers(np.asarray(column, dtype=np.float64).reshape(len(column), -1))
        elif self.feature.is_text:
            self.longest = max(self.longest, max(map(len, column)))
        else:
            self.values.update(column)  # type: ignore[arg-type]
            self._forget_rare_values()

    def _add_numbers(self, numbers: Floats) -> None:
        mean = numbers.mean(axis=0)
        self._merge_moments(len(numbers), mean, np.square(numbers - mean).sum(axis=0))
        self.minimum = np.minimum(self.minimum, numbers.min(axis=0))
        self.maximum = np.maximum(self.maximum, numbers.max(axis=0))

    def _merge_moments(self, numbers: int, mean: Floats, squares: Floats) -> None:
        # Chan, Golub and LeVeque 1979: no cancellation, whatever the order of merging
        total = self.numbers + numbers
        if not total:
            return
        difference = mean - self.mean
        self.squares = self.squares + squares + difference * difference * self.numbers * numbers / total
        self.mean = self.mean + difference * numbers / total
        self.numbers = total

    def _forget_rare_values(self) -> None:
        if len(self.values) > _VALUES_HELD:
            self.values = Counter(dict(self.values.most_common(_VALUES_HELD // 2)))

    def merge(self, other: "FeatureTally") -> None:
        self.count += other.count
        self.missing += other.missing
        self._merge_moments(other.numbers, other.mean, other.squares)
        self.minimum = np.minimum(self.minimum, other.minimum)
        self.maximum = np.maximum(self.maximum, other.maximum)
        self.longest = max(self.longest, other.longest)
        self.values.update(other.values)
        self._forget_rare_values()

    def to_statistics(self) -> FeatureStatistics:
        numbers: dict[str, Any] = {}
        if self.numbers:
            deviation = np.sqrt(self.squares / self.numbers)
            found = {"minimum": self.minimum, "maximum": self.maximum, "mean": self.mean, "deviation": deviation}
            numbers = {name: tuple(n.tolist()) if len(n) > 1 else float(n[0]) for name, n in found.items()}
        listed = sorted(self.values.items(), key=lambda entry: (-entry[1], entry[0]))[:MOST_VALUES]
        return FeatureStatistics(
            count=self.count,
            missing=self.missing,
            longest=self.longest if self.feature.is_text else None,
            values=dict(listed) if self.feature.type == "categorical" else None,
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
        self.items_capped = 0
        self.sample = LabelSample(spec)

    def add(self, groups: Sequence[BuiltGroup]) -> None:
        """Adds groups of the split, one at least: numpy is slow on one and fast on many."""
        label = self.spec.label.name
        self.groups += len(groups)
        self.items += sum(built.group.count for built in groups)
        self.groups_with_label += sum(any(built.group.items[label]) for built in groups)
        self.positions_have_gaps += sum(built.positions_have_gaps for built in groups)
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
        """What a person should look at, a sentence each."""
        if not self.groups:
            yield f"split {split} has no query group: too few distinct queries, or its share in dataset.splits is 0"
        for name, items in sorted(self.stamped_later.items()):
            if self.spec[name].role == "regular":
                yield (
                    f"regular feature {name!r} of {items} items in {split} comes from product rows stamped after the "
                    "impression: it may tell what happened later. Log it with the impression"
                )
        if self.positions_have_gaps:
            yield (
                f"{self.positions_have_gaps} of {self.groups} groups in {split} have positions other than 0, 1, 2, "
                "...: gaps, repeats, or another base than 0"
            )
        if self.items_capped:
            yield f"{self.items_capped} items in {split} lay beyond dataset.max_items and were left out"
        if split == "train":
            yield from self.sample.warnings()
