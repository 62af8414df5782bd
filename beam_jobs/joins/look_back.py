"""Joins events without a request id: an interaction belongs to the last impression that showed its item to its user.

Pure: no Beam. Attribution windows are applied later, in `attribution.attribute`.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from beam_jobs.joins.attribution import Fate, LoggedEvent, Request, split_duplicates
from beam_jobs.joins.showings import assemble
from beam_jobs.sources.native_log import REFUND, is_identifier


class ItemMatch(NamedTuple):
    """An interaction's item, matched to a request. transaction_id: empty where the log has none."""

    transaction_id: str
    item_id: str
    request_id: str


def requests_of_user(logged: Sequence[LoggedEvent], position_base: int) -> Iterator[Request]:
    """Yields one user's requests, then a Request with the fates of unmatched events.

    Impressions have a request id and may come in parts; interactions get theirs here. A refund goes to its purchase's
    request; a refund without an item reverses its whole transaction, and counts as read once per item.
    """
    events, settled = split_duplicates(logged)
    requests: dict[str, list[LoggedEvent]] = defaultdict(list)
    showings: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for entry in events:
        if entry.event.type == "impression":
            requests[entry.event.request_id].append(entry)
            for item in entry.event.body["items"]:
                if is_identifier(item.get("item_id")):
                    showings[str(item["item_id"])].append((entry.event.timestamp_ms, entry.event.request_id))
    purchases: list[ItemMatch] = []
    notes: list[str] = []
    for entry in events:
        if entry.event.type == "impression":
            continue
        found = _refunded_purchases(entry, purchases) if entry.event.type == REFUND else _last_showing(entry, showings)
        if isinstance(found, Fate):
            settled.append(found)
            continue
        notes += [f"read/{REFUND}"] * (len(found) - 1)
        for bought in found:
            requests[bought.request_id].append(_of_request(entry, bought))
            if entry.event.type == "purchase":
                purchases.append(bought)
    for entries in requests.values():
        yield assemble(entries, position_base)
    yield Request((), settled, tuple(notes))


def _last_showing(entry: LoggedEvent, showings: dict[str, list[tuple[int, str]]]) -> list[ItemMatch] | Fate:
    event = entry.event
    item_id = str(event.body["item_id"])
    shown = showings.get(item_id, [])
    before = bisect_right(shown, event.timestamp_ms, key=lambda showing: showing[0])
    if before:
        return [ItemMatch(event.body["transaction_id"], item_id, shown[before - 1][1])]
    if shown:
        detail = f"{shown[0][0] - event.timestamp_ms} ms before its impression"
        return Fate(entry, "unmatched", "before_impression", detail)
    return Fate(entry, "unmatched", "item_not_shown", "no search showed its item to its user")


def _refunded_purchases(entry: LoggedEvent, purchases: list[ItemMatch]) -> list[ItemMatch] | Fate:
    """Returns the purchases that a refund reverses: those of its transaction and item, where it names them."""
    named = entry.event.body
    found = [
        bought
        for bought in reversed(purchases)
        if named["transaction_id"] in ("", bought.transaction_id) and named["item_id"] in ("", bought.item_id)
    ]
    if not found:
        return Fate(entry, "unmatched", "no_purchase", "no purchase of its user, transaction and item came before it")
    return found if not named["item_id"] else found[:1]


def _of_request(entry: LoggedEvent, bought: ItemMatch) -> LoggedEvent:
    event_id = f"{entry.event.event_id}/{bought.item_id}"
    return entry._replace(
        event=entry.event._replace(
            event_id=event_id, request_id=bought.request_id, body={**entry.event.body, "item_id": bought.item_id}
        )
    )
