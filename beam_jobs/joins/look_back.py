"""Joining without a request id: what a user did with an item belongs to the last impression that showed it.

Pure: no Beam. Attribution windows are not looked at here: what comes too late for its impression is late, as elsewhere.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from beam_jobs.assembly import assemble
from beam_jobs.attribution import Fate, LoggedEvent, Request, without_duplicates
from beam_jobs.logs import REFUND, is_identifier


class Bought(NamedTuple):
    """A purchase that an impression led to. transaction_id: empty where the log has none."""

    transaction_id: str
    item_id: str
    request_id: str


def requests_of_user(logged: Sequence[LoggedEvent], position_base: int) -> Iterator[Request]:
    """One user's events -> their requests, and at last what belongs to none.

    Impressions have a request id, and may come in parts; interactions have none, and get one here. Refunds follow the
    purchase: one without an item takes back its transaction, and counts as read once for each item of it.
    """
    events, settled = without_duplicates(logged)
    requests: dict[str, list[LoggedEvent]] = defaultdict(list)
    showings: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for entry in events:
        if entry.event.type == "impression":
            requests[entry.event.request_id].append(entry)
            for item in entry.event.body["items"]:
                if is_identifier(item.get("item_id")):
                    showings[str(item["item_id"])].append((entry.event.timestamp_ms, entry.event.request_id))
    purchases: list[Bought] = []
    notes: list[str] = []
    for entry in events:
        if entry.event.type == "impression":
            continue
        found = _taken_back(entry, purchases) if entry.event.type == REFUND else _shown_last(entry, showings)
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


def _shown_last(entry: LoggedEvent, showings: dict[str, list[tuple[int, str]]]) -> list[Bought] | Fate:
    event = entry.event
    item_id = str(event.body["item_id"])
    shown = showings.get(item_id, [])
    before = bisect_right(shown, event.timestamp_ms, key=lambda showing: showing[0])
    if before:
        return [Bought(event.body["transaction_id"], item_id, shown[before - 1][1])]
    if shown:
        detail = f"{shown[0][0] - event.timestamp_ms} ms before its impression"
        return Fate(entry, "unmatched", "before_impression", detail)
    return Fate(entry, "unmatched", "item_not_shown", f"no search showed item {item_id!r:.60} to its user")


def _taken_back(entry: LoggedEvent, purchases: list[Bought]) -> list[Bought] | Fate:
    """The purchases that a refund takes back: of its transaction and item, as far as it names them."""
    named = entry.event.body
    found = [
        bought
        for bought in reversed(purchases)
        if named["transaction_id"] in ("", bought.transaction_id) and named["item_id"] in ("", bought.item_id)
    ]
    if not found:
        return Fate(entry, "unmatched", "no_purchase", "no purchase of its user, transaction and item came before it")
    return found if not named["item_id"] else found[:1]


def _of_request(entry: LoggedEvent, bought: Bought) -> LoggedEvent:
    event_id = f"{entry.event.event_id}/{bought.item_id}"
    return entry._replace(
        event=entry.event._replace(
            event_id=event_id, request_id=bought.request_id, body={**entry.event.body, "item_id": bought.item_id}
        )
    )
