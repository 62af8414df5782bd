"""A circuit breaker: after several consecutive failures calls are refused for a while, then one trial call may pass."""

import threading
import time
from collections.abc import Callable

STATES = ("closed", "half-open", "open")


class CircuitBreaker:
    """A circuit breaker. Thread-safe.

    failures: the number of consecutive failures that open it. open_seconds: the wait before a trial call.
    """

    def __init__(self, failures: int, open_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_failures, self._open_seconds, self._clock = failures, open_seconds, clock
        self._lock = threading.Lock()
        self._failures = 0  # consecutive ones so far
        self._open_until = 0.0
        self._trying = False  # half-open, with a trial call under way

    @property
    def state(self) -> str:
        """One of STATES."""
        if self._failures < self._max_failures:
            return "closed"
        return "open" if self._clock() < self._open_until else "half-open"

    def begin_call(self) -> float:
        """Returns 0 if the call may be made; `end_call` must follow. Otherwise returns the seconds to wait."""
        with self._lock:
            if self._failures < self._max_failures:
                return 0.0
            if (wait := self._open_until - self._clock()) > 0:
                return wait
            if self._trying:
                return self._open_seconds
            self._trying = True
            return 0.0

    def end_call(self, answered: bool | None) -> None:
        """answered: None if the call says nothing about the server, because its own timeout was too short."""
        with self._lock:
            self._trying = False
            if answered is None:
                return
            self._failures = 0 if answered else self._failures + 1
            if self._failures >= self._max_failures:
                self._open_until = self._clock() + self._open_seconds
