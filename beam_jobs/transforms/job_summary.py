"""The pipeline's summary for its driver: counts, statistics and warnings, as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam
import orjson

from beam_jobs.joins.log_names import without_rare_names
from beam_jobs.joins.log_warnings import is_misplaced, log_warnings
from beam_jobs.joins.query_groups import DATASET_SPLITS, BuiltGroup
from beam_jobs.sinks.shard_files import WrittenFile
from beam_jobs.transforms.category_counts import counted_features
from beam_jobs.transforms.counts import SumTallies, Tally
from beam_jobs.transforms.statistics import SplitTally
from features.spec import FeatureSpec


def job_summary(
    splits: Mapping[str, Any],
    tally: Tally,
    written: Iterable[WrittenFile],
    values: Mapping[tuple[str, str], Sequence[tuple[int, str]]],
    spec: FeatureSpec,
) -> bytes:
    """Returns counts, statistics, warnings and files as JSON.

    values: of each split's categorical features, as `category_counts` returns them.
    """
    misplaced = [name for name in tally if is_misplaced(name.removeprefix("ignored/"), spec)]
    tally = without_rare_names(tally, misplaced)
    whole = {split: splits.get(split) or statistics_and_warnings(split, SplitTally(spec)) for split in DATASET_SPLITS}
    warnings = [*log_warnings(tally, spec), *(text for _, found in whole.values() for text in found)]
    for feature in counted_features(spec):
        for split, (statistics, _) in whole.items():
            of_feature = statistics["features"][feature.name]
            of_feature["values"] = {value: -count for count, value in values.get((split, feature.name), ())}
            if split == "train" and of_feature["count"] and not of_feature["values"]:
                warnings.append(
                    f"no value of categorical feature {feature.name!r} in train is of enough distinct users "
                    "(dataset.min_distinct_users), so models cannot tell its values apart: log user_id, or lower it"
                )
    return orjson.dumps(
        {
            "tally": dict(tally),
            "splits": {split: statistics for split, (statistics, _) in whole.items()},
            "warnings": warnings,
            "written": [tuple(file) for file in written],
        }
    )


def statistics_and_warnings(split: str, tally: SplitTally) -> tuple[dict[str, Any], list[str]]:
    """Returns a split's statistics and warnings."""
    return tally.to_statistics().model_dump(), list(tally.warnings(split))


class SplitStatisticsFn(beam.CombineFn):
    """Lists of query groups -> SplitTally."""

    def __init__(self, spec: FeatureSpec) -> None:
        self._spec = spec

    def create_accumulator(self) -> SplitTally:
        return SplitTally(self._spec)

    def add_input(self, tally: SplitTally, groups: Sequence[BuiltGroup]) -> SplitTally:
        tally.add(groups)
        return tally

    def merge_accumulators(self, tallies: Iterable[SplitTally]) -> SplitTally:
        merged = SplitTally(self._spec)
        for tally in tallies:
            merged.merge(tally)
        return merged

    def extract_output(self, tally: SplitTally) -> SplitTally:
        return tally


def by_split(groups: Iterable[BuiltGroup]) -> Iterable[tuple[str, list[BuiltGroup]]]:
    """Groups by split."""
    found: dict[str, list[BuiltGroup]] = {}
    for built in groups:
        found.setdefault(built.split, []).append(built)
    return found.items()


def split_statistics(groups: Any, spec: FeatureSpec) -> Any:
    """Groups -> (split, (statistics, warnings)) as JSON values, for each split that has groups."""
    return (
        groups
        | "BySplit" >> beam.FlatMap(by_split)
        | "Statistics" >> beam.CombinePerKey(SplitStatisticsFn(spec))
        | "ToJson" >> beam.MapTuple(lambda split, tally: (split, statistics_and_warnings(split, tally)))
    )


def total(tallies: Any) -> Any:
    """Tallies -> their sum."""
    return tallies | beam.CombineGlobally(SumTallies())
