"""Compares two datasets or two views: every difference with its limit, and whether it is drift. Pure: no Beam."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from beam_jobs.drift.feature_pairs import ComparisonSide, FeaturePair, feature_tests
from beam_jobs.drift.thresholds import ComparisonOptions


@dataclass(frozen=True)
class Finding:
    """One difference of one feature.

    kind: a field of Thresholds, differing_groups or leaked. threshold: None if the finding is not judged.
    chance: the bound for two datasets of one source. a, b: the figures of both sides, if any.
    """

    feature: str
    kind: str
    of: str
    value: float
    threshold: float | None
    chance: float = 0.0
    a: float | None = None
    b: float | None = None

    @property
    def limit(self) -> float:
        return math.inf if self.threshold is None else max(self.threshold, self.chance)

    @property
    def is_drift(self) -> bool:
        return self.value > self.limit

    @property
    def severity(self) -> float:
        """The value as a multiple of its limit."""
        if self.limit == 0:
            return math.inf if self.value else 0.0
        return self.value / self.limit


def feature_pairs(a: ComparisonSide, b: ComparisonSide) -> list[FeaturePair]:
    """Pairs of the features that both sides have, in the order of a."""
    columns, others = a.sample.columns, b.sample.columns
    return [FeaturePair(a, b, column, others[name]) for name, column in columns.items() if name in others]


def compare(pairs: Iterable[FeaturePair], options: ComparisonOptions) -> list[Finding]:
    """All findings of all pairs; for a vector only the most severe element of each kind."""
    tests = [test for pair in pairs for test in feature_tests(pair)]
    limits = [options.limit(test.feature.name, test.kind) for test in tests]
    alpha = options.false_alarms / max(1, sum(limit is not None for limit in limits))  # Bonferroni
    furthest: dict[tuple[str, str, str], Finding] = {}
    for (feature, kind, run), limit in zip(tests, limits, strict=True):
        measure, of, a, b = run(alpha)
        found = Finding(feature.name, kind, of, measure.value, limit, measure.chance, a, b)
        key = (feature.name, kind, "" if feature.length > 1 else of)
        if key not in furthest or found.severity > furthest[key].severity:
            furthest[key] = found
    return list(furthest.values())


def skew_findings(skew: Mapping[str, Any], groups: int) -> list[Finding]:
    """Findings from `ViewSkew.to_json`; the limit is 0 because views may not differ. groups: number in a view."""
    found = [
        Finding(feature, "differing_groups", f"{count} groups or more" if count else "", count / groups, 0.0)
        for feature, count in skew["differing"].items()
    ]
    return found + [
        Finding(feature, "leaked", f"in {count} groups of the serving view", count / groups, 0.0)
        for feature, count in skew["leaked"].items()
    ]
