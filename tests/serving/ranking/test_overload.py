"""Overload: which requests are refused, how fast, and which are never scored. One thread, a queue of two."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from tests.serving.api.test_bad_requests import problem_of
from tests.serving.operated import KEY, Operated
from tests.serving.processes import bearer

SLOW = {"query": "sofa", "items": ["slow sofa"]}  # seconds in the only thread
QUICK = {"query": "sofa", "items": ["sofa"]}


def ask(operated: Operated, body: object, **headers: str) -> httpx.Response:
    return httpx.post(f"{operated.gateway.address}/v1/rank", json=body, headers=bearer(KEY) | headers, timeout=60)


@pytest.fixture
def busy(operated: Operated) -> Iterator["Future[httpx.Response]"]:
    """A request that a thread is scoring."""
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(ask, operated, SLOW)
        operated.wait_until(lambda: operated.gateway.metric("privrank_queue_scoring") == 1, "scoring")
        yield slow


def answered(operated: Operated) -> float:
    return operated.gateway.metric(f'privrank_answers_total{{version="{operated.serving()}"}}')


def test_excess_requests_are_refused_at_once_with_retry_after_and_the_rest_is_answered(operated: Operated) -> None:
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: ask(operated, SLOW), range(10)))
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(answers) - len(refused) == 1 + 2
    for answer in refused:
        problem_of(answer, 503, "overloaded")
        assert answer.headers["retry-after"] == "1"
    slowest_accepted = max(answer.elapsed for answer in answers if answer.status_code == 200)
    assert max(answer.elapsed for answer in refused) < slowest_accepted / 3
    assert ask(operated, QUICK).status_code == 200


def test_a_request_that_expires_in_the_queue_gets_504_and_is_never_scored(
    operated: Operated, busy: "Future[httpx.Response]"
) -> None:
    before = answered(operated)
    late = ask(operated, QUICK, **{"X-Request-Timeout-Ms": "150"})
    problem_of(late, 504, "deadline-exceeded")
    assert not busy.done()
    assert operated.gateway.metric("privrank_queue_waiting") == 0
    assert busy.result().status_code == 200
    assert answered(operated) == before + 1


def test_a_queued_request_is_never_scored_after_its_client_disconnects(
    operated: Operated, busy: "Future[httpx.Response]"
) -> None:
    before, left = answered(operated), operated.gateway.metric("privrank_client_disconnects_total")
    body = json.dumps(QUICK).encode()
    head = f"POST /rank HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", operated.gateway.port), timeout=10) as raw:
        raw.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        operated.wait_until(lambda: operated.gateway.metric("privrank_queue_waiting") == 1, "waiting")
    operated.wait_until(lambda: operated.gateway.metric("privrank_client_disconnects_total") == left + 1, "left")
    assert operated.gateway.metric("privrank_queue_waiting") == 0
    assert busy.result().status_code == 200
    assert answered(operated) == before + 1


def test_health_metrics_and_refusals_are_answered_while_the_queue_is_full(operated: Operated) -> None:
    with ThreadPoolExecutor(3) as pool:
        slow = [pool.submit(ask, operated, SLOW) for _ in range(3)]
        operated.wait_until(lambda: operated.gateway.metric("privrank_queue_waiting") == 2, "full")
        # refused before its body is read; sent first, while the queue is still full
        problem_of(operated.gateway.post(b"no JSON"), 503, "overloaded")
        assert operated.gateway.http.get("/readyz").status_code == 200
        assert [future.result().status_code for future in slow] == [200] * 3
