"""Capacity of /rank by use of the cores: one process, one process per core, or one process that batches model calls.

Capacity is the throughput of closed-loop clients. All gateways keep running and are measured in turn, while the others
are idle. The load generator shares their cores. CPU time per request is emitted as well, because other work on the
machine hardly affects it.
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
from benchmarks.load import LoadGenerator
from benchmarks.serving import DEMO_EXPORT, request_with_items
from features.errors import InputError, exit_code_of
from serving.settings import CORES
from serving.smoke_test import READY_TIMEOUT, first_warm_up_request, free_port, newest_manifest, running_gateway

_CLIENTS = 8
_ITEMS = (10, 100)  # items per request
_ROUNDS = 5  # each figure is the median of the rounds
_SECONDS = 5.0  # per round

_ONE_PROCESS = "one_process"
_SETUPS: dict[str, dict[str, Any]] = {  # name -> gateway settings
    _ONE_PROCESS: {},
    "a_process_a_core": {"processes": {"number": CORES}},
    "joined_calls": {"queue": {"threads": 4 * CORES}, "batching": {"calls": CORES}},
}


def bench_capacity(export_dir: Path, backend: str, rounds: int, seconds: float) -> None:
    """Emits requests/s and CPU ms/request of each setup; the peer is one process. Errors: InputError."""
    if CORES < 2:
        raise InputError(f"this process may use {CORES} core, expected 2 or more")
    sample = first_warm_up_request(newest_manifest(export_dir))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gateways = {
            setup: _start_gateway(settings, backend, export_dir, folder, stack) for setup, settings in _SETUPS.items()
        }
        for items in _ITEMS:
            body = json.dumps(request_with_items(sample, items)).encode()
            results: dict[str, list[CapacityRound]] = {setup: [] for setup in _SETUPS}
            for _ in range(rounds):
                for setup, gateway in gateways.items():
                    results[setup].append(asyncio.run(_round(gateway, body, seconds)))
            for unit, figure in (
                ("requests/s", CapacityRound.capacity),
                ("CPU ms/request", CapacityRound.cpu_milliseconds),
            ):
                medians = {setup: statistics.median(map(figure, measured)) for setup, measured in results.items()}
                for setup, value in medians.items():
                    emit(f"{backend}_{items}_items_{setup}", value, unit, peer=medians[_ONE_PROCESS])


class RunningGateway(NamedTuple):
    """ports: the metrics port of each process."""

    address: str
    ports: list[int]


class CapacityRound(NamedTuple):
    responses: float
    seconds: float
    cpu_seconds: float

    def capacity(self) -> float:
        return self.responses / self.seconds

    def cpu_milliseconds(self) -> float:
        return 1000 * self.cpu_seconds / self.responses


def _start_gateway(
    overrides: dict[str, Any], backend: str, export_dir: Path, folder: Path, stack: ExitStack
) -> RunningGateway:
    """Starts a gateway and waits until all its processes are ready."""
    port, metrics_port, settings_file = free_port(), free_port(), folder / "settings.yaml"
    number = overrides.get("processes", {}).get("number", 1)
    processes = {"number": number, "port": metrics_port}
    settings_file.write_text(yaml.safe_dump({**overrides, "backend": backend, "processes": processes}))
    address = stack.enter_context(running_gateway(export_dir, port, settings_file))
    ports = [metrics_port + process for process in range(number)] if number > 1 else [port]
    for each in ports:
        _get(each, "/readyz")  # each process answers at its own port once it is ready
    return RunningGateway(address, ports)


def _get(port: int, path: str) -> str:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=READY_TIMEOUT)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


async def _round(gateway: RunningGateway, body: bytes, seconds: float) -> CapacityRound:
    """Measures one round over new connections, so that each round distributes them anew among the processes."""
    load = LoadGenerator(gateway.address, repeat(body))
    await load.closed_loop(1.0, _CLIENTS)  # not counted
    cpu, started = _cpu_seconds(gateway), time.perf_counter()
    rate = await load.closed_loop(seconds, _CLIENTS)
    elapsed = time.perf_counter() - started
    return CapacityRound(rate * elapsed, elapsed, _cpu_seconds(gateway) - cpu)


def _cpu_seconds(gateway: RunningGateway) -> float:
    """CPU seconds of all processes of the gateway since their start."""
    metrics = (line.split() for port in gateway.ports for line in _get(port, "/metrics").splitlines())
    return sum(float(value) for name, value, *_ in metrics if name == "process_cpu_seconds_total")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.capacity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python -m benchmarks.capacity --backend litert",
    )
    parser.add_argument(
        "--export-dir", type=Path, default=DEMO_EXPORT, help=f"exported versions (default {DEMO_EXPORT})"
    )
    parser.add_argument("--backend", default="embedded", help="embedded (the default) or litert")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"of each setup (default {_ROUNDS})")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help=f"of each round (default {_SECONDS:g})")
    given = parser.parse_args()
    bench_capacity(given.export_dir, given.backend, given.rounds, given.seconds)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
