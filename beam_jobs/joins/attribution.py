"""Pure functions: one request's impressions and interactions -> which shown items got what. No Beam.

Every event gets exactly one fate, so that the counts of a job reconcile:
used, duplicate, late, unmatched, malformed or capped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from beam_jobs.logs import INTERACTIONS, REFUND, Event, is_identifier, read_position
from features.values import shown

FATES = ("used", "duplicate", "late", "unmatched", "malformed", "capped")
SKIPPED = "skipped"  # what becomes of an event that this dataset does not ask for: it does not count as read


class LoggedEvent(NamedTuple):
    """An event beside the line it was read from. parts: of an impression that the log tells in several records."""

    event: Event
    line: bytes
    parts: tuple["LoggedEvent", ...] = ()


class Fate(NamedTuple):
    """What became of one event. reason: empty for events that need no dead letter."""

    logged: LoggedEvent
    fate: str  # one of FATES, or SKIPPED
    reason: str = ""
    detail: str = ""


class Request(NamedTuple):
    """One request's events, as a reader of logs hands them over.

    settled: fates that need no impression to be known. notes: names that the job shall count once each.
    """

    logged: Sequence[LoggedEvent]
    settled: Sequence[Fate] = ()
    notes: tuple[str, ...] = ()


class ShownItems(NamedTuple):
    """An impression's usable items, by position: what stands at one place of all three is one item's."""

    ids: Sequence[str] = ()
    positions: Sequence[int] = ()
    contents: Sequence[Any] = ()  # what the caller's reader made of them


class Refusal(NamedTuple):
    """Why an item cannot be used. reason: a stable name; detail: for a person."""

    reason: str
    detail: str


class RefusedItem(NamedTuple):
    """One item of the impression that cannot be used."""

    reason: str
    detail: str
    raw: dict[str, Any]


class Shown(NamedTuple):
    """An impression's items."""

    items: ShownItems
    capped: frozenset[str]  # ids beyond max_items
    refused: list[RefusedItem]


class Attribution(NamedTuple):
    """One request's result. impression is None when the request makes no query group."""

    impression: Event | None
    items: ShownItems
    acted: dict[str, set[str]]  # interaction type -> ids of the items that got one
    fates: list[Fate]
    refused_items: list[RefusedItem]
    items_capped: int


class Rules(NamedTuple):
    """windows_ms: interaction type -> milliseconds after the impression that still count."""

    windows_ms: Mapping[str, int]
    min_items: int
    max_items: int


ReadItems = Callable[[Sequence[str], Sequence[dict[str, Any]]], Sequence[Any]]
"""(item ids, raw items) -> for each item its content, or a Refusal."""


def attribute(logged: Iterable[LoggedEvent], rules: Rules, read_items: ReadItems) -> Attribution:
    """What became of one request's events.

    logged: all events of the request, in any order; the result does not depend on it.
    read_items: makes items' contents, or says why an item cannot be used.
    """
    events, fates = without_duplicates(logged)
    interactions = [entry for entry in events if entry.event.type != "impression"]
    impressions = [entry for entry in events if entry.event.type == "impression"]
    nothing: dict[str, set[str]] = {}
    if not impressions:
        fates += [
            Fate(entry, "unmatched", "unknown_request", "no impression has its request_id") for entry in interactions
        ]
        return Attribution(None, ShownItems(), nothing, fates, [], 0)
    first, fates = impressions[0], fates + _repeats(impressions)
    seen = read_shown(first.event, rules.max_items, read_items)
    if len(seen.items.ids) < rules.min_items:
        detail = f"{len(seen.items.ids)} usable items, expected at least {rules.min_items}"
        fates.append(Fate(first, "malformed", "too_few_items", detail))
        fates += [Fate(entry, "unmatched", "impression_refused", detail) for entry in interactions]
        return Attribution(None, ShownItems(), nothing, fates, seen.refused, 0)
    acted, matched = _matched(interactions, first.event, seen, rules.windows_ms)
    fates += [Fate(first, "used"), *matched]
    return Attribution(first.event, seen.items, acted, fates, seen.refused, len(seen.capped))


def refuse_request(result: Attribution, reason: str, detail: str) -> Attribution:
    """The same request when its impression turns out unusable as a whole: nothing of it counts as used."""
    fates = []
    for fate in result.fates:
        if fate.logged.event.type == "impression" and fate.fate == "used":
            fate = Fate(fate.logged, "malformed", reason, detail)
        elif fate.fate == "used":
            fate = Fate(fate.logged, "unmatched", "impression_refused", detail)
        fates.append(fate)
    return Attribution(None, ShownItems(), {}, fates, result.refused_items, 0)


