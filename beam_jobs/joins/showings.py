"""Assembles impressions that a log stores in parts: one record per item or page. Pure: no Beam.

Every part has its own fate, so that counts reconcile with the log's records: a part is used when one of its items is
used, and a duplicate when its items were shown before.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from beam_jobs.joins.attribution import Attribution, Fate, LoggedEvent, Request, split_duplicates
from beam_jobs.sources.native_log import QUERY, Event, is_identifier

POSITIONS_FROM_0 = "noted/positions_from_0"  # tally name: a list has positions from 0 in a log with base 1


def assemble(logged: Iterable[LoggedEvent], position_base: int) -> Request:
    """Merges one request's impressions into one, at the time of the first.

    logged: impressions, interactions and QUERY records. An impression's `query` may be None. A QUERY record may list
        `items`; they count as shown if there is no impression.
    position_base: of the log's positions, 0 or 1. A list with a position 0 has base 0 in any log; this is noted.
    """
    events, settled = split_duplicates(logged)
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
    if parts[0].event.type != QUERY:  # a QUERY record has the text already
        parts += [_without_items(entry) for entry in same[:1]]
        same = same[1:]
    settled += [Fate(entry, "duplicate") for entry in same]
    detail = "its request has another query's results"
    settled += [Fate(entry, "unmatched", "other_query_text", detail) for entry in (*others, *different)]
    items, base = _items(parts, position_base)
    notes = (POSITIONS_FROM_0,) if base < position_base else ()
    return Request([_whole(parts, text, items), *interactions], settled, notes)


def fates_of_parts(fate: Fate, result: Attribution) -> list[Fate]:
    """Returns the fates of an assembled impression's records. fate: of the whole impression."""
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
        else:  # the dead letters of its items give the reason
            fates.append(Fate(part, "malformed"))
    return fates


def _last_with_items(queries: Sequence[LoggedEvent]) -> list[LoggedEvent]:
    return [entry for entry in queries if entry.event.body["items"]][-1:]


def _text(sources: Sequence[LoggedEvent], queries: Sequence[LoggedEvent]) -> str | None:
    """The query text of most parts; if no part has one, that of the last QUERY record before the first part."""
    texts_of_parts = Counter(text for entry in sources if (text := entry.event.body["query"]) is not None)
    if texts_of_parts:
        return str(max(texts_of_parts, key=lambda text: texts_of_parts[text]))  # ties: the first
    texts = [entry for entry in queries if entry.event.body["query"] is not None]
    before = [entry for entry in texts if entry.event.timestamp_ms <= sources[0].event.timestamp_ms]
    chosen = [str(entry.event.body["query"]) for entry in before[-1:] or texts[:1]]
    return chosen[0] if chosen else None


def _by_text(entries: Sequence[LoggedEvent], text: str) -> tuple[list[LoggedEvent], list[LoggedEvent]]:
    """Splits entries into those with this text or none, and those with another text."""
    matches = [(entry, entry.event.body["query"] in (None, text)) for entry in entries]
    return [entry for entry, same in matches if same], [entry for entry, same in matches if not same]


def _without_items(entry: LoggedEvent) -> LoggedEvent:
    """A QUERY record with its text only, because the impressions have the items."""
    return entry._replace(event=entry.event._replace(body={**entry.event.body, "items": []}))


def _items(parts: Sequence[LoggedEvent], position_base: int) -> tuple[list[dict[str, Any]], int]:
    """Returns the items of all parts, each from its first showing, with positions from 0; and their original base."""
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
    bodies = [part.event.body for part in reversed(parts)]  # so that earlier parts win
    features = {name: value for body in bodies for name, value in (body.get("features") or {}).items()}
    locale = next((part.event.body["locale"] for part in parts if part.event.body.get("locale")), "")
    user = next((part.event.user_id for part in parts if part.event.user_id), "")
    body = {"query": text, "items": items, "features": features, "locale": locale}
    return LoggedEvent(
        Event("impression", first.event_id, first.timestamp_ms, first.request_id, user, body), b"", tuple(parts)
    )


def _ids(part: LoggedEvent) -> set[str]:
    found = (item.get("item_id") for item in part.event.body["items"])
    return {str(item_id) for item_id in found if is_identifier(item_id)}
