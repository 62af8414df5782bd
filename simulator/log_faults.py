"""Faults of real logs at given rates: duplicates, late events, unknown requests and items, malformed lines."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from features.task import Section

DAY_MS = 86_400_000


class FaultsConfig(Section):
    """Rates are probabilities for each event. All but `late` add a line: what truly happened stays in the log."""

    duplicate: float = Field(default=0.005, ge=0, le=1)  # of the events: written twice
    late: float = Field(default=0.002, ge=0, le=1)  # of the interactions: stamped `late_days` after they happened
    late_days: float = Field(default=45.0, gt=0)  # days; longer than the dataset's attribution windows
    unknown_request: float = Field(default=0.001, ge=0, le=1)  # of the interactions: a further one of no known request
    unknown_item: float = Field(default=0.0005, ge=0, le=1)  # of the interactions: a further one on an item not shown
    malformed: float = Field(default=0.0005, ge=0, le=1)  # of the events: a further line that cannot be read


@dataclass(slots=True)
class LogLine:
    """One event as it will be written.

    timestamp_ms: when it was logged. kind: impression | click | add_to_cart | purchase.
    head, tail: the JSON before and behind the timestamp's digits. item: its item id for interactions, as JSON.
    """

    timestamp_ms: int
    kind: str
    head: bytes
    tail: bytes
    item: bytes = b""

    @property
    def content(self) -> bytes:
        return b"%b%d%b" % (self.head, self.timestamp_ms, self.tail)


def _truncated(line: bytes) -> bytes:
    return line[: len(line) // 2]


def _text_timestamp(line: bytes) -> bytes:
    return re.sub(rb'"timestamp_ms":\d+', b'"timestamp_ms":"soon"', line)


def _no_event(line: bytes) -> bytes:
    return re.sub(rb',"(?:impression|click|add_to_cart|purchase)":.*', b"}", line)


def _no_object(line: bytes) -> bytes:
    return b"[" + line + b"]"


def _number_for_body(line: bytes) -> bytes:
    return re.sub(rb',"(impression|click|add_to_cart|purchase)":.*', rb',"\1":7}', line)


def _invalid_utf8(line: bytes) -> bytes:
    return line.replace(b'"event_id":"', b'"event_id":"\xff\xfe', 1)


# how a line can be damaged; every kind makes a line that no reader may accept
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": _truncated,
    "text_timestamp": _text_timestamp,
    "no_event": _no_event,
    "no_object": _no_object,
    "number_for_body": _number_for_body,
    "invalid_utf8": _invalid_utf8,
}


def inject_faults(
    lines: list[LogLine], config: FaultsConfig, prefix: str, rng: np.random.Generator
) -> tuple[list[tuple[int, bytes]], Counter[str]]:
    """The lines to write, each with the time that orders it in the file, and how many faults of each kind there are.

    prefix: makes the ids of added events unique in the whole log.
    """
    written: list[tuple[int, bytes]] = []
    counts: Counter[str] = Counter()
    damages = list(DAMAGES.items())
    drawn = rng.random((len(lines), 6))
    rates = config.late, config.duplicate, config.unknown_request, config.unknown_item, config.malformed
    struck = (drawn[:, :5] < rates).any(axis=1).tolist()  # few are
    for index, line in enumerate(lines):
        if not struck[index]:
            written.append((line.timestamp_ms, line.content))
            continue
        chances, interaction = drawn[index], line.kind != "impression"
        if interaction and chances[0] < config.late:
            line = replace(line, timestamp_ms=line.timestamp_ms + round(config.late_days * DAY_MS))
            counts[f"late {line.kind}"] += 1
        content = line.content
        written.append((line.timestamp_ms, content))
        if chances[1] < config.duplicate:
            counts[f"duplicate {line.kind}"] += 1
            written.append((line.timestamp_ms, content))
        if interaction and chances[2] < config.unknown_request:
            counts[f"unknown_request {line.kind}"] += 1
            stray = _renamed(content, b"%b.u%d" % (prefix.encode(), index))
            stray = re.sub(rb'"request_id":"[^"]*"', b'"request_id":"lost-%b.%d"' % (prefix.encode(), index), stray)
            written.append((line.timestamp_ms, stray))
        if interaction and chances[3] < config.unknown_item:
            counts[f"unknown_item {line.kind}"] += 1
            stray = _renamed(content, b"%b.i%d" % (prefix.encode(), index))
            written.append((line.timestamp_ms, stray[: stray.rindex(line.item)] + b'"never-shown"}}'))
        if chances[4] < config.malformed:
            name, damage = damages[int(chances[5] * len(damages))]
            counts["malformed"] += 1
            counts[f"malformed: {name}"] += 1
            written.append((line.timestamp_ms, damage(content)))
    return written, counts


def _renamed(content: bytes, event_id: bytes) -> bytes:
    return re.sub(rb'"event_id":"[^"]*"', b'"event_id":"%b"' % event_id, content, count=1)
