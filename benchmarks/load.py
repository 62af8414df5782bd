"""Latency of /rank under load: capacity, then requests at shares of it, at five times it, and two seconds after that.

The gateway has one core and this program another. Capacity is what four clients get who ask one request after another.
The rest is open loop: requests come by chance (Poisson), whether those before are answered or not, and each one's time
counts from the moment at which it was meant to be sent.
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
from benchmarks.serving import DEMO, percentile, question_of
from features.errors import InputError, exit_code_of
from serving.ask import first_question, free_port, newest_manifest, running_gateway

SHARES = (0.25, 0.5, 0.75, 0.9)  # of capacity
TOO_MUCH = 5.0
CLIENTS = 4
REST = 2.0  # seconds after too much
SECONDS = 15.0
OK, OVERLOADED = 200, 503
CORES = sorted(os.sched_getaffinity(0))


class Answer(NamedTuple):
    """One request's fate. milliseconds: since it was meant to be sent."""

    status: int
    milliseconds: float


class Load:
    """Asks over as many connections as it takes; they stay open. bodies: of the requests, one after another."""

    def __init__(self, address: str, bodies: Iterator[bytes]) -> None:
        at = urlsplit(address)
        self._host, self._port = str(at.hostname), at.port
        self._head = f"POST /v1/rank HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Type: application/json\r\n"
        self._bodies = bodies
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, meant: float) -> Answer:
        """meant: time.perf_counter when the request was to be sent."""
        body = next(self._bodies)
        request = f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        reader, writer, lines = await self._answer_to(request)
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        answer = Answer(int(lines[0].split()[1]), 1000 * (time.perf_counter() - meant))
        if b"connection: close" in lines:
            writer.close()
        else:
            self._idle.append((reader, writer))
        return answer

    async def _answer_to(self, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, list[bytes]]:
        """Sends the request; the lines of the answer's head, in lower case."""
        while self._idle:
            reader, writer = self._idle.pop()
            try:
                writer.write(request)
                return reader, writer, (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):  # closed meanwhile, for it was idle for long
                writer.close()
        reader, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(request)
        return reader, writer, (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")

    async def one_after_another(self, seconds: float, clients: int = CLIENTS) -> float:
        """Answers a second that so many clients get."""
        began, answers = time.perf_counter(), 0

        async def client() -> int:
            count = 0
            while time.perf_counter() - began < seconds:
                count += (await self.ask(time.perf_counter())).status == OK
            return count

        answers = sum(await asyncio.gather(*(client() for _ in range(clients))))
        return answers / (time.perf_counter() - began)

    async def by_chance(self, rate: float, seconds: float) -> list[Answer]:
        """The answers to `rate` requests a second."""
        chance, asked = random.Random(7), []
        meant = began = time.perf_counter()
        while meant - began < seconds:
            await asyncio.sleep(max(meant - time.perf_counter(), 0))
            asked.append(asyncio.ensure_future(self.ask(meant)))
            meant += chance.expovariate(rate)
        return list(await asyncio.gather(*asked))


def _percentiles(name: str, answers: Iterable[Answer], status: int, peer: float | None = None) -> float:
    """Emits p50, p95 and p99 of the answers of a status; returns p99. peer: of p99."""
    taken = sorted(answer.milliseconds for answer in answers if answer.status == status) or [float("nan")]
    for label, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        emit(f"{name}_{label}", percentile(taken, share), "ms", peer=peer if label == "p99" else None)
    return percentile(taken, 0.99)


@contextmanager
def pinned_gateway(export_dir: Path, settings: Path) -> Iterator[str]:
    """A gateway on a core of its own, and this process on the others meanwhile; its address."""
    if len(CORES) < 2:
        raise InputError(f"this process may use {len(CORES)} core, expected 2: one for the gateway, one for the load")
    os.sched_setaffinity(0, CORES[:1])  # the gateway inherits it
    try:
        with running_gateway(export_dir, free_port(), settings) as address:
            os.sched_setaffinity(0, CORES[1:])
            yield address
    finally:
        os.sched_setaffinity(0, CORES)


async def bench_load(address: str, question: dict[str, object], items: int, seconds: float) -> None:
    load = Load(address, repeat(json.dumps(question).encode()))
    await load.one_after_another(2.0)  # not counted
    capacity = await load.one_after_another(seconds)
    emit("capacity", capacity, "requests/s")
    emit("capacity_pairs", capacity * items, "pairs/s")
    usual = float("nan")
    for share in SHARES:
        answers = await load.by_chance(share * capacity, seconds)
        p99 = _percentiles(f"load_{share:.0%}", answers, OK)
        usual = p99 if share == 0.75 else usual
        emit(f"load_{share:.0%}_refused", sum(answer.status != OK for answer in answers) / len(answers), "share")
    answers = await load.by_chance(TOO_MUCH * capacity, seconds)
    _percentiles(f"load_{TOO_MUCH:.0%}_accepted", answers, OK, peer=usual)
    _percentiles(f"load_{TOO_MUCH:.0%}_refused", answers, OVERLOADED)
    accepted = sum(answer.status == OK for answer in answers) / seconds
    emit(f"load_{TOO_MUCH:.0%}_accepted", accepted, "requests/s", peer=capacity)
    await asyncio.sleep(REST)
    _percentiles("load_75%_again", await load.by_chance(0.75 * capacity, seconds), OK, peer=usual)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python -m benchmarks.load --backend litert --items 100",
    )
    parser.add_argument("--export-dir", type=Path, default=DEMO, help=f"exported versions (default {DEMO})")
    parser.add_argument("--backend", default="embedded", help="embedded (the default) or litert")
    parser.add_argument("--items", type=int, default=100, help="items a request (default 100)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of each load (default {SECONDS:g})")
    given = parser.parse_args()
    question = question_of(first_question(newest_manifest(given.export_dir)), given.items)
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "settings.yaml")
        settings.write_text(f"backend: {given.backend}\n")
        with pinned_gateway(given.export_dir, settings) as address:
            asyncio.run(bench_load(address, question, given.items, given.seconds))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
