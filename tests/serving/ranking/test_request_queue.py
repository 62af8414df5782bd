"""The request queue, on a real event loop with real scoring threads."""

import asyncio
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from serving.api.request_body import BodyReader
from serving.observability.request_record import RequestRecord
from serving.observability.trace_context import span_of
from serving.problems import Problem
from serving.ranking.request_queue import RequestQueue, cancel_on_disconnect, timeout_seconds
from serving.settings import Connections, Queue, RequestLimits

FOREVER = 60.0


def record() -> RequestRecord:
    return RequestRecord("r", span_of(""))


def after(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.001)


async def occupied(request_queue: RequestQueue, release: threading.Event) -> "asyncio.Task[bool]":
    """A task that keeps the queue's only thread busy until `release` is set."""
    task = asyncio.ensure_future(request_queue.run(lambda: release.wait(10), after(FOREVER), record()))
    await until(lambda: request_queue.scoring == 1)
    return task


def test_work_runs_in_fifo_order_and_its_time_in_the_queue_is_recorded() -> None:
    async def story() -> None:
        request_queue, release, done = RequestQueue(Queue(threads=1, waiting=8)), threading.Event(), list[int]()
        records = [record() for _ in range(3)]
        first = await occupied(request_queue, release)
        rest = [
            asyncio.ensure_future(request_queue.run(lambda i=i: done.append(i), after(FOREVER), records[i]))
            for i in range(3)
        ]
        await asyncio.sleep(0.05)
        assert (request_queue.scoring, request_queue.waiting) == (1, 3)
        release.set()
        await asyncio.gather(first, *rest)
        assert done == [0, 1, 2]
        assert all(r.stages["queue"] >= 0.04 for r in records)
        assert (request_queue.scoring, request_queue.waiting) == (0, 0)

    asyncio.run(story())


def test_scoring_threads_have_a_lower_priority_than_the_event_loop() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    async def story() -> None:
        before = niceness()
        assert await RequestQueue(Queue(threads=1)).run(niceness, after(FOREVER), record()) == min(before + 10, 19)
        assert niceness() == before

    asyncio.run(story())


def test_a_full_queue_refuses_requests_at_once_with_retry_after() -> None:
    async def story() -> None:
        request_queue, release = RequestQueue(Queue(threads=1, waiting=1)), threading.Event()
        first = await occupied(request_queue, release)
        second = asyncio.ensure_future(request_queue.run(lambda: "second", after(FOREVER), record()))
        await until(lambda: request_queue.waiting == 1)
        with pytest.raises(Problem) as refused:
            await request_queue.run(lambda: "third", after(FOREVER), record())
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
        release.set()
        assert await second == "second"
        await first
        assert await request_queue.run(lambda: "the places are free again", after(FOREVER), record())

    asyncio.run(story())


def test_work_that_expires_in_the_queue_never_starts_and_frees_its_place() -> None:
    async def story() -> None:
        request_queue, release, begun = RequestQueue(Queue(threads=1, waiting=1)), threading.Event(), list[str]()
        first = await occupied(request_queue, release)
        with pytest.raises(Problem) as late:
            await request_queue.run(lambda: begun.append("late"), after(0.05), record())
        assert late.value.slug == "deadline-exceeded"
        assert request_queue.waiting == 0
        next_one = asyncio.ensure_future(request_queue.run(lambda: begun.append("next"), after(FOREVER), record()))
        release.set()
        await asyncio.gather(first, next_one)
        assert begun == ["next"]

    asyncio.run(story())


def test_cancelled_work_is_dropped_at_once_with_the_body_that_it_references() -> None:
    class Body(bytearray):
        """A body that can be weakly referenced."""

        def __hash__(self) -> int:
            return id(self)

    async def story() -> None:
        request_queue, release, bodies = (
            RequestQueue(Queue(threads=1, waiting=1)),
            threading.Event(),
            weakref.WeakSet[Body](),
        )
        first = asyncio.ensure_future(request_queue.run(release.wait, after(10 * FOREVER), record()))
        await until(lambda: request_queue.scoring == 1)
        gc.disable()
        try:
            for _ in range(2000):
                body = Body(b"x" * (1 << 20))
                bodies.add(body)
                work = cancel_on_disconnect(request_queue.run(partial(len, body), after(FOREVER), record()), _stays)
                waits = asyncio.ensure_future(work)
                await until(lambda: request_queue.waiting == 1)
                waits.cancel()
                await asyncio.gather(waits, return_exceptions=True)
                del body, work, waits
                assert (request_queue.waiting, request_queue.scoring) == (0, 1)
            assert len(bodies) <= 1
        finally:
            gc.enable()
            release.set()
        await first

    asyncio.run(story())


