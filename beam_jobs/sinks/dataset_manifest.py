"""What a job found -> the dataset's manifest, or why there is none: nothing to rank, too much lost. Pure: no Beam."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from beam_jobs.assembly import POSITIONS_FROM_0
from beam_jobs.counting import Tally
from beam_jobs.log_readers import READERS
from beam_jobs.logs import EVENT_TYPES, INTERACTIONS, QUERY, REFUND, UNKNOWN
from beam_jobs.options import DatasetOptions, Limits
from features.errors import InputError
from features.manifest import DatasetManifest, EventCounts, SplitStatistics
from features.spec import FeatureSpec

GUIDE = "see docs/logs.md"


def manifest_of(
    found: Mapping[str, Any], spec: FeatureSpec, options: DatasetOptions, stage_key: str, resolved: dict[str, Any]
) -> DatasetManifest:
    """The dataset's manifest from what the pipeline found. resolved: the job's options, for the manifest.

    Errors: InputError when there is nothing to rank, or a limit is exceeded; RuntimeError when counts do not reconcile.
    """
    tally: Tally = Counter(found["tally"])
    events = event_counts(tally)
    # strict would refuse JSON's lists where the statistics of vectors are tuples
    splits = {split: SplitStatistics.model_validate(entry, strict=False) for split, entry in found["splits"].items()}
    refuse_empty(events, tally, sum(split.groups for split in splits.values()))
    refuse_clicked_only(tally)
    refuse_beyond(options.limits, events, tally)
    return DatasetManifest(
        stage_key=stage_key,
        options=resolved,
        features=spec.to_json(),
        fingerprint=spec.fingerprint,
        splits=splits,
        events=events,
        skipped=_group(tally, "skipped"),
        refused=_group(tally, "refused"),
        warnings=(*found["warnings"], *job_warnings(tally, options)),
    )


def event_counts(tally: Tally) -> dict[str, EventCounts]:
    """Type of event -> its counts. Errors: RuntimeError when they do not reconcile."""
    kinds = [*EVENT_TYPES, *([QUERY] if tally[f"read/{QUERY}"] else []), UNKNOWN]
    events = {
        kind: EventCounts(**{fate: tally[f"{fate}/{kind}"] for fate in EventCounts.model_fields}) for kind in kinds
    }
    for kind, counts in events.items():
        if not counts.reconciles:
            raise RuntimeError(f"{kind} events do not reconcile: {counts!r}; a fault of the job, not of the logs")
    return events


def refuse_empty(events: dict[str, EventCounts], tally: Tally, groups: int) -> None:
    """Errors: InputError when the logs make no query group, saying why."""
    if groups:
        return
    why = f"refused: {_in_words(_group(tally, 'refused'))}; skipped: {_in_words(_group(tally, 'skipped'))}"
    if not sum(counts.read for counts in events.values()):
        raise InputError(f"the logs hold no event that this dataset asks for ({why}); {GUIDE}")
    if not any(counts.read for kind, counts in events.items() if kind in ("impression", QUERY)):
        raise InputError(f"the logs hold no impression, so no query group ({why}); {GUIDE}")
    raise InputError(f"no impression in the logs makes a query group ({why}); {GUIDE}")


def refuse_clicked_only(tally: Tally) -> None:
    """Errors: InputError when every shown item was acted on: the log cannot hold all that was shown."""
    if tally["noted/items"] and tally["noted/items"] == tally["noted/items_acted_on"]:
        raise InputError(
            f"all {tally['noted/items']} items shown in the logs were clicked, added or bought: such logs hold only "
            "what shoppers acted on, so there is nothing to rank it above. Log every item that a request showed; "
            f"{GUIDE}"
        )


def refuse_beyond(limits: Limits, events: dict[str, EventCounts], tally: Tally) -> None:
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
    for name, limit in limits.model_dump().items():
        lost, of, what = shares[name]
        if lost > limit * of:
            raise InputError(
                f"{lost} of {of} {what} ({lost / of:.1%}), above dataset.limits.{name} {limit:g} "
                f"(refused: {_in_words(_group(tally, 'refused'))}). Correct the logs, or raise the limit"
            )


def job_warnings(tally: Tally, options: DatasetOptions) -> Iterator[str]:
    """What a person should look at beside the splits' own warnings, a sentence each."""
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
    """The counts named 'group/...' by the rest of their names."""
    prefix = f"{group}/"
    return {name.removeprefix(prefix): count for name, count in sorted(tally.items()) if name.startswith(prefix)}


def _in_words(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in counts.items()) or "none"
