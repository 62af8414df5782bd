"""The UTC days of a daily batch and their file paths. Pure: no Beam."""

from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from features.errors import InputError

DATE_PLACEHOLDER = "{date}"  # in a path: replaced by each day of the batch, such as 2025-03-10


class Days(NamedTuple):
    """The days of a batch, both included."""

    first: date
    last: date

    @property
    def span_ms(self) -> tuple[int, int]:
        """Milliseconds since 1970, [start, end)."""
        return start_of(self.first), start_of(self.last + timedelta(days=1))

    def each(self) -> list[date]:
        return [self.first + timedelta(days=n) for n in range((self.last - self.first).days + 1)]

    def paths(self, pattern: str) -> list[str]:
        """Returns the path of each day, last day first; a path without DATE_PLACEHOLDER unchanged."""
        if DATE_PLACEHOLDER not in pattern:
            return [pattern]
        return [pattern.replace(DATE_PLACEHOLDER, day.isoformat()) for day in reversed(self.each())]


def batch_days(last: str, look_back_days: int) -> Days:
    """Returns the days of the batch that ends with `last`, such as 2025-03-10. Errors: InputError."""
    try:
        day = date.fromisoformat(last)
        if day.isoformat() != last:  # 20250310 and 2025-W11-1 are ISO 8601 too, but {date} would be two directories
            raise ValueError
        return Days(day - timedelta(days=look_back_days), day)
    except (ValueError, OverflowError):
        raise InputError(f"--date is {last!r}, expected a day such as 2025-03-10") from None


def start_of(day: date) -> int:
    """Returns the start of a UTC day in milliseconds since 1970."""
    return int(datetime.combine(day, time(), UTC).timestamp() * 1000)
