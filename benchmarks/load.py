"""Latency of /rank under load: capacity, shares of capacity, five times capacity, and recovery after two seconds.

The gateway has one core and this program another. Capacity is the throughput of four closed-loop clients. The other
loads are open loop: requests arrive as a Poisson process, independent of responses, and latency counts from the time
at which a request was due.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.figures import emit
from benchmarks.serving import DEMO_EXPORT, percentile, request_with_items
from features.errors import InputError, exit_code_of
from serving.smoke_test import first_warm_up_request, free_port, newest_manifest, running_gateway

_LOAD_SHARES = (0.25, 0.5, 0.75, 0.9)  # of capacity
_OVERLOAD = 5.0  # multiple of capacity
_CLIENTS = 4
_RECOVERY_SECONDS = 2.0  # seconds between overload and the next measurement
_ROUND_SECONDS = 15.0
OK, _OVERLOADED = 200, 503
_CPU_IDS = sorted(os.sched_getaffinity(0))


class TimedResponse(NamedTuple):
    """Status of one response. milliseconds: since the request was due."""

    status: int
    milliseconds: float


class LoadGenerator:
    """Sends requests over keep-alive connections, opened on demand. bodies: the request bodies in order."""

    def __init__(self, address: str, bodies: Iterator[bytes]) -> None:
        at = urlsplit(address)
        self._host, self._port = str(at.hostname), at.port
        self._head = f"POST /v1/rank HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Type: application/json\r\n"
        self._bodies = bodies
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, due: float) -> TimedResponse:
        """Sends the next request. due: time.perf_counter() at which it should be sent."""
        body = next(self._bodies)
        request = f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        reader, writer, lines = await self._exchange(request)
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        answer = TimedResponse(int(lines[0].split()[1]), 1000 * (time.perf_counter() - due))
        if b"connection: close" in lines:
            writer.close()
        else:
            self._idle.append((reader, writer))
        return answer

    async def _exchange(self, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, list[bytes]]:
        """Sends the request. Returns the connection and the response's header lines in lower case."""
        while self._idle:
            reader, writer = self._idle.pop()
            try:
                writer.write(request)
                return reader, writer, (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):  # closed by the server while idle
                writer.close()
        reader, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(request)
        return reader, writer, (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")

    async def closed_loop(self, seconds: float, clients: int = _CLIENTS) -> float:
        """Successful responses/s of clients that each send one request after another."""
        began, answers = time.perf_counter(), 0

        async def client() -> int:
            count = 0
            while time.perf_counter() - began < seconds:
                count += (await self.send(time.perf_counter())).status == OK
            return count

        answers = sum(await asyncio.gather(*(client() for _ in range(clients))))
        return answers / (time.perf_counter() - began)

    async def open_loop(self, rate: float, seconds: float) -> list[TimedResponse]:
        """The responses to Poisson arrivals of `rate` requests/s."""
        chance, tasks = random.Random(7), []
        due = began = time.perf_counter()
        while due - began < seconds:
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            tasks.append(asyncio.ensure_future(self.send(due)))
            due += chance.expovariate(rate)
        return list(await asyncio.gather(*tasks))


def _percentiles(name: str, answers: Iterable[TimedResponse], status: int, peer: float | None = None) -> float:
    """Emits p50, p95 and p99 of the responses with a status. Returns p99. peer: peer of p99."""
    taken = sorted(answer.milliseconds for answer in answers if answer.status == status) or [float("nan")]
    for label, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        emit(f"{name}_{label}", percentile(taken, share), "ms", peer=peer if label == "p99" else None)
    return percentile(taken, 0.99)


@contextmanager
def pinned_gateway(export_dir: Path, settings: Path) -> Iterator[str]:
    """Runs a gateway on its own core and this process on the others. Yields the gateway's address."""
    if len(_CPU_IDS) < 2:
        raise InputError(
            f"this process may use {len(_CPU_IDS)} core, expected 2: one for the gateway, one for the load"
        )
    os.sched_setaffinity(0, _CPU_IDS[:1])  # the gateway inherits it
    try:
        with running_gateway(export_dir, free_port(), settings) as address:
            os.sched_setaffinity(0, _CPU_IDS[1:])
            yield address
    finally:
        os.sched_setaffinity(0, _CPU_IDS)


async def bench_load(address: str, body: dict[str, object], items: int, seconds: float) -> None:
    load = LoadGenerator(address, repeat(json.dumps(body).encode()))
    await load.closed_loop(2.0)  # not counted
    capacity = await load.closed_loop(seconds)
    emit("capacity", capacity, "requests/s")
    emit("capacity_pairs", capacity * items, "pairs/s")
    baseline = float("nan")
    for share in _LOAD_SHARES:
        answers = await load.open_loop(share * capacity, seconds)
        p99 = _percentiles(f"load_{share:.0%}", answers, OK)
        baseline = p99 if share == 0.75 else baseline
        emit(f"load_{share:.0%}_refused", sum(answer.status != OK for answer in answers) / len(answers), "share")
    answers = await load.open_loop(_OVERLOAD * capacity, seconds)
    _percentiles(f"load_{_OVERLOAD:.0%}_accepted", answers, OK, peer=baseline)
    _percentiles(f"load_{_OVERLOAD:.0%}_refused", answers, _OVERLOADED)
    accepted = sum(answer.status == OK for answer in answers) / seconds
    emit(f"load_{_OVERLOAD:.0%}_accepted", accepted, "requests/s", peer=capacity)
    await asyncio.sleep(_RECOVERY_SECONDS)
    _percentiles("load_75%_again", await load.open_loop(0.75 * capacity, seconds), OK, peer=baseline)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python -m benchmarks.load --backend litert --items 100",
    )
    parser.add_argument(
        "--export-dir", type=Path, default=DEMO_EXPORT, help=f"exported versions (default {DEMO_EXPORT})"
    )
    parser.add_argument("--backend", default="embedded", help="embedded (the default) or litert")
    parser.add_argument("--items", type=int, default=100, help="items a request (default 100)")
    parser.add_argument(
        "--seconds", type=float, default=_ROUND_SECONDS, help=f"of each load (default {_ROUND_SECONDS:g})"
    )
    given = parser.parse_args()
    body = request_with_items(first_warm_up_request(newest_manifest(given.export_dir)), given.items)
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "settings.yaml")
        settings.write_text(f"backend: {given.backend}\n")
        with pinned_gateway(given.export_dir, settings) as address:
            asyncio.run(bench_load(address, body, given.items, given.seconds))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
