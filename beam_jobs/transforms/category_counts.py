"""Counts categorical values for the manifest. Counts are exact and do not depend on the order of merging.

Beam sums the counts by key, and Top selects a feature's most frequent values. A value may be personal, so it is listed
only if enough distinct users saw it; models learn the listed values and treat all others as one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.combiners import Top

from beam_jobs.joins.query_groups import BuiltGroup
from beam_jobs.transforms.counts import bundle_output
from features.spec import Feature, FeatureSpec

MAX_LISTED_VALUES = 10_000  # per feature, in a manifest
MAX_BUNDLE_VALUES = 100_000  # counted in a bundle before the counts are emitted

Key = tuple[str, str, str]  # split, feature, value
Counted = tuple[int, set[str]]  # count, and distinct users up to the minimum


def counted_features(spec: FeatureSpec) -> tuple[Feature, ...]:
    """Returns the categorical features whose values a manifest may list: all but ids."""
    return tuple(feature for feature in spec if feature.type == "categorical" and feature.role != "id")


def category_counts(groups: Any, spec: FeatureSpec, min_distinct_users: int) -> Any:
    """Lists of query groups -> ((split, feature), [(-count, value), ...]), most frequent first, ties by value."""
    return (
        groups
        | "Count" >> beam.ParDo(CountValues(spec, min_distinct_users)).with_output_types(tuple[Key, Counted])
        | "Sum" >> beam.CombinePerKey(SumCounts(min_distinct_users))
        | "Frequent" >> beam.Filter(lambda entry: len(entry[1][1]) >= min_distinct_users)
        | "ByFeature" >> beam.Map(by_feature).with_output_types(tuple[tuple[str, str], tuple[int, str]])
        | "Commonest" >> Top.SmallestPerKey(MAX_LISTED_VALUES)
    )


def by_feature(entry: tuple[Key, Counted]) -> tuple[tuple[str, str], tuple[int, str]]:
    """-> ((split, feature), (-count, value)): the smallest entry is the most frequent, ties by value."""
    (split, feature, value), (count, _) = entry
    return (split, feature), (-count, value)


class CountValues(beam.DoFn):
    """Lists of query groups -> (split, feature, value) with its count and users, summed over a bundle.

    Without a user id, an item's value counts for its request, because the shop showed it; a context value counts for no
    user, like the text of a query.
    """

    def __init__(self, spec: FeatureSpec, min_distinct_users: int) -> None:
        counted = counted_features(spec)
        self._context = [feature.name for feature in counted if feature.level == "context"]
        self._items = [feature.name for feature in counted if feature.level == "item"]
        self._enough = min_distinct_users

    def start_bundle(self) -> None:
        self._counts: dict[Key, Counted] = {}

    def process(self, groups: Sequence[BuiltGroup]) -> Iterator[tuple[Key, Counted]]:
        for built in groups:
            for name in self._context:
                self._add((built.split, name, str(built.group.context[name])), 1, built.user_id)
            for name in self._items:
                user = built.user_id or f"request {built.group_key}"
                for value, count in Counter(built.group.items[name]).items():
                    self._add((built.split, name, str(value)), count, user)
            if len(self._counts) >= MAX_BUNDLE_VALUES:
                yield from self._counts.items()
                self._counts = {}

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(bundle_output, self._counts.items())

    def _add(self, key: Key, count: int, user: str) -> None:
        before, users = self._counts.setdefault(key, (0, set()))
        if user and len(users) < self._enough:
            users.add(user)
        self._counts[key] = before + count, users


class SumCounts(beam.CombineFn):
    """Counts and users of one value -> their sum, with at most `min_distinct_users` users."""

    def __init__(self, min_distinct_users: int) -> None:
        self._enough = min_distinct_users

    def create_accumulator(self) -> Counted:
        return 0, set()

    def add_input(self, total: Counted, counted: Counted) -> Counted:
        return self.merge_accumulators((total, counted))

    def merge_accumulators(self, several: Iterable[Counted]) -> Counted:
        count, users = 0, set[str]()
        for more, known in several:
            count += more
            users |= known
        return count, set(sorted(users)[: self._enough])

    def extract_output(self, total: Counted) -> Counted:
        return total
