"""The line before the scoring threads: bounded, first come first served. Who no longer waits is taken out of it."""

import asyncio
import os
import re
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from features.values import shown
from serving.problems import Problem
from serving.record import Record
from serving.settings import Queue

T = TypeVar("T")
TIMEOUT_HEADER = "X-Request-Timeout-Ms"
LONGEST_TIMEOUT = 9_999_999_999  # milliseconds
NICE, LEAST_URGENT = 10, 19  # what a scoring thread adds to its niceness; the end of the scale
_MILLISECONDS = re.compile(r"0*[1-9][0-9]{0,9}")


class Line:
    """Requests that wait for one of the threads, or are in one. Entered on the event loop only."""

    def __init__(self, settings: Queue) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(settings.threads, "scoring", initializer=_give_way)
        self._in_line: set[Future[Any]] = set()

    @property
    def scoring(self) -> int:
        return sum(future.running() for future in list(self._in_line))

    @property
    def waiting(self) -> int:
        return len(self._in_line) - self.scoring

    @property
    def is_busy(self) -> bool:
        """Whether no thread is idle."""
        return len(self._in_line) >= self._settings.threads

    @property
    def is_full(self) -> bool:
        """Whether `run` would refuse. It costs nothing, so it is asked before a body is read as well."""
        return len(self._in_line) >= self._settings.threads + self._settings.waiting

    def refusal(self) -> Problem:
        """What is told where the line is full."""
        told = f"{len(self._in_line)} requests are in line, as many as this gateway takes"
        return Problem("overloaded", told, headers={"Retry-After": "1"})

    async def run(self, work: Callable[[], T], deadline: float, record: Record) -> T:
        """What `work` returns, from a thread. deadline: the event loop's time by which the caller has its answer.

        At the deadline, or when the caller is cancelled, work that has not begun never will; what has begun is finished
        and thrown away, its thread being busy until then.
        Errors: Problem overloaded, deadline-exceeded; what `work` raises.
        """
        if self.is_full:
            raise self.refusal()
        entered = time.perf_counter()

        def timed() -> T:
            record.was_in("queue", entered)
            return work()

        future = self._threads.submit(timed)
        self._in_line.add(future)
        future.add_done_callback(self._in_line.discard)  # cancelled, too
        try:
            async with asyncio.timeout_at(deadline) as timer:
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if not timer.expired():
                raise
            raise late(record) from None


def _give_way() -> None:
    """Lets the event loop's thread go first on a busy core: it is quick, and who is to be refused waits for it.

    On Linux each thread has a niceness of its own.
    """
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, min(os.getpriority(os.PRIO_PROCESS, thread) + NICE, LEAST_URGENT))


def late(record: Record, headers: dict[str, str] | None = None) -> Problem:
    told = f"no answer within {1000 * record.seconds:.0f} ms, the time that the request was given"
    return Problem("deadline-exceeded", told, headers=headers or {})


def allowed_seconds(header: str | None, longest: float) -> float:
    """The time a request may take: what X-Request-Timeout-Ms says, `longest` at most. Errors: Problem."""
    if header is None:
        return longest
    if not _MILLISECONDS.fullmatch(header.strip()):
        told = f"{TIMEOUT_HEADER} is {shown(header)}, expected a whole number of milliseconds from 1"
        raise Problem("invalid-request", told)
    return min(int(header) / 1000, longest)


async def unless_left(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """What `work` returns; it is cancelled when the client leaves. Errors: ClientDisconnect; what `work` raises."""
    working = asyncio.ensure_future(work)
    left = asyncio.ensure_future(_leaving(receive))
    left.add_done_callback(lambda _: working.cancel())
    try:
        return await working
    except asyncio.CancelledError:
        if left.done() and not left.cancelled():
            raise ClientDisconnect from None
        raise
    finally:
        left.cancel()


async def _leaving(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
