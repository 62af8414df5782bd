"""The line before the scoring threads, on an event loop and real threads of its own."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from serving.line import Line, allowed_seconds, unless_left
from serving.problems import Problem
from serving.record import Record
from serving.request_body import Bodies
from serving.settings import Connections, Queue, RequestLimits
from serving.trace_context import span_of

FOREVER = 60.0


def record() -> Record:
    return Record("r", span_of(""))


def after(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.001)


async def occupied(line: Line, release: threading.Event) -> "asyncio.Task[bool]":
    """A task that keeps the line's only thread busy until `release` is set."""
    task = asyncio.ensure_future(line.run(lambda: release.wait(10), after(FOREVER), record()))
    await until(lambda: line.scoring == 1)
    return task


def test_work_is_done_in_its_order_and_its_time_in_line_is_recorded() -> None:
    async def story() -> None:
        line, release, done = Line(Queue(threads=1, waiting=8)), threading.Event(), list[int]()
        records = [record() for _ in range(3)]
        first = await occupied(line, release)
        rest = [
            asyncio.ensure_future(line.run(lambda i=i: done.append(i), after(FOREVER), records[i])) for i in range(3)
        ]
        await asyncio.sleep(0.05)
        assert (line.scoring, line.waiting) == (1, 3)
        release.set()
        await asyncio.gather(first, *rest)
        assert done == [0, 1, 2]
        assert all(r.stages["queue"] >= 0.04 for r in records)
        assert (line.scoring, line.waiting) == (0, 0)

    asyncio.run(story())


def test_scoring_gives_way_to_the_event_loop() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    async def story() -> None:
        before = niceness()
        assert await Line(Queue(threads=1)).run(niceness, after(FOREVER), record()) == min(before + 10, 19)
        assert niceness() == before

    asyncio.run(story())


def test_more_than_the_line_holds_are_told_to_come_again_at_once() -> None:
    async def story() -> None:
        line, release = Line(Queue(threads=1, waiting=1)), threading.Event()
        first = await occupied(line, release)
        second = asyncio.ensure_future(line.run(lambda: "second", after(FOREVER), record()))
        await until(lambda: line.waiting == 1)
        with pytest.raises(Problem) as refused:
            await line.run(lambda: "third", after(FOREVER), record())
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
        release.set()
        assert await second == "second"
        await first
        assert await line.run(lambda: "the places are free again", after(FOREVER), record())

    asyncio.run(story())


def test_work_whose_deadline_passes_in_line_is_never_begun_and_gives_its_place_back() -> None:
    async def story() -> None:
        line, release, begun = Line(Queue(threads=1, waiting=1)), threading.Event(), list[str]()
        first = await occupied(line, release)
        with pytest.raises(Problem) as late:
            await line.run(lambda: begun.append("late"), after(0.05), record())
        assert late.value.slug == "deadline-exceeded"
        assert line.waiting == 0
        next_one = asyncio.ensure_future(line.run(lambda: begun.append("next"), after(FOREVER), record()))
        release.set()
        await asyncio.gather(first, next_one)
        assert begun == ["next"]

    asyncio.run(story())


def test_work_that_is_late_in_its_thread_is_answered_at_the_deadline_and_keeps_its_place_until_it_ends() -> None:
    async def story() -> None:
        line, release = Line(Queue(threads=1, waiting=0)), threading.Event()
        began = time.perf_counter()
        with pytest.raises(Problem, match="deadline-exceeded"):
            await line.run(lambda: release.wait(10), after(0.05), record())
        assert time.perf_counter() - began < 1
        with pytest.raises(Problem, match="overloaded"):
            await line.run(lambda: None, after(FOREVER), record())
        release.set()
        await until(lambda: line.scoring == 0)
        assert await line.run(lambda: "free", after(FOREVER), record()) == "free"

    asyncio.run(story())


def test_what_work_raises_arrives_even_a_timeout_of_its_own() -> None:
    def fail() -> None:
        raise TimeoutError("its own")

    async def story() -> None:
        with pytest.raises(TimeoutError, match="its own"):
            await Line(Queue(threads=1, waiting=0)).run(fail, after(FOREVER), record())

    asyncio.run(story())


def test_a_client_that_leaves_takes_its_work_out_of_the_line() -> None:
    async def story() -> None:
        line, release, begun = Line(Queue(threads=1, waiting=1)), threading.Event(), list[str]()
        first = await occupied(line, release)

        async def leaves() -> dict[str, Any]:
            await asyncio.sleep(0.05)
            return {"type": "http.disconnect"}

        with pytest.raises(ClientDisconnect):
            await unless_left(line.run(lambda: begun.append("left"), after(FOREVER), record()), leaves)
        assert line.waiting == 0
        release.set()
        await first
        assert begun == []

    asyncio.run(story())


async def _stays() -> dict[str, Any]:
    await asyncio.sleep(FOREVER)
    raise AssertionError("never")


def test_a_client_that_stays_gets_its_answer_and_the_servers_end_is_no_leaving() -> None:
    async def story() -> None:
        line = Line(Queue(threads=1, waiting=1))
        assert await unless_left(line.run(lambda: "answer", after(FOREVER), record()), _stays) == "answer"
        release = threading.Event()
        task = asyncio.ensure_future(unless_left(line.run(lambda: release.wait(10), after(FOREVER), record()), _stays))
        await until(lambda: line.scoring == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()

    asyncio.run(story())


def test_the_header_may_shorten_the_longest_time() -> None:
    assert allowed_seconds(None, 10.0) == 10.0
    assert allowed_seconds("250", 10.0) == 0.25
    assert allowed_seconds(" 007 ", 10.0) == 0.007
    assert allowed_seconds("60000", 10.0) == 10.0


@pytest.mark.parametrize("header", ["", "0", "-5", "1.5", "1e3", "soon", "٣", "9" * 30, "5 ms"])
def test_what_is_no_number_of_milliseconds_is_422(header: str) -> None:
    with pytest.raises(Problem) as refused:
        allowed_seconds(header, 10.0)
    assert refused.value.status == 422
    assert "X-Request-Timeout-Ms is " in refused.value.detail


def body_that_never_ends() -> Request:
    return Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, _stays)


@pytest.mark.parametrize(("patience", "given", "slug"), [(0.05, 9.0, "body-timeout"), (9.0, 0.05, "deadline-exceeded")])
def test_a_body_that_never_ends_is_given_up(patience: float, given: float, slug: str) -> None:
    async def story() -> None:
        bodies = Bodies(RequestLimits(), Connections(body_seconds=patience))
        with pytest.raises(Problem) as refused:
            await bodies.read(body_that_never_ends(), after(given), record())
        assert (refused.value.slug, refused.value.headers) == (slug, {"Connection": "close"})
        assert bodies.arriving == 0

    asyncio.run(story())


def test_only_so_many_bodies_arrive_at_the_same_time() -> None:
    async def story() -> None:
        bodies = Bodies(RequestLimits(), Connections(bodies=1))
        first = asyncio.ensure_future(bodies.read(body_that_never_ends(), after(FOREVER), record()))
        await until(lambda: bodies.arriving == 1)
        with pytest.raises(Problem, match="overloaded"):
            await bodies.read(body_that_never_ends(), after(FOREVER), record())
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert bodies.arriving == 0

    asyncio.run(story())
