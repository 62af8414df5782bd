"""Attributes one request's interactions to its shown items. Pure: no Beam.

Every event gets exactly one fate, so that the counts of a job reconcile:
used, duplicate, late, unmatched, malformed or capped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from beam_jobs.sources.native_log import INTERACTIONS, REFUND, Event, is_identifier, is_position
from features.values import describe_type

FATES = ("used", "duplicate", "late", "unmatched", "malformed", "capped")
SKIPPED = "skipped"  # fate of an event that the dataset does not use; it does not count as read


class LoggedEvent(NamedTuple):
    """An event and the line it was read from. parts: the records of an impression that was assembled from several."""

    event: Event
    line: bytes
    parts: tuple["LoggedEvent", ...] = ()


class Fate(NamedTuple):
    """The fate of one event. reason: empty for events without a dead letter."""

    logged: LoggedEvent
    fate: str  # one of FATES, or SKIPPED
    reason: str = ""
    detail: str = ""


class Request(NamedTuple):
    """One request's events, from a log reader.

    reader_fates: fates that the reader decided, before attribution. notes: tally names to count once each.
    """

    logged: Sequence[LoggedEvent]
    reader_fates: Sequence[Fate] = ()
    notes: tuple[str, ...] = ()


class ShownItems(NamedTuple):
    """An impression's usable items as three aligned columns, sorted by position."""

    ids: Sequence[str] = ()
    positions: Sequence[int] = ()
    contents: Sequence[Any] = ()  # as `read_items` returned them


class ItemRefusal(NamedTuple):
    """Why an item cannot be used. reason: a stable name; detail: human-readable."""

    reason: str
    detail: str


class RefusedItem(NamedTuple):
    """One item of the impression that cannot be used."""

    reason: str
    detail: str
    raw: dict[str, Any]


class ReadImpression(NamedTuple):
    """An impression's items, read."""

    items: ShownItems
    capped: frozenset[str]  # ids beyond max_items
    refused: list[RefusedItem]
    without_positions: bool = False  # no item has a position: the items' order is used


class Attribution(NamedTuple):
    """The result for one request. impression is None when the request gives no query group."""

    impression: Event | None
    items: ShownItems
    interacted: dict[str, set[str]]  # interaction type -> ids of the items that have one
    fates: list[Fate]
    refused_items: list[RefusedItem]
    items_capped: int
    without_positions: bool = False  # positions were taken from the items' order


class AttributionRules(NamedTuple):
    """windows_ms: interaction type -> attribution window in milliseconds after the impression."""

    windows_ms: Mapping[str, int]
    min_items: int
    max_items: int


ReadItems = Callable[[Sequence[str], Sequence[dict[str, Any]]], Sequence[Any]]
"""(item ids, raw items) -> each item's content, or an ItemRefusal."""


def attribute(logged: Iterable[LoggedEvent], rules: AttributionRules, read_items: ReadItems) -> Attribution:
    """Attributes one request's interactions to its first impression.

    logged: all events of the request; the result does not depend on their order.
    read_items: returns items' contents or refusals.
    """
    events, fates = split_duplicates(logged)
    interactions = [entry for entry in events if entry.event.type != "impression"]
    impressions = [entry for entry in events if entry.event.type == "impression"]
    nothing: dict[str, set[str]] = {}
    if not impressions:
        fates += [
            Fate(entry, "unmatched", "unknown_request", "no impression has its request_id") for entry in interactions
        ]
        return Attribution(None, ShownItems(), nothing, fates, [], 0)
    first, fates = impressions[0], fates + _repeats(impressions)
    seen = read_impression(first.event, rules.max_items, read_items)
    if len(seen.items.ids) < rules.min_items:
        detail = f"{len(seen.items.ids)} usable items, expected at least {rules.min_items}"
        fates.append(Fate(first, "malformed", "too_few_items", detail))
        fates += [Fate(entry, "unmatched", "impression_refused", detail) for entry in interactions]
        return Attribution(None, ShownItems(), nothing, fates, seen.refused, 0)
    acted, matched = _matched(interactions, first.event, seen, rules.windows_ms)
    fates += [Fate(first, "used"), *matched]
    return Attribution(first.event, seen.items, acted, fates, seen.refused, len(seen.capped), seen.without_positions)


