"""Parses timestamps of logs and product tables, and detects wrong units. Pure: no Beam."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from features.values import describe_type

# Plausible range, milliseconds since 1970: the years 2000 to 2099. No number is plausible in two units.
EARLIEST_MS = 946_684_800_000
END_MS = 4_102_444_800_000
NANOSECONDS = {"seconds": 10**9, "milliseconds": 10**6, "microseconds": 10**3, "nanoseconds": 1}  # in one of the unit
TIMESTAMP_FAULTS = frozenset(
    {"timestamp_invalid", "timestamp_implausible", *(f"timestamp_in_{u}" for u in NANOSECONDS)}
)
EXAMPLE_DIGITS = 5  # leading digits that a message shows; the rest become 0, since it might be a telephone number


class BadTimestamp(NamedTuple):
    """Why a value is not a timestamp. reason: a stable name; detail: readable, without the value's last digits."""

    reason: str
    detail: str


def read_timestamp(raw: Any, field: str = "timestamp_ms", unit: str = "milliseconds") -> int | BadTimestamp:
    """Parses a number in `unit`, or a string of digits as in protobuf's JSON, to milliseconds since 1970.

    Fractions of a millisecond are dropped. field: its name in the log.
    """
    if isinstance(raw, str) and raw.isascii() and raw.isdigit() and len(raw) <= 19:
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or raw != raw or abs(raw) == float("inf"):
        return BadTimestamp("timestamp_invalid", f"{field} is {describe_type(raw)}, expected {unit} since 1970")
    found = unit_of(raw)
    if found == unit:
        return int(raw) * NANOSECONDS[unit] // NANOSECONDS["milliseconds"]
    if found is None:
        return BadTimestamp("timestamp_implausible", f"{field} is {describe_type(raw)}, {_expected(unit)}")
    return BadTimestamp(f"timestamp_in_{found}", wrong_unit_detail(field, int(raw), found, unit))


def read_instant(raw: Any, field: str = "timestamp") -> int | BadTimestamp:
    """Parses ISO 8601 text (UTC by default), or a number as `read_timestamp`, to milliseconds since 1970."""
    if not isinstance(raw, str) or raw.isdigit():
        return read_timestamp(raw, field)
    try:
        instant = datetime.fromisoformat(raw)
        instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        since_1970 = round(instant.timestamp() * 1000)
    except (ValueError, OverflowError):  # the latter: year 1 east of Greenwich
        expected = "ISO 8601 or milliseconds since 1970"
        return BadTimestamp("timestamp_invalid", f"{field} is {describe_type(raw)}, expected {expected}")
    if not EARLIEST_MS <= since_1970 < END_MS:
        return BadTimestamp("timestamp_implausible", f"{field} is a time of another century, {_expected('ISO 8601')}")
    return since_1970


def unit_of(number: float) -> str | None:
    """Returns the unit in which a number is a plausible time, or None."""
    for unit, nanoseconds in NANOSECONDS.items():
        if EARLIEST_MS * NANOSECONDS["milliseconds"] <= number * nanoseconds < END_MS * NANOSECONDS["milliseconds"]:
            return unit
    return None


def wrong_unit_detail(field: str, number: int, found: str, expected: str) -> str:
    """Makes the message for a number in the wrong unit."""
    return f"{field} {leading_digits(number)} looks like {found}, expected {expected} since 1970"


def leading_digits(number: int) -> int:
    """Keeps the first EXAMPLE_DIGITS digits and replaces the others by zeros."""
    scale: int = 10 ** max(0, len(str(number)) - EXAMPLE_DIGITS)
    return number // scale * scale


def _expected(unit: str) -> str:
    return f"expected {unit} since 1970, of a time in the years 2000 to 2099"
