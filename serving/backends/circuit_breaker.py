"""A circuit breaker: after several failures in a row nobody asks for a while, then one call tries."""

import threading
import time
from collections.abc import Callable

STATES = ("closed", "half-open", "open")


class Circuit:
    """Safe to call from several threads. failures: in a row, until it opens. open_seconds: until one call may try."""

    def __init__(self, failures: int, open_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._open_seconds, self._clock = failures, open_seconds, clock
        self._lock = threading.Lock()
        self._failures = 0  # in a row, up to now
        self._open_until = 0.0
        self._trying = False  # half-open, and somebody is at it

    @property
    def state(self) -> str:
        """One of STATES."""
        if self._failures < self._most:
            return "closed"
        return "open" if self._clock() < self._open_until else "half-open"

    def enter(self) -> float:
        """0: ask, and tell `leave` how it went. Otherwise nobody may ask for so many seconds."""
        with self._lock:
            if self._failures < self._most:
                return 0.0
            if (wait := self._open_until - self._clock()) > 0:
                return wait
            if self._trying:
                return self._open_seconds
            self._trying = True
            return 0.0

    def leave(self, answered: bool | None) -> None:
        """answered: None where the call says nothing about who was asked: it was given too little time."""
        with self._lock:
            self._trying = False
            if answered is None:
                return
            self._failures = 0 if answered else self._failures + 1
            if self._failures >= self._most:
                self._open_until = self._clock() + self._open_seconds
