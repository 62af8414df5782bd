"""Warnings about the logs, one sentence each, from a job's counts. Pure: no Beam."""

from collections import Counter
from collections.abc import Iterator, Mapping

from beam_jobs.joins.log_names import OTHER_NAME
from features.spec import FeatureSpec

WITHOUT_POSITIONS = "noted/lists_without_positions"  # impressions whose items have none
# of types that take more than an s
_NOUNS = {
    "add_to_cart": ("add-to-cart", "add-to-carts"),
    "query": ("query", "queries"),
}
_MAX_LISTED = 10  # names in one sentence
_GUIDE = "see docs/log-fields.md"


def log_warnings(tally: Mapping[str, int], spec: FeatureSpec) -> Iterator[str]:
    """Yields all warnings about the logs."""
    yield from timestamp_faults(tally)
    yield from misplaced_feature_warnings(tally, spec)
    yield from ignored_field_warnings(tally, spec)
    if lists := tally.get(WITHOUT_POSITIONS):
        yield (
            f"{lists:,} impressions have items without positions: positions were taken from the order of the items, 0 "
            "for the first. Log each item's position if the list may stand in another order"
        )


def timestamp_faults(tally: Mapping[str, int]) -> Iterator[str]:
    """'8,000 impressions: timestamp_ms 1741600000 looks like seconds, expected milliseconds since 1970'."""
    counts: Counter[tuple[str, str]] = Counter()
    details: dict[tuple[str, str], list[str]] = {}
    for name, count in tally.items():
        if name.startswith("timestamps/") and name != f"timestamps/{OTHER_NAME}":
            _, kind, reason, detail = name.split("/", 3)
            counts[kind, reason] += count
            details.setdefault((kind, reason), []).append(detail)
    for (kind, reason), count in sorted(counts.items()):
        one, many = _NOUNS.get(kind, (kind, f"{kind}s"))
        yield f"{count:,} {one if count == 1 else many}: {min(details[kind, reason])}"


def misplaced_feature_warnings(tally: Mapping[str, int], spec: FeatureSpec) -> Iterator[str]:
    """Yields a warning for each task feature that is logged beside `features` instead of in it."""
    for name, count in sorted(tally.items()):
        place = name.removeprefix("ignored/")
        if place != name and is_misplaced(place, spec):
            where, _, feature = place.rpartition(".")
            beside, parent = ("item_id", "the item's") if where == "items" else ("query", "the impression's")
            yield (
                f"{count:,} impressions have {feature!r} beside {beside!r}, where it is ignored: put it into {parent} "
                "'features'"
            )


def ignored_field_warnings(tally: Mapping[str, int], spec: FeatureSpec) -> Iterator[str]:
    """Yields a warning that lists the ignored fields, most frequent first."""
    places = {
        name.removeprefix("ignored/"): count
        for name, count in tally.items()
        if name.startswith("ignored/") and not is_misplaced(name.removeprefix("ignored/"), spec)
    }
    if places:
        ordered = sorted(places.items(), key=lambda entry: (-entry[1], entry[0]))
        named = ", ".join(f"{place} {count:,}" for place, count in ordered[:_MAX_LISTED])
        more = f" and {len(places) - _MAX_LISTED} more" if len(places) > _MAX_LISTED else ""
        yield f"fields that no event has are ignored ({named}{more}; field, events); {_GUIDE} for the fields"


def is_misplaced(place: str, spec: FeatureSpec) -> bool:
    """Whether an ignored field has a feature's name and level. place: such as 'items.title'."""
    where, _, name = place.rpartition(".")
    level = {"items": "item", "impression": "context"}.get(where)
    return name in spec and spec[name].level == level
