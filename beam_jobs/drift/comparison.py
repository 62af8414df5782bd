"""Two datasets, or two views of one -> every difference with its limit, drift told from chance. Pure: no Beam."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from beam_jobs.comparison_options import ComparisonOptions
from beam_jobs.feature_pairs import Pair, Side, questions


@dataclass(frozen=True)
class Finding:
    """One difference of one feature.

    kind: a field of Thresholds, differing_groups or smuggled. threshold: None where it is shown and never judged.
    chance: what two datasets of one source reach. a, b: the figures behind it, where there are two.
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


def pairs_of(a: Side, b: Side) -> list[Pair]:
    """The features that both sides have, in the order of a's."""
    columns, others = a.sample.columns, b.sample.columns
    return [Pair(a, b, column, others[name]) for name, column in columns.items() if name in others]


def compare(pairs: Iterable[Pair], options: ComparisonOptions) -> list[Finding]:
    """All findings of all pairs; of the elements of a vector, the one that lies furthest beyond its limit."""
    asked = [question for pair in pairs for question in questions(pair)]
    limits = [options.limit(question.feature.name, question.kind) for question in asked]
    alpha = options.false_alarms / max(1, sum(limit is not None for limit in limits))  # Bonferroni
    furthest: dict[tuple[str, str, str], Finding] = {}
    for (feature, kind, ask), limit in zip(asked, limits, strict=True):
        measure, of, a, b = ask(alpha)
        found = Finding(feature.name, kind, of, measure.value, limit, measure.chance, a, b)
        key = (feature.name, kind, "" if feature.length > 1 else of)
        if key not in furthest or found.severity > furthest[key].severity:
            furthest[key] = found
    return list(furthest.values())


def skew_findings(skew: Mapping[str, Any], groups: int) -> list[Finding]:
    """What `ViewSkew.to_json` tells of a dataset's two views, which must not differ in any group. groups: of a view."""
    found = [
        Finding(feature, "differing_groups", f"{count} groups or more" if count else "", count / groups, 0.0)
        for feature, count in skew["differing"].items()
    ]
    return found + [
        Finding(feature, "smuggled", f"in {count} groups of the serving view", count / groups, 0.0)
        for feature, count in skew["smuggled"].items()
    ]