def refuse_request(result: Attribution, reason: str, detail: str) -> Attribution:
    """Changes the result to that of an unusable impression: no event counts as used."""
    fates = []
    for fate in result.fates:
        if fate.logged.event.type == "impression" and fate.fate == "used":
            fate = Fate(fate.logged, "malformed", reason, detail)
        elif fate.fate == "used":
            fate = Fate(fate.logged, "unmatched", "impression_refused", detail)
        fates.append(fate)
    return Attribution(None, ShownItems(), {}, fates, result.refused_items, 0)


def reject_request(request: Request, fate: str, reason: str) -> Attribution:
    """Gives all events of a request the same `fate`, without dead letters."""
    settled = [entry.logged for entry in request.reader_fates]
    whole = [part for entry in (*request.logged, *settled) for part in (entry.parts or (entry,))]
    return Attribution(None, ShownItems(), {}, [Fate(entry, fate, reason) for entry in whole], [], 0)


def time_order(entry: LoggedEvent) -> tuple[int, str, bytes]:
    """Sort key: the order of a request's events, independent of the order of reading."""
    return entry.event.timestamp_ms, entry.event.event_id, entry.line


def split_duplicates(logged: Iterable[LoggedEvent]) -> tuple[list[LoggedEvent], list[Fate]]:
    """Returns the earliest event of each (type, event id), sorted by time, and the fates of the duplicates.

    Events of different types may share an id: some logs number each type separately.
    """
    ordered = sorted(logged, key=time_order)
    seen: set[tuple[str, str]] = set()
    events: list[LoggedEvent] = []
    fates: list[Fate] = []
    for entry in ordered:
        identity = entry.event.type, entry.event.event_id
        if identity in seen:
            fates.append(Fate(entry, "duplicate"))
        else:
            seen.add(identity)
            events.append(entry)
    return events, fates


def _repeats(impressions: Sequence[LoggedEvent]) -> list[Fate]:
    """Fates of a request's later impressions: duplicates; those that differ get a dead letter."""
    if len(impressions) == 1:
        return []
    first = _identities(impressions[0].event)
    return [
        Fate(entry, "duplicate")
        if _identities(entry.event) == first
        else Fate(entry, "duplicate", "second_impression", "differs from the request's first impression, which is used")
        for entry in impressions[1:]
    ]


def _identities(impression: Event) -> list[str]:
    found = [item.get("item_id") for item in impression.body["items"]]
    return [str(item_id) for item_id in found if is_identifier(item_id)]


def read_impression(impression: Event, max_items: int, read_items: ReadItems) -> ReadImpression:
    """Reads the impression's usable items; keeps the `max_items` with the lowest positions."""
    raw_items = impression.body["items"]
    ids, positions = [raw.get("item_id") for raw in raw_items], [raw.get("position") for raw in raw_items]
    without_positions = len(positions) > 1 and all(position is None for position in positions)
    if None in positions:
        positions = fill_positions(positions)
    refused: list[RefusedItem] = []
    contents = read_items(ids, raw_items) if _are_sound(ids, positions) else None
    if contents is None or ItemRefusal in map(type, contents):
        ids, positions, contents, refused = _item_by_item(raw_items, positions, read_items)
    if positions != sorted(positions):
        order = sorted(range(len(positions)), key=positions.__getitem__)
        ids, positions, contents = ([column[place] for place in order] for column in (ids, positions, contents))
    shown = ShownItems(ids[:max_items], positions[:max_items], contents[:max_items])
    return ReadImpression(shown, frozenset(ids[max_items:]), refused, without_positions)


