"""Polls of the export directory: which version one chooses, how many failed, and when the last one succeeded."""

import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from serving.observability.json_log import log

STALE_INTERVALS = 3  # intervals without a successful poll before /readyz warns


@dataclass(frozen=True, slots=True)
class VersionRefusal:
    """Why a version was refused, and when it is retried: an upload may still have been in progress."""

    reason: str
    times: int
    retry_at: float  # time.monotonic()
    transient: bool = False  # the store failed; the version may be valid


def select_version(complete: Iterable[int], refused: Collection[int], requested: int | None) -> int | None:
    """Returns the requested version, else the highest complete one that is not refused."""
    if requested is not None:
        return requested
    return max((version for version in complete if version not in refused), default=None)


class VersionPolls:
    """Counters of polls. The version thread writes them; any thread may read them."""

    def __init__(self, interval: float) -> None:
        """interval: seconds between two polls."""
        self.succeeded = self.failed = 0
        self._interval = interval
        self._last = time.monotonic()  # end of the last successful poll
        self._logged = ""  # the last reason that was logged

    @property
    def age(self) -> float:
        """Seconds since the last successful poll; before the first one, since the start."""
        return time.monotonic() - self._last

    @property
    def warning(self) -> str | None:
        """A message if the last successful poll is over STALE_INTERVALS ago, else None. Public, so without paths."""
        if self.age <= STALE_INTERVALS * self._interval:
            return None
        return (
            f"new versions were last looked for {self.age:.0f} s ago, expected every {self._interval:g} s: "
            "the log says why under poll-failed, unless a version is being loaded"
        )

    def count_success(self) -> None:
        self.succeeded += 1
        self._last, self._logged = time.monotonic(), ""

    def count_failure(self, reason: str, once: bool = False) -> None:
        """once: logs a repeated reason once, until it changes or a poll succeeds."""
        self.failed += 1
        if not once or reason != self._logged:
            log("poll-failed", logging.ERROR, reason=reason)
        self._logged = reason
