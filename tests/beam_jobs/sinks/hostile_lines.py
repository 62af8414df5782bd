"""200 lines of a log that hold something personal, in every form and place that a log may have it."""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from tests.beam_jobs.log_lines import NOON, act, impression

ADDRESSES = (
    "192.0.2.17", "::1", "2001:db8::8a2e:370:7334", "2001:0db8:0000:0000:0000:8a2e:0370:7334",
    "fe80::1ff:fe23:4567:890a%eth0", "[2001:db8::1]:8443", "::ffff:192.0.2.128", "64:ff9b::192.0.2.33",
    "198.51.100.7:51234", "2001:DB8:AC10:FE01::",
)  # fmt: skip
OTHERS = (
    "jane.doe@example.com", "JANE+tag@mail.example.co.uk", "+32 470 12 34 56", "(212) 555-0147", "0032470123456",
    "4111 1111 1111 1111", "shopper-17-doe", "Jane-Doe-Smith", "BE68539007547034",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqYW5lIn0",
)  # fmt: skip
PERSONAL = (*ADDRESSES, *OTHERS)
Form = Callable[[str, int], Any]


def late(personal: str, number: int, **more: Any) -> dict[str, Any]:
    """A click of no known request, which becomes a dead letter."""
    return {**act("click", f"lost-{number}", f"p{number}", event_id=f"x{number}"), **more}


def escaped(personal: str, number: int) -> bytes:
    """A line whose timestamp is the value as escapes of JSON."""
    escapes = "".join(f"\\u{ord(character):04x}" for character in personal)
    return json.dumps(late(personal, number, timestamp_ms="ESCAPES")).replace("ESCAPES", escapes).encode()


FORMS: tuple[Form, ...] = (
    lambda p, n: late(p, n, user_id=p),
    lambda p, n: late(p, n, customer_id=p, context={"Customer": {"userId": p, "CUSTOMER-ID": [p]}}),
    lambda p, n: {**late(p, n), "event_id": p, "request_id": f"of {p}", "click": {"item_id": f"for {p}"}},
    lambda p, n: {**late(p, n), p: True, "click": {"item_id": "i", p: {p: p}}},  # names that hold data
    lambda p, n: late(p, n, timestamp_ms=p),
    lambda p, n: json.dumps(late(p, n, note=p))[:-9].encode(),  # cut short
    escaped,
    lambda p, n: f"{n};{quote(p, safe='')};{p};click;p{n}".encode(),  # lines of another format
    lambda p, n: {**impression(f"bad-{n}", f"gift for {p}", {"item_id": p, "position": p}), "locale": p},
    lambda p, n: b'{"token":"' + base64.b64encode(p.encode()) + b'","user":"' + p.encode() + b'",}',
)  # fmt: skip


def hostile_lines() -> Iterator[tuple[str, bytes]]:
    """(what is personal in it, line): 200, each of the values in each of the forms."""
    for number, personal in enumerate(PERSONAL):
        for place, form in enumerate(FORMS):
            record = form(personal, 100 * number + place)
            yield personal, record if isinstance(record, bytes) else json.dumps(record).encode()


def sound_lines() -> list[bytes]:
    """What makes a dataset beside them."""
    rows = [impression(f"r{n}", f"sofa {n}", "p1", "p2", at=NOON) for n in range(20)]
    return [json.dumps(row).encode() for row in (*rows, act("click", "r1", "p2"))]
