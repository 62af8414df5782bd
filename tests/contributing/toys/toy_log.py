"""A toy log: {"search": id, "at": milliseconds, "words": query, "shown": [ids]} or {"search", "at", "clicked": id}."""

from collections.abc import Sequence

from beam_jobs.joins.attribution import LoggedEvent, Request
from beam_jobs.sources.log_reader import LogReader
from beam_jobs.sources.native_log import UNKNOWN, Event, Malformed, ReadResult, read_object


def read_toy(line: bytes) -> tuple[ReadResult]:
    fields = read_object(line)
    if isinstance(fields, Malformed):
        return (fields,)
    if "clicked" in fields:
        kind, body = "click", {"item_id": fields["clicked"]}
    elif "shown" in fields:
        titled = [{"item_id": i, "position": p, "features": {"title": i}} for p, i in enumerate(fields["shown"])]
        kind, body = "impression", {"query": fields["words"], "items": titled, "features": {}, "locale": ""}
    else:
        return (Malformed(UNKNOWN, "no_toy", "has neither shown nor clicked"),)
    return (Event(kind, f"{kind}/{fields['at']}", fields["at"], fields["search"], "", body),)


def search_of(event: Event) -> str:
    return event.request_id


def one_search(logged: Sequence[LoggedEvent]) -> tuple[Request]:
    return (Request(logged),)


TOY = LogReader(read=read_toy, key=search_of, requests=one_search, position_base=0)
