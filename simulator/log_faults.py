"""Adds duplicates, late events, unknown requests, unknown items and malformed lines at configured rates."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from features.task import Section

DAY_MS = 86_400_000


class FaultsConfig(Section):
    """Fault rates, as probabilities per event. All but `late` add a line and keep the original event."""

    duplicate: float = Field(default=0.005, ge=0, le=1)  # share of events written twice
    late: float = Field(default=0.002, ge=0, le=1)  # share of interactions stamped `late_days` too late
    late_days: float = Field(default=45.0, gt=0)  # days; longer than the dataset's attribution windows
    unknown_request: float = Field(default=0.001, ge=0, le=1)  # per interaction: adds one with an unknown request id
    unknown_item: float = Field(default=0.0005, ge=0, le=1)  # per interaction: adds one on an item that was not shown
    malformed: float = Field(default=0.0005, ge=0, le=1)  # per event: adds a line that cannot be parsed


@dataclass(slots=True)
class LogLine:
    """One event to be written.

    timestamp_ms: time of logging. kind: impression | click | add_to_cart | purchase.
    head, tail: the JSON before and after the timestamp's digits. item: an interaction's item id, as JSON.
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


# ways to damage a line; every reader must reject the result
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
    """Returns the lines with faults, each with its sort time, and the number of faults by kind.

    prefix: makes the ids of added events unique across shards.
    """
    written: list[tuple[int, bytes]] = []
    counts: Counter[str] = Counter()
    damages = list(DAMAGES.items())
    all_draws = rng.random((len(lines), 6))
    rates = config.late, config.duplicate, config.unknown_request, config.unknown_item, config.malformed
    faulty = (all_draws[:, :5] < rates).any(axis=1).tolist()  # few lines
    for index, line in enumerate(lines):
        if not faulty[index]:
            written.append((line.timestamp_ms, line.content))
            continue
        draws, interaction = all_draws[index], line.kind != "impression"
        if interaction and draws[0] < config.late:
            line = replace(line, timestamp_ms=line.timestamp_ms + round(config.late_days * DAY_MS))
            counts[f"late {line.kind}"] += 1
        content = line.content
        written.append((line.timestamp_ms, content))
        if draws[1] < config.duplicate:
            counts[f"duplicate {line.kind}"] += 1
            written.append((line.timestamp_ms, content))
        if interaction and draws[2] < config.unknown_request:
            counts[f"unknown_request {line.kind}"] += 1
            added = _renamed(content, b"%b.u%d" % (prefix.encode(), index))
            added = re.sub(rb'"request_id":"[^"]*"', b'"request_id":"lost-%b.%d"' % (prefix.encode(), index), added)
            written.append((line.timestamp_ms, added))
        if interaction and draws[3] < config.unknown_item:
            counts[f"unknown_item {line.kind}"] += 1
            added = _renamed(content, b"%b.i%d" % (prefix.encode(), index))
            written.append((line.timestamp_ms, added[: added.rindex(line.item)] + b'"never-shown"}}'))
        if draws[4] < config.malformed:
            name, damage = damages[int(draws[5] * len(damages))]
            counts["malformed"] += 1
            counts[f"malformed: {name}"] += 1
            written.append((line.timestamp_ms, damage(content)))
    return written, counts


def _renamed(content: bytes, event_id: bytes) -> bytes:
    return re.sub(rb'"event_id":"[^"]*"', b'"event_id":"%b"' % event_id, content, count=1)
