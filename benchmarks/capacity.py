"""Capacity of /rank by how the cores are used: one process, one a core, one whose calls of the model are joined.

Capacity is what clients get who ask one request after another. All gateways run all the time and take turns; those
whose turn it is not are idle. The load is on the same cores, which is as fair to the one as to the other. The CPU time
that a request takes is told as well, which other work on the machine hardly touches.
"""

import argparse
import asyncio
import http.client
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import yaml

from benchmarks.figures import emit
from benchmarks.load import Load
from benchmarks.serving import DEMO, question_of
from features.errors import InputError, exit_code_of
from serving.ask import READY_WITHIN, first_question, free_port, newest_manifest, running_gateway
from serving.settings import CORES

CLIENTS = 8
ITEMS = (10, 100)  # items a request
ROUNDS = 5  # each figure is the median of so many rounds
SECONDS = 5.0  # a round

ONE = "one_process"
WAYS: dict[str, dict[str, Any]] = {  # the gateway's settings
    ONE: {},
    "a_process_a_core": {"processes": {"number": CORES}},
    "joined_calls": {"queue": {"threads": 4 * CORES}, "batching": {"calls": CORES}},
}


def bench_capacity(export_dir: Path, backend: str, rounds: int, seconds: float) -> None:
    """Emits each way's requests a second; the peer is the one process. Errors: InputError."""
    if CORES < 2:
        raise InputError(f"this process may use {CORES} core, expected 2 or more")
    sample = first_question(newest_manifest(export_dir))
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        gateways = {way: _started(said, backend, export_dir, folder, running) for way, said in WAYS.items()}
        for items in ITEMS:
            body = json.dumps(question_of(sample, items)).encode()
            found: dict[str, list[Round]] = {way: [] for way in WAYS}
            for _ in range(rounds):
                for way, gateway in gateways.items():
                    found[way].append(asyncio.run(_round(gateway, body, seconds)))
            for unit, figure in (("requests/s", Round.capacity), ("CPU ms/request", Round.milliseconds)):
                medians = {way: statistics.median(map(figure, taken)) for way, taken in found.items()}
                for way, value in medians.items():
                    emit(f"{backend}_{items}_items_{way}", value, unit, peer=medians[ONE])


class Gateway(NamedTuple):
    """ports: at which each of its processes tells its metrics."""

    address: str
    ports: list[int]


class Round(NamedTuple):
    answers: float
    seconds: float
    cpu_seconds: float

    def capacity(self) -> float:
        return self.answers / self.seconds

    def milliseconds(self) -> float:
        return 1000 * self.cpu_seconds / self.answers


def _started(said: dict[str, Any], backend: str, export_dir: Path, folder: Path, running: ExitStack) -> Gateway:
    """A gateway whose processes are all ready."""
    port, own, settings = free_port(), free_port(), folder / "settings.yaml"
    number = said.get("processes", {}).get("number", 1)
    processes = {"number": number, "port": own}
    settings.write_text(yaml.safe_dump({**said, "backend": backend, "processes": processes}))
    address = running.enter_context(running_gateway(export_dir, port, settings))
    ports = [own + process for process in range(number)] if number > 1 else [port]
    for each in ports:
        _get(each, "/readyz")  # one of several answers at its own port once it is ready
    return Gateway(address, ports)


def _get(port: int, path: str) -> str:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=READY_WITHIN)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


async def _round(gateway: Gateway, body: bytes, seconds: float) -> Round:
    """By connections that are new: each round they fall to the processes by another chance."""
    load = Load(gateway.address, repeat(body))
    await load.one_after_another(1.0, CLIENTS)  # not counted
    cpu, began = _cpu_seconds(gateway), time.perf_counter()
    rate = await load.one_after_another(seconds, CLIENTS)
    taken = time.perf_counter() - began
    return Round(rate * taken, taken, _cpu_seconds(gateway) - cpu)


def _cpu_seconds(gateway: Gateway) -> float:
    """Of all its processes, since they began."""
    told = (line.split() for port in gateway.ports for line in _get(port, "/metrics").splitlines())
    return sum(float(value) for name, value, *_ in told if name == "process_cpu_seconds_total")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.capacity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python -m benchmarks.capacity --backend litert",
    )
    parser.add_argument("--export-dir", type=Path, default=DEMO, help=f"exported versions (default {DEMO})")
    parser.add_argument("--backend", default="embedded", help="embedded (the default) or litert")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each way (default {ROUNDS})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of each round (default {SECONDS:g})")
    given = parser.parse_args()
    bench_capacity(given.export_dir, given.backend, given.rounds, given.seconds)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