def test_running_work_past_its_deadline_gets_504_at_the_deadline_and_keeps_its_thread_until_it_ends() -> None:
    async def story() -> None:
        request_queue, release = RequestQueue(Queue(threads=1, waiting=0)), threading.Event()
        began = time.perf_counter()
        with pytest.raises(Problem, match="deadline-exceeded"):
            await request_queue.run(lambda: release.wait(10), after(0.05), record())
        assert time.perf_counter() - began < 1
        with pytest.raises(Problem, match="overloaded"):
            await request_queue.run(lambda: None, after(FOREVER), record())
        release.set()
        await until(lambda: request_queue.scoring == 0)
        assert await request_queue.run(lambda: "free", after(FOREVER), record()) == "free"

    asyncio.run(story())


def test_errors_of_the_work_reach_the_caller_including_a_timeout_error() -> None:
    def fail() -> None:
        raise TimeoutError("its own")

    async def story() -> None:
        with pytest.raises(TimeoutError, match="its own"):
            await RequestQueue(Queue(threads=1, waiting=0)).run(fail, after(FOREVER), record())

    asyncio.run(story())


def test_a_client_disconnect_removes_its_work_from_the_queue() -> None:
    async def story() -> None:
        request_queue, release, begun = RequestQueue(Queue(threads=1, waiting=1)), threading.Event(), list[str]()
        first = await occupied(request_queue, release)

        async def leaves() -> dict[str, Any]:
            await asyncio.sleep(0.05)
            return {"type": "http.disconnect"}

        with pytest.raises(ClientDisconnect):
            await cancel_on_disconnect(
                request_queue.run(lambda: begun.append("left"), after(FOREVER), record()), leaves
            )
        assert request_queue.waiting == 0
        release.set()
        await first
        assert begun == []

    asyncio.run(story())


async def _stays() -> dict[str, Any]:
    await asyncio.sleep(FOREVER)
    raise AssertionError("never")


def test_a_connected_client_gets_its_answer_and_a_server_shutdown_is_no_disconnect() -> None:
    async def story() -> None:
        request_queue = RequestQueue(Queue(threads=1, waiting=1))
        assert (
            await cancel_on_disconnect(request_queue.run(lambda: "answer", after(FOREVER), record()), _stays)
            == "answer"
        )
        release = threading.Event()
        task = asyncio.ensure_future(
            cancel_on_disconnect(request_queue.run(lambda: release.wait(10), after(FOREVER), record()), _stays)
        )
        await until(lambda: request_queue.scoring == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()

    asyncio.run(story())


def test_the_timeout_header_may_only_shorten_the_maximum() -> None:
    assert timeout_seconds(None, 10.0) == 10.0
    assert timeout_seconds("250", 10.0) == 0.25
    assert timeout_seconds(" 007 ", 10.0) == 0.007
    assert timeout_seconds("60000", 10.0) == 10.0


@pytest.mark.parametrize("header", ["", "0", "-5", "1.5", "1e3", "soon", "٣", "9" * 30, "5 ms"])
def test_an_invalid_number_of_milliseconds_is_422(header: str) -> None:
    with pytest.raises(Problem) as refused:
        timeout_seconds(header, 10.0)
    assert refused.value.status == 422
    assert "X-Request-Timeout-Ms is " in refused.value.detail


def body_that_never_ends() -> Request:
    return Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, _stays)


@pytest.mark.parametrize(("patience", "given", "slug"), [(0.05, 9.0, "body-timeout"), (9.0, 0.05, "deadline-exceeded")])
def test_reading_a_body_that_never_ends_is_aborted(patience: float, given: float, slug: str) -> None:
    async def story() -> None:
        bodies = BodyReader(RequestLimits(), Connections(body_seconds=patience))
        with pytest.raises(Problem) as refused:
            await bodies.read(body_that_never_ends(), after(given), record())
        assert (refused.value.slug, refused.value.headers) == (slug, {"Connection": "close"})
        assert bodies.arriving == 0

    asyncio.run(story())


def test_the_number_of_bodies_being_read_is_limited() -> None:
    async def story() -> None:
        bodies = BodyReader(RequestLimits(), Connections(bodies=1))
        first = asyncio.ensure_future(bodies.read(body_that_never_ends(), after(FOREVER), record()))
        await until(lambda: bodies.arriving == 1)
        with pytest.raises(Problem, match="overloaded"):
            await bodies.read(body_that_never_ends(), after(FOREVER), record())
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert bodies.arriving == 0

    asyncio.run(story())
