"""A bounded FIFO queue in front of the scoring threads. Expired and cancelled requests leave it at once."""

import asyncio
import os
import re
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from features.values import truncated_repr
from serving.observability.request_record import RequestRecord
from serving.problems import Problem
from serving.settings import Queue

T = TypeVar("T")
TIMEOUT_HEADER = "X-Request-Timeout-Ms"
MAX_TIMEOUT_MS = 9_999_999_999  # milliseconds
_NICENESS_INCREMENT, _MAX_NICENESS = 10, 19  # added to a scoring thread's niceness; the highest niceness on Linux
_MILLISECONDS = re.compile(r"0*[1-9][0-9]{0,9}")


class RequestQueue:
    """Bounded FIFO queue of requests, with the threads that score them. Requests are added on the event loop only.

    Waiting requests are stored here, not in the executor's queue, which keeps cancelled work until a thread takes it.
    """

    def __init__(self, settings: Queue) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(settings.threads, "scoring", initializer=_lower_priority)
        self._lock = threading.Lock()  # guards the attributes below
        self._waiting: dict[Future[Any], Callable[[], Any]] = {}
        self._scoring = 0  # requests that a thread scores
        self._running = 0  # threads that take requests from the queue

    @property
    def scoring(self) -> int:
        return self._scoring

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_busy(self) -> bool:
        """Whether every thread has a request."""
        return self._scoring + len(self._waiting) >= self._settings.threads

    @property
    def is_full(self) -> bool:
        """Whether `run` would refuse a request. Callers also check it before they read a body."""
        return self._scoring + len(self._waiting) >= self._settings.threads + self._settings.waiting

    def refusal(self) -> Problem:
        """Returns the problem for a request that a full queue refuses."""
        detail = (
            f"{self._scoring + len(self._waiting)} requests are queued or being scored, as many as this gateway takes"
        )
        return Problem("overloaded", detail, headers={"Retry-After": "1"})

    async def run(self, work: Callable[[], T], deadline: float, record: RequestRecord) -> T:
        """Runs `work` in a scoring thread and returns its result.

        At the deadline, or when the caller is cancelled, waiting work is dropped at once together with the request body
        that it references. Work that has started keeps its thread until it ends; its result is discarded.
        deadline: event loop time.
        Raises: Problem overloaded or deadline-exceeded; whatever `work` raises.
        """
        if self.is_full:
            raise self.refusal()
        future = self._submit(partial(_timed, work, record, time.perf_counter()))
        try:
            async with asyncio.timeout_at(deadline) as timer:
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if not timer.expired():
                raise
            raise deadline_exceeded(record) from None
        finally:
            del future, work  # breaks a cycle: the error's traceback references this frame, and `future` the error

    def _submit(self, work: Callable[[], T]) -> "Future[T]":
        future = Future[T]()
        with self._lock:
            self._waiting[future] = work
            starts = self._running < self._settings.threads
            self._running += starts
        future.add_done_callback(self._remove)  # for a future that is cancelled while it waits
        if starts:
            self._threads.submit(self._score_waiting)
        return future

    def _remove(self, future: "Future[Any]") -> None:
        with self._lock:
            self._waiting.pop(future, None)

    def _score_waiting(self) -> None:
        """Scores waiting requests until the queue is empty. Runs in a scoring thread."""
        while (taken := self._take()) is not None:
            self._score(*taken)
            del taken

    def _take(self) -> tuple["Future[Any]", Callable[[], Any]] | None:
        with self._lock:
            if not self._waiting:
                self._running -= 1
                return None
            future = next(iter(self._waiting))
            self._scoring += 1
            return future, self._waiting.pop(future)

    def _score(self, future: "Future[Any]", work: Callable[[], Any]) -> None:
        result, error = None, None
        begins = future.set_running_or_notify_cancel()
        try:
            if begins:
                result = work()
        except BaseException as raised:  # the future carries it to the caller of `run`
            error = raised
        with self._lock:
            self._scoring -= 1  # before the result is set, so that its receiver sees a free place
        if not begins:
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
        del future, work, result, error  # the error's traceback references this frame


def _timed(work: Callable[[], T], record: RequestRecord, entered: float) -> T:
    """Records the time since `entered` as time in the queue, then runs `work`."""
    record.add_interval("queue", entered)
    return work()


def _lower_priority() -> None:
    """Lowers the priority of this scoring thread below the event loop's, so that refusals stay fast on a busy core.

    On Linux each thread has its own niceness.
    """
    thread = threading.get_native_id()
    os.setpriority(
        os.PRIO_PROCESS, thread, min(os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS_INCREMENT, _MAX_NICENESS)
    )


def deadline_exceeded(record: RequestRecord, headers: dict[str, str] | None = None) -> Problem:
    """Returns the problem for a request whose deadline has passed."""
    detail = f"no answer within {1000 * record.seconds:.0f} ms, the time that the request was given"
    return Problem("deadline-exceeded", detail, headers=headers or {})


def timeout_seconds(header: str | None, max_seconds: float) -> float:
    """Returns the request's timeout: the X-Request-Timeout-Ms header, capped at max_seconds. Raises: Problem."""
    if header is None:
        return max_seconds
    if not _MILLISECONDS.fullmatch(header.strip()):
        detail = f"{TIMEOUT_HEADER} is {truncated_repr(header)}, expected a whole number of milliseconds from 1"
        raise Problem("invalid-request", detail)
    return min(int(header) / 1000, max_seconds)


async def cancel_on_disconnect(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Awaits `work`; cancels it if the client disconnects. Raises: ClientDisconnect; whatever `work` raises."""
    task = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
    disconnect.add_done_callback(partial(_cancel, task))
    try:
        return await task
    except asyncio.CancelledError:
        if disconnect.done() and not disconnect.cancelled():
            raise ClientDisconnect from None
        raise
    finally:
        disconnect.cancel()
        del task, disconnect  # breaks a cycle: the error's traceback references this frame, and `task` the error


def _cancel(task: "asyncio.Future[Any]", _: object) -> None:
    task.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
