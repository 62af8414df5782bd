"""The pipeline's summary for its driver: counts, statistics and warnings, as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from beam_jobs.joins.log_names import without_rare_names
from beam_jobs.joins.log_warnings import is_misplaced, log_warnings
from beam_jobs.joins.query_groups import DATASET_SPLITS
from beam_jobs.sinks.shard_files import WrittenFile
from beam_jobs.transforms.category_counts import counted_features
from beam_jobs.transforms.counts import Tally
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
