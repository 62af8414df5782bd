"""Builds the dataset manifest from a job's summary, or refuses the dataset. Pure: no Beam."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from beam_jobs.joins.dataset_options import DatasetOptions, Limits
from beam_jobs.joins.log_warnings import timestamp_faults
from beam_jobs.joins.showings import POSITIONS_FROM_0
from beam_jobs.sources.inputs import DatasetInputs, missing_day_warnings
from beam_jobs.sources.log_readers import READERS
from beam_jobs.sources.native_log import EVENT_TYPES, INTERACTIONS, QUERY, REFUND, UNKNOWN
from beam_jobs.transforms.counts import Tally
from features.errors import InputError
from features.manifest import DatasetManifest, EventCounts, SplitStatistics

_GUIDE = "see docs/log-troubleshooting.md"


def make_dataset_manifest(found: Mapping[str, Any], inputs: DatasetInputs) -> DatasetManifest:
    """Builds the dataset manifest. found: the pipeline's summary.

    Errors: InputError when there is nothing to rank, or a limit is exceeded; RuntimeError when counts do not reconcile.
    """
    tally: Tally = Counter(found["tally"])
    events = event_counts(tally)
    # not strict: JSON has lists where vector statistics are tuples
    splits = {split: SplitStatistics.model_validate(entry, strict=False) for split, entry in found["splits"].items()}
    check_any_group(events, tally, sum(split.groups for split in splits.values()))
    check_unclicked_items(tally)
    check_limits(inputs.options.limits, events, tally)
    missing = missing_day_warnings(inputs.missing)
    return DatasetManifest(
        stage_key=inputs.key,
        task=inputs.task,
        options=inputs.resolved(),
        features=inputs.spec.to_json(),
        fingerprint=inputs.spec.fingerprint,
        splits=splits,
        events=events,
        skipped=_group(tally, "skipped"),
        refused=_group(tally, "refused"),
        ignored=_group(tally, "ignored"),
        warnings=(*found["warnings"], *missing, *job_warnings(tally, inputs.options)),
    )


def event_counts(tally: Tally) -> dict[str, EventCounts]:
    """Returns the counts by event type. Errors: RuntimeError when they do not reconcile."""
    kinds = [*EVENT_TYPES, *([QUERY] if tally[f"read/{QUERY}"] else []), UNKNOWN]
    events = {
        kind: EventCounts(**{fate: tally[f"{fate}/{kind}"] for fate in EventCounts.model_fields}) for kind in kinds
    }
    for kind, counts in events.items():
        if not counts.reconciles:
            raise RuntimeError(f"{kind} events do not reconcile: {counts!r}; a fault of the job, not of the logs")
    return events


def check_any_group(events: dict[str, EventCounts], tally: Tally, groups: int) -> None:
    """Errors: InputError with the reason when the logs give no query group."""
    if groups:
        return
    why = f"refused: {_in_words(_group(tally, 'refused'))}; skipped: {_in_words(_group(tally, 'skipped'))}"
    why = "; ".join([why, *timestamp_faults(tally)])
    if not sum(counts.read for counts in events.values()):
        raise InputError(f"the logs hold no event that this dataset asks for ({why}); {_GUIDE}")
    if not any(counts.read for kind, counts in events.items() if kind in ("impression", QUERY)):
        raise InputError(f"the logs hold no impression, so no query group ({why}); {_GUIDE}")
    raise InputError(f"no impression in the logs makes a query group ({why}); {_GUIDE}")


def check_unclicked_items(tally: Tally) -> None:
    """Errors: InputError when every item has an interaction: the log must lack the items that have none."""
    if tally["noted/items"] and tally["noted/items"] == tally["noted/items_acted_on"]:
        raise InputError(
            f"all {tally['noted/items']} items shown in the logs were clicked, added or bought: such logs hold only "
            "what shoppers acted on, so there is nothing to rank it above. Log every item that a request showed; "
            f"{_GUIDE}"
        )


def check_limits(limits: Limits, events: dict[str, EventCounts], tally: Tally) -> None:
    """Errors: InputError when more was lost than dataset.limits allow."""
    lines = sum(counts.read for counts in events.values()) + sum(_group(tally, "skipped").values())
    acts = [events[kind] for kind in (*INTERACTIONS, REFUND)]
    read = sum(counts.read for counts in acts)
    shares = {
        "malformed": (tally["unreadable"], lines, "lines cannot be read"),
        "late": (sum(counts.late for counts in acts), read, "interactions are late"),
        "unmatched": (sum(counts.unmatched for counts in acts), read, "interactions match no impression"),
        "capped": (sum(counts.capped for counts in acts), read, "interactions are capped"),
    }
    refused = _in_words(_group(tally, "refused"))
    for name, limit in limits.model_dump().items():
        lost, of, what = shares[name]
        if lost > limit * of:
            raise InputError(
                f"{lost} of {of} {what} ({lost / of:.1%}), above dataset.limits.{name} {limit:g} "
                f"({'; '.join([f'refused: {refused}', *timestamp_faults(tally)])}). Correct the logs, or raise the "
                "limit"
            )


def job_warnings(tally: Tally, options: DatasetOptions) -> Iterator[str]:
    """Yields warnings about the whole job, one sentence each; splits have their own."""
    if lists := tally[POSITIONS_FROM_0]:
        base = READERS[options.reader].position_base
        yield f"{lists} lists have positions from 0, where reader {options.reader!r} expects {base}: taken as from 0"
    if groups := tally["noted/hot_query_groups"]:
        yield f"{groups} groups of queries with more than {options.max_groups_per_query} groups were left out"
    if bots := tally["refused/bot"]:
        yield f"{bots} events of users with more than {options.max_requests_per_hour} requests in an hour were left out"
    locales = _group(tally, "locale")
    if len(locales) > 1 and not options.locale:
        most = ", ".join(f"{name} {count}" for name, count in Counter(locales).most_common(5))
        yield f"groups of {len(locales)} locales ({most}) are in one dataset: {{locale}} in --output gives each its own"


def _group(tally: Tally, group: str) -> dict[str, int]:
    """Returns the counts named 'group/<name>', by name."""
    prefix = f"{group}/"
    return {name.removeprefix(prefix): count for name, count in sorted(tally.items()) if name.startswith(prefix)}


def _in_words(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in counts.items()) or "none"
