"""Impressions that a log tells in parts, one record an item or a page at a time, put together. Pure: no Beam.

Every part keeps a fate of its own, so that counts reconcile to the records of the log:
a part is used when an item of it is, a duplicate when its items were shown before.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from beam_jobs.attribution import Attribution, Fate, LoggedEvent, Request, without_duplicates
from beam_jobs.logs import QUERY, Event, is_identifier

POSITIONS_FROM_0 = "noted/positions_from_0"  # the note of a list that counts from 0 in a log that counts from 1


def assemble(logged: Iterable[LoggedEvent], position_base: int) -> Request:
    """One request's events with its impressions as one, at the time of the first.

    logged: impressions, interactions and QUERY records; `query` of an impression may be None, and QUERY records may
        list `items`, which are taken as shown where there is no impression.
    position_base: of the log's positions, 0 or 1; a list of base 1 that has a position 0 counts from 0, and is noted.
    """
    events, settled = without_duplicates(logged)
    queries = [entry for entry in events if entry.event.type == QUERY]
    interactions = [entry for entry in events if entry.event.type not in (QUERY, "impression")]
    sources = [entry for entry in events if entry.event.type == "impression"] or _last_with_items(queries)
    if not sources:
        detail = "no impression has its query_id, and it lists no results"
        settled += [Fate(entry, "unmatched", "query_without_impression", detail) for entry in queries]
        return Request(interactions, settled)
    text = _text(sources, queries)
    rest = [entry for entry in queries if entry is not sources[0]]
    if text is None:
        detail = "no record tells the query's text"
        settled += [Fate(entry, "unmatched", "query_unknown", detail) for entry in (*sources, *rest)]
        return Request(interactions, settled)
    parts, others = _by_text(sources, text)
    same, different = _by_text(rest, text)
    if parts[0].event.type != QUERY:  # else that record tells the text already
        parts += [_without_items(entry) for entry in same[:1]]
        same = same[1:]
    settled += [Fate(entry, "duplicate") for entry in same]
    detail = "its request has another query's results"
    settled += [Fate(entry, "unmatched", "other_query_text", detail) for entry in (*others, *different)]
    items, base = _items(parts, position_base)
    notes = (POSITIONS_FROM_0,) if base < position_base else ()
    return Request([_whole(parts, text, items), *interactions], settled, notes)


def fates_of_parts(fate: Fate, result: Attribution) -> list[Fate]:
    """The fates of the records that an impression was put together from. fate: of the impression as a whole."""
    if fate.fate != "used":
        return [
            Fate(part, "unmatched", "impression_refused", fate.detail)
            if part.event.type == QUERY
            else Fate(part, fate.fate, fate.reason, fate.detail)
            for part in fate.logged.parts
        ]
    used = set(result.items.ids)
    refused = {str(raw_id) for item in result.refused_items if is_identifier(raw_id := item.raw.get("item_id"))}
    seen: set[str] = set()
    fates = []
    for part in fate.logged.parts:
        fresh = _ids(part) - seen
        seen |= fresh
        if fresh & used or part.event.type == QUERY:
            fates.append(Fate(part, "used"))
        elif _ids(part) and not fresh:
            fates.append(Fate(part, "duplicate"))
        elif fresh and not fresh & refused:
            fates.append(Fate(part, "capped"))
        else:  # its items' own dead letters say why
            fates.append(Fate(part, "malformed"))
    return fates


def _last_with_items(queries: Sequence[LoggedEvent]) -> list[LoggedEvent]:
    return [entry for entry in queries if entry.event.body["items"]][-1:]


def _text(sources: Sequence[LoggedEvent], queries: Sequence[LoggedEvent]) -> str | None:
    """The text that most parts tell; where none does, that of the last QUERY record before the first part."""
    told = Counter(text for entry in sources if (text := entry.event.body["query"]) is not None)
    if told:
        return str(max(told, key=lambda text: told[text]))  # of equals the first that was told
    texts = [entry for entry in queries if entry.event.body["query"] is not None]
    before = [entry for entry in texts if entry.event.timestamp_ms <= sources[0].event.timestamp_ms]
    chosen = [str(entry.event.body["query"]) for entry in before[-1:] or texts[:1]]
    return chosen[0] if chosen else None


def _by_text(entries: Sequence[LoggedEvent], text: str) -> tuple[list[LoggedEvent], list[LoggedEvent]]:
    """Those that tell this text or none, and those that tell another."""
    told = [(entry, entry.event.body["query"] in (None, text)) for entry in entries]
    return [entry for entry, same in told if same], [entry for entry, same in told if not same]


def _without_items(entry: LoggedEvent) -> LoggedEvent:
    """A QUERY record that tells the text alone, since impressions tell the items."""
    return entry._replace(event=entry.event._replace(body={**entry.event.body, "items": []}))


def _items(parts: Sequence[LoggedEvent], position_base: int) -> tuple[list[dict[str, Any]], int]:
    """The items of all parts, each as it was first shown, with positions from 0; and the base that they had."""
    shown: dict[str, dict[str, Any]] = {}
    without_id = []
    for part in parts:
        for item in part.event.body["items"]:
            if is_identifier(item.get("item_id")):
                shown.setdefault(str(item["item_id"]), item)
            else:
                without_id.append(item)
    items = [*shown.values(), *without_id]
    base = 0 if any(item["position"] == 0 for item in items) else position_base
    return [{**item, "position": item["position"] - base} for item in items], base


def _whole(parts: Sequence[LoggedEvent], text: str, items: list[dict[str, Any]]) -> LoggedEvent:
    first = parts[0].event
    told = [part.event.body for part in reversed(parts)]  # so that earlier parts prevail
    features = {name: value for body in told for name, value in (body.get("features") or {}).items()}
    locale = next((part.event.body["locale"] for part in parts if part.event.body.get("locale")), "")
    user = next((part.event.user_id for part in parts if part.event.user_id), "")
    body = {"query": text, "items": items, "features": features, "locale": locale}
    return LoggedEvent(
        Event("impression", first.event_id, first.timestamp_ms, first.request_id, user, body), b"", tuple(parts)
    )


def _ids(part: LoggedEvent) -> set[str]:
    found = (item.get("item_id") for item in part.event.body["items"])
    return {str(item_id) for item_id in found if is_identifier(item_id)}
