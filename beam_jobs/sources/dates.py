"""Days in UTC: the ones that a daily batch covers, and the files that hold them. Pure: no Beam."""

from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from features.errors import InputError

PLACE = "{date}"  # in a path: each day of the batch, as 2025-03-10


class Days(NamedTuple):
    """The days of a batch, both included."""

    first: date
    last: date

    @property
    def span_ms(self) -> tuple[int, int]:
        """Milliseconds since 1970: the first moment, and the first one after."""
        return start_of(self.first), start_of(self.last + timedelta(days=1))

    def each(self) -> list[date]:
        return [self.first + timedelta(days=n) for n in range((self.last - self.first).days + 1)]

    def paths(self, pattern: str) -> list[str]:
        """The pattern once a day, the last day's first; as it is where it has no PLACE."""
        if PLACE not in pattern:
            return [pattern]
        return [pattern.replace(PLACE, day.isoformat()) for day in reversed(self.each())]


def batch_days(last: str, look_back_days: int) -> Days:
    """The days of the batch that ends with a day. Errors: InputError."""
    try:
        day = date.fromisoformat(last)
        return Days(day - timedelta(days=look_back_days), day)
    except (ValueError, OverflowError):
        raise InputError(f"--date is {last!r}, expected a day such as 2025-03-10") from None


def start_of(day: date) -> int:
    """Milliseconds since 1970 of the day's first moment."""
    return int(datetime.combine(day, time(), UTC).timestamp() * 1000)
