"""Slow or greedy clients are disconnected without effect on other clients."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.serving.operated import KEY, Operated

QUICK = {"query": "sofa", "items": ["sofa"]}
HEAD = f"POST /rank HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n".encode()


@contextmanager
def connected(operated: Operated) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", operated.gateway.port), timeout=30) as raw:
        yield raw


def read_to_end(raw: socket.socket) -> bytes:
    """All that comes until the gateway closes the connection."""
    found = b""
    try:
        while chunk := raw.recv(1 << 16):
            found += chunk
    except ConnectionResetError:
        pass  # closed while more was on its way to it
    return found


def trickle(raw: socket.socket, headers: int) -> None:
    for _ in range(headers):
        time.sleep(0.1)
        raw.sendall(b"X: y\r\n")


@pytest.fixture(autouse=True)
def others_are_answered(operated: Operated) -> Iterator[None]:
    yield
    assert operated.gateway.post(QUICK).status_code == 200
    assert [line["at"] for line in operated.gateway.logged("failed")] == []


def test_a_head_that_does_not_end_is_408(operated: Operated) -> None:
    counted = operated.gateway.metric('privrank_problems_total{problem="head-timeout"}')
    with connected(operated) as raw:
        raw.sendall(b"POST /rank HTTP/1.1\r\nHost: x\r\n")
        began = time.monotonic()
        found = read_to_end(raw)
        assert found.startswith(b"HTTP/1.1 408 ")
        assert b'"/problems/head-timeout"' in found
        assert 0.5 < time.monotonic() - began < 10
    assert operated.gateway.metric('privrank_problems_total{problem="head-timeout"}') == counted + 1


def test_a_head_that_arrives_byte_by_byte_times_out(operated: Operated) -> None:
    with connected(operated) as raw:
        raw.sendall(b"POST /rank HTTP/1.1\r\n")
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            trickle(raw, 300)


def test_a_connection_that_sends_nothing_is_closed(operated: Operated) -> None:
    with connected(operated) as raw:
        assert read_to_end(raw) == b""


def test_a_head_that_is_too_large_is_431(operated: Operated) -> None:
    with connected(operated) as raw:
        raw.sendall(HEAD + b"X-Long: " + b"x" * 5000)  # not ended
        assert read_to_end(raw).startswith(b"HTTP/1.1 431 ")
    with connected(operated) as raw:
        raw.sendall(HEAD + b"X-Long: " + b"x" * 5000 + b"\r\nContent-Length: 2\r\n\r\n{}")  # ended, in one piece
        found = read_to_end(raw)
        assert found.startswith(b"HTTP/1.1 431 ")
        assert b'"/problems/head-too-large"' in found
    with connected(operated) as raw:
        raw.sendall(b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_to_end(raw).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("framing", [b"Content-Length: 1000\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"])
def test_a_body_that_does_not_come_is_408(operated: Operated, framing: bytes) -> None:
    with connected(operated) as raw:
        raw.sendall(HEAD + framing)
        found = read_to_end(raw)
        assert found.startswith(b"HTTP/1.1 408 ")
        assert b'"/problems/body-timeout"' in found


def test_a_body_in_many_small_chunks_is_read(operated: Operated) -> None:
    body = b'{"query": "sofa", "items": ["sofa"]}'
    with connected(operated) as raw:
        raw.sendall(HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        for byte in body:
            raw.sendall(b"1\r\n%c\r\n" % byte)
        raw.sendall(b"0\r\n\r\n")
        assert read_to_end(raw).startswith(b"HTTP/1.1 200 ")


def test_slow_bodies_do_not_block_requests_that_have_arrived(operated: Operated) -> None:
    with ExitStack() as open_connections:
        for _ in range(20):  # many more than the line's places
            raw = open_connections.enter_context(connected(operated))
            raw.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
        assert operated.gateway.post(QUICK).status_code == 200


def test_connections_above_the_limit_get_a_problem(operated: Operated) -> None:
    with ExitStack() as open_connections:
        raws = [open_connections.enter_context(connected(operated)) for _ in range(60)]
        last = read_to_end(raws[-1])
        assert last.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in last
    operated.wait_until(lambda: operated.gateway.http.get("/livez").status_code == 200, "alive")


def test_requests_in_a_pipeline_are_answered_in_their_order(operated: Operated) -> None:
    def request(items: int, last: bytes = b"") -> bytes:
        body = b'{"query": "sofa", "items": [%b]}' % b", ".join([b'"a"'] * items)
        return HEAD + last + b"Content-Length: %d\r\n\r\n" % len(body) + body

    with connected(operated) as raw:
        raw.sendall(request(3) + request(1) + request(2, b"Connection: close\r\n"))
        found = read_to_end(raw)
        assert [int(part.split(b",")[0]) for part in found.split(b'"pairs":')[1:]] == [3, 1, 2]


def test_an_unread_response_is_aborted(operated: Operated) -> None:
    titles = b", ".join([b'"' + b"x" * 2000 + b'"'] * 1000)
    body = b'{"query": "sofa", "return_titles": true, "items": [%b]}' % titles
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(30)
        raw.connect(("127.0.0.1", operated.gateway.port))
        opened = operated.gateway.metric("process_open_fds")
        # two answers of 2 MB each: more than the kernel keeps for a client that does not read
        for _ in range(4):
            raw.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        operated.wait_until(lambda: operated.gateway.metric("process_open_fds") < opened, "closed")
