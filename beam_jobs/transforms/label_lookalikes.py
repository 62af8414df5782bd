"""Flags regular features that nearly equal the label, on a sample of bounded size.

A feature called `relevance_hint` may be a purchase flag in disguise. Every regular feature is compared with the label
by AUC and correlation; a context feature with "the group has a positive label". Text and categorical values are encoded
as the label's rate on one half of the sample, and evaluated on the other.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from beam_jobs.joins.query_groups import BuiltGroup
from features.spec import Feature, FeatureSpec, Level
from features.values import Value

SAMPLE_SIZE = 2000  # entries per class (label positive or not) and level
_MIN_SAMPLES = 10  # per class; with fewer there is no warning
MAX_AUC = 0.95
MAX_CORRELATION = 0.9

Array = np.ndarray[Any, np.dtype[np.float64]]
Keys = np.ndarray[Any, np.dtype[np.uint64]]
_Bools = np.ndarray[Any, np.dtype[np.bool_]]
_Indices = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]


class LowestKeys:
    """Bottom-k sample: keeps the entries with the lowest keys, whatever the order of the input."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.seen = 0
        self.entries: list[tuple[int, dict[str, Value]]] = []
        self._limit = 2**64 - 1  # larger keys cannot be among the lowest

    def may_hold(self, keys: Keys) -> _Indices:
        """Returns the indices of keys that may be among the lowest, to be added. Counts all keys as seen."""
        self.seen += len(keys)
        return np.flatnonzero(keys <= np.uint64(self._limit))

    def add(self, key: int, values: dict[str, Value]) -> None:
        self.entries.append((key, values))
        if len(self.entries) >= 2 * self.size:
            self._shrink()

    def merge(self, other: "LowestKeys") -> None:
        self.seen += other.seen
        self.entries += other.entries
        self._shrink()

    def _shrink(self) -> None:
        self.entries = sorted(self.entries, key=lambda entry: entry[0])[: self.size]
        if len(self.entries) == self.size:
            self._limit = self.entries[-1][0]

    def values(self) -> list[dict[str, Value]]:
        """Returns the sampled entries, sorted by key."""
        self._shrink()
        return [values for _, values in self.entries]


class LabelSample:
    """Samples of items and of groups, by whether their label is positive."""

    def __init__(self, spec: FeatureSpec) -> None:
        self._label = spec.label.name
        self._features = spec.regular
        self._of_context, self._of_items = (
            [feature.name for feature in spec.at(level, spec.regular)] for level in ("context", "item")
        )
        # even and odd indices are the two halves of a sample, so that every run has the same halves
        self._items = {True: LowestKeys(SAMPLE_SIZE), False: LowestKeys(SAMPLE_SIZE)}
        self._groups = {True: LowestKeys(SAMPLE_SIZE), False: LowestKeys(SAMPLE_SIZE)}

    def add(self, groups: Sequence[BuiltGroup]) -> None:
        counts = np.array([built.group.count for built in groups])
        first, owners = np.cumsum(counts) - counts, np.repeat(np.arange(len(groups)), counts)
        labels = chain.from_iterable([built.group.items[self._label] for built in groups])
        positive = np.fromiter(labels, dtype=bool, count=len(owners))
        keys = np.frombuffer(b"".join([built.order_keys for built in groups]), dtype=">u8")
        for sample, place in _lowest(self._items, keys, positive):
            owner = owners[place]
            sample.add(int(keys[place]), groups[owner].group.item(place - first[owner], self._of_items))
        group_keys = np.array([built.group_key for built in groups], dtype=np.uint64)
        for sample, place in _lowest(self._groups, group_keys, np.logical_or.reduceat(positive, first)):
            context = groups[place].group.context
            sample.add(int(group_keys[place]), {name: context[name] for name in self._of_context})

    def merge(self, other: "LabelSample") -> None:
        for positive in (True, False):
            self._items[positive].merge(other._items[positive])
            self._groups[positive].merge(other._groups[positive])

    def warnings(self) -> Iterator[str]:
        """Yields a warning for each regular feature that nearly equals the label on the training split."""
        for feature in self._features:
            column = self._column(feature, feature.level)
            if column is None:
                continue
            for values, positive, weights in column:
                auc, correlation = area_under_curve(values, positive), weighted_correlation(values, positive, weights)
                if not (1 - MAX_AUC < auc < MAX_AUC and abs(correlation) <= MAX_CORRELATION):
                    what = (
                        f"the label {self._label!r}" if feature.level == "item" else f"a group having a {self._label!r}"
                    )
                    yield (
                        f"regular feature {feature.name!r} nearly equals {what} (AUC {auc:.3f}, correlation "
                        f"{correlation:.3f}): if it is known only afterwards, make its role privileged"
                    )
                    break

    def _column(self, feature: Feature, level: Level) -> list[tuple[Array, Array, Array]] | None:
        sample = self._items if level == "item" else self._groups
        positives, negatives = sample[True].values(), sample[False].values()
        if min(len(positives), len(negatives)) < _MIN_SAMPLES:
            return None
        raw = [entry[feature.name] for entry in (*positives, *negatives)]
        positive = np.repeat([1.0, 0.0], [len(positives), len(negatives)])
        weight = [sample[True].seen / len(positives), sample[False].seen / len(negatives)]
        weights = np.repeat(weight, [len(positives), len(negatives)])
        if not feature.is_numeric:
            rates, judged = label_rates(raw, positive)
            return [(rates, positive[judged], weights[judged])]
        numbers = np.asarray(raw, dtype=np.float64).reshape(len(raw), -1)
        return [(numbers[:, place], positive, weights) for place in range(numbers.shape[1])]


def _lowest(samples: dict[bool, LowestKeys], keys: Keys, positive: _Bools) -> Iterator[tuple[LowestKeys, int]]:
    """Yields (sample, index of the key) for each key that may be among the sample's lowest."""
    for chosen, sample in samples.items():
        places = np.flatnonzero(positive == chosen)
        for place in places[sample.may_hold(keys[places])].tolist():
            yield sample, place


def label_rates(values: Sequence[Value], positive: Array) -> tuple[Array, _Indices]:
    """Target encoding: each odd-indexed value's label rate among the even-indexed ones, 0.5 if it does not occur there.

    Returns the rates and their indices.
    """
    counts: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    hashes = [zlib.crc32(str(value).encode()) for value in values]
    for place in range(0, len(values), 2):
        counts[hashes[place]][0] += positive[place]
        counts[hashes[place]][1] += 1
    judged = np.arange(1, len(values), 2)
    rates = [
        counts[hashes[place]][0] / counts[hashes[place]][1] if hashes[place] in counts else 0.5 for place in judged
    ]
    return np.asarray(rates), judged


def area_under_curve(values: Array, positive: Array) -> float:
    """Area under the ROC curve: the share of (positive, negative) pairs in the right order; ties count one half."""
    ordered = np.sort(values[positive == 0])
    others = values[positive == 1]
    below = np.searchsorted(ordered, others, side="left")
    not_above = np.searchsorted(ordered, others, side="right")
    return float((below + not_above).sum() / (2 * len(ordered) * len(others)))


def weighted_correlation(values: Array, positive: Array, weights: Array) -> float:
    """Weighted Pearson correlation of values and label; 0 when one is constant."""
    share = weights / weights.sum()
    centred = values - (share * values).sum()
    label = positive - (share * positive).sum()
    spread = float(np.sqrt((share * centred**2).sum() * (share * label**2).sum()))
    return float((share * centred * label).sum() / spread) if spread > 0 else 0.0