def leave_out(request: Request, fate: str, reason: str) -> Attribution:
    """A request that is not wanted, whatever is in it: all its events get `fate`, and no dead letter."""
    settled = [entry.logged for entry in request.settled]
    whole = [part for entry in (*request.logged, *settled) for part in (entry.parts or (entry,))]
    return Attribution(None, ShownItems(), {}, [Fate(entry, fate, reason) for entry in whole], [], 0)


def in_time(entry: LoggedEvent) -> tuple[int, str, bytes]:
    """The order in which a request's events count, whatever order they were read in."""
    return entry.event.timestamp_ms, entry.event.event_id, entry.line


def without_duplicates(logged: Iterable[LoggedEvent]) -> tuple[list[LoggedEvent], list[Fate]]:
    """The earliest event of each event id, by time, and the fates of the others."""
    ordered = sorted(logged, key=in_time)
    seen: set[str] = set()
    events: list[LoggedEvent] = []
    fates: list[Fate] = []
    for entry in ordered:
        if entry.event.event_id in seen:
            fates.append(Fate(entry, "duplicate"))
        else:
            seen.add(entry.event.event_id)
            events.append(entry)
    return events, fates


def _repeats(impressions: Sequence[LoggedEvent]) -> list[Fate]:
    """The fates of a request's impressions after its first: duplicates, kept as dead letters where they differ."""
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


def read_shown(impression: Event, max_items: int, read_items: ReadItems) -> Shown:
    """The impression's usable items by position, the topmost `max_items` of them."""
    raw_items = impression.body["items"]
    ids, positions = [raw.get("item_id") for raw in raw_items], [raw.get("position") for raw in raw_items]
    refused: list[RefusedItem] = []
    contents = read_items(ids, raw_items) if _are_sound(ids, positions) else None
    if contents is None or Refusal in map(type, contents):
        ids, positions, contents, refused = _item_by_item(raw_items, read_items)
    if positions != sorted(positions):
        order = sorted(range(len(positions)), key=positions.__getitem__)
        ids, positions, contents = ([column[place] for place in order] for column in (ids, positions, contents))
    shown = ShownItems(ids[:max_items], positions[:max_items], contents[:max_items])
    return Shown(shown, frozenset(ids[max_items:]), refused)


def _are_sound(ids: Sequence[Any], positions: Sequence[Any]) -> bool:
    """Whether all ids are distinct texts and all positions numbers, as in most impressions."""
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
    raw_items: Sequence[dict[str, Any]], read_items: ReadItems
) -> tuple[list[str], list[int], list[Any], list[RefusedItem]]:
    """Ids, positions and contents of the usable items, and the others."""
    usable: dict[str, tuple[int, Any]] = {}
    refused: list[RefusedItem] = []
    for raw in raw_items:
        item_id, position = raw.get("item_id"), read_position(raw.get("position"))
        if not is_identifier(item_id):
            refused.append(RefusedItem("item_id_missing", f"item_id is {shown(item_id)}, expected text", raw))
            continue
        if position is None:
            detail = f"position is {shown(raw.get('position'))}, expected a whole number, 0 at the top"
            refused.append(RefusedItem("position_invalid", detail, raw))
            continue
        item_id = str(item_id)
        (content,) = read_items([item_id], [raw])
        if isinstance(content, Refusal):
            refused.append(RefusedItem(*content, raw))
        elif item_id in usable:
            refused.append(RefusedItem("item_shown_twice", "its first showing is used", raw))
        else:
            usable[item_id] = position, content
    positions, contents = ([entry[column] for entry in usable.values()] for column in (0, 1))
    return list(usable), positions, contents, refused


def _matched(
    interactions: Sequence[LoggedEvent], impression: Event, seen: Shown, windows_ms: Mapping[str, int]
) -> tuple[dict[str, set[str]], list[Fate]]:
    """Which items got which interaction, refunds taken back, and every interaction's fate. In the order of time."""
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
            fate = Fate(entry, "unmatched", reason, f"item {item_id!r:.60} is not among the request's items")
        elif delay < 0:
            fate = Fate(entry, "unmatched", "before_impression", f"{-delay} ms before its impression")
        elif delay > windows_ms[event.type]:
            fate = Fate(entry, "late", "late", f"{delay} ms after its impression, window {windows_ms[event.type]} ms")
        elif event.type == REFUND and item_id not in acted["purchase"]:
            fate = Fate(entry, "unmatched", "no_purchase", f"item {item_id!r:.60} had no purchase before the refund")
        else:
            if event.type == REFUND:
                acted["purchase"].remove(item_id)
            else:
                acted[event.type].add(item_id)
            fate = Fate(entry, "used")
        fates.append(fate)
    return acted, fates
