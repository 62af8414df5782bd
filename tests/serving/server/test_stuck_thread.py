"""A scoring thread whose model call never returns: the queue behind it, and the end of the process."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.serving.api.test_bad_requests import problem_of
from tests.serving.api.test_hostile_bodies import memory
from tests.serving.processes import GatewayProcess

SETTINGS = {
    "queue": {"threads": 1, "waiting": 16, "request_seconds": 60.0},
    "drain_seconds": 0.1,
    "finish_seconds": 1,
}
STUCK = {"query": "sofa", "items": ["slow sofa"]}
CANCELLED, CLIENTS = 400, 8


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose call with the token `slow` takes days."""
    from tests.serving import exported_models

    folder = tmp_path_factory.mktemp("stuck")
    exported_models.export(folder, module=exported_models.Overlap(exported_models.SHOP, rounds=2**30))
    (folder / "gateway.yaml").write_text(yaml.safe_dump(SETTINGS))
    return folder


@pytest.fixture
def stuck(export: Path) -> Iterator[GatewayProcess]:
    """A gateway whose only scoring thread is in that call."""
    with GatewayProcess(export, export / "gateway.yaml") as gateway:
        gateway.wait_until_ready()
        problem_of(gateway.post(STUCK, headers={"X-Request-Timeout-Ms": "500"}), 504, "deadline-exceeded")
        assert gateway.metric("privrank_queue_scoring") == 1
        yield gateway
        gateway.kill()


async def leave(gateway: GatewayProcess, requests: int, waits_for: float) -> None:
    """Sends requests of 1 MiB, one after another, and leaves each before its answer."""
    body = json.dumps({"query": "sofa", "items": ["x" * (1 << 20)]}).encode()
    head = b"POST /rank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    for _ in range(requests):
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(head + body)
        await writer.drain()
        await asyncio.sleep(waits_for)
        writer.close()


def test_cancelled_requests_leave_nothing_behind(stuck: GatewayProcess) -> None:
    async def leave_all(requests: int) -> None:
        await asyncio.gather(*(leave(stuck, requests // CLIENTS, 0.02) for _ in range(CLIENTS)))

    asyncio.run(leave_all(10 * CLIENTS))  # what buffers for as many clients take is no growth
    before, left = memory(stuck, "VmRSS"), stuck.metric("privrank_client_disconnects_total")
    began = time.perf_counter()
    asyncio.run(leave_all(CANCELLED))
    deadline = time.monotonic() + 30
    while stuck.metric("privrank_queue_waiting") and time.monotonic() < deadline:
        time.sleep(0.05)
    growth = memory(stuck, "VmRSS") - before
    print(f"{CANCELLED} cancelled in {time.perf_counter() - began:.1f} s: {growth:.0f} MB more")
    assert stuck.metric("privrank_client_disconnects_total") - left > 0.9 * CANCELLED
    assert (stuck.metric("privrank_queue_waiting"), stuck.metric("privrank_queue_scoring")) == (0, 1)
    assert growth < 50


def test_sigterm_ends_the_process(stuck: GatewayProcess) -> None:
    began = time.monotonic()
    stuck.terminate()
    assert stuck.wait() == 1
    assert time.monotonic() - began < 10
    assert stuck.logged("threads-abandoned")[0]["threads"] == 1