def fill_positions(positions: Sequence[Any]) -> list[Any]:
    """Fills missing positions (None) where their value is certain.

    If all are None, positions are the items' order. A single None is 0 if no other item has position 0, because
    protobuf's JSON omits zeros. Any other None stays.
    """
    if all(position is None for position in positions):
        return list(range(len(positions)))
    if positions.count(None) == 1 and 0 not in positions:
        return [0 if position is None else position for position in positions]
    return list(positions)


def _are_sound(ids: Sequence[Any], positions: Sequence[Any]) -> bool:
    """Whether all ids are distinct texts and all positions valid: the fast path for most impressions."""
    try:
        texts = all(map(str.strip, ids))
    except TypeError:
        return False
    return (
        texts
        and len(set(ids)) == len(ids)
        and set(map(type, positions)) == {int}
        and min(positions) >= 0
        and max(positions) < 2**31
    )


def _item_by_item(
    raw_items: Sequence[dict[str, Any]], positions: Sequence[Any], read_items: ReadItems
) -> tuple[list[str], list[int], list[Any], list[RefusedItem]]:
    """Returns ids, positions and contents of the usable items, and the refused items."""
    usable: dict[str, tuple[int, Any]] = {}
    refused: list[RefusedItem] = []
    for raw, position in zip(raw_items, positions, strict=True):
        item_id = raw.get("item_id")
        if not is_identifier(item_id):
            refused.append(RefusedItem("item_id_missing", f"item_id is {describe_type(item_id)}, expected text", raw))
            continue
        if not is_position(position):
            reason = "position_missing" if position is None else "position_invalid"
            detail = f"position is {describe_type(position)}, expected a whole number, 0 at the top"
            refused.append(RefusedItem(reason, detail, raw))
            continue
        item_id = str(item_id)
        (content,) = read_items([item_id], [raw])
        if isinstance(content, ItemRefusal):
            refused.append(RefusedItem(*content, raw))
        elif item_id in usable:
            refused.append(RefusedItem("item_shown_twice", "its first showing is used", raw))
        else:
            usable[item_id] = position, content
    places, contents = ([entry[column] for entry in usable.values()] for column in (0, 1))
    return list(usable), places, contents, refused


def _matched(
    interactions: Sequence[LoggedEvent], impression: Event, seen: ReadImpression, windows_ms: Mapping[str, int]
) -> tuple[dict[str, set[str]], list[Fate]]:
    """Returns the items with each interaction type, refunds subtracted, and every interaction's fate, in time order."""
    acted: dict[str, set[str]] = {kind: set() for kind in INTERACTIONS}
    if not interactions:
        return acted, []
    visible = set(seen.items.ids)
    refused = {str(raw_id) for item in seen.refused if is_identifier(raw_id := item.raw.get("item_id"))}
    fates = []
    for entry in interactions:
        event = entry.event
        item_id, delay = str(event.body["item_id"]), event.timestamp_ms - impression.timestamp_ms
        if item_id in seen.capped:
            fate = Fate(entry, "capped", "item_capped", "its item lies beyond max_items")
        elif item_id not in visible:
            reason = "item_refused" if item_id in refused else "item_not_shown"
            fate = Fate(entry, "unmatched", reason, "its item is not among the request's items")
        elif delay < 0:
            fate = Fate(entry, "unmatched", "before_impression", f"{-delay} ms before its impression")
        elif delay > windows_ms[event.type]:
            fate = Fate(entry, "late", "late", f"{delay} ms after its impression, window {windows_ms[event.type]} ms")
        elif event.type == REFUND and item_id not in acted["purchase"]:
            fate = Fate(entry, "unmatched", "no_purchase", "its item had no purchase before the refund")
        else:
            if event.type == REFUND:
                acted["purchase"].remove(item_id)
            else:
                acted[event.type].add(item_id)
            fate = Fate(entry, "used")
        fates.append(fate)
    return acted, fates
