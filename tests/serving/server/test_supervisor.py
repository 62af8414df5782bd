"""Several processes behind one port: what each has to itself, and what becomes of one that is killed."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import yaml

from serving.settings import CORES
from tests.serving.operated import ADMIN_KEY, KEY, hashed
from tests.serving.processes import START_SECONDS, GatewayProcess, bearer, run_serving

SETTINGS = {
    "processes": {"number": 2, "port": 0},
    "api_keys": [hashed("shop", KEY)],
    "drain_seconds": 0.0,
    "admin": {"port": 0, "keys": [hashed("operator", ADMIN_KEY)]},
}
SOFAS = {"query": "blue sofa", "items": ["blue sofa", "red sofa", "table"]}
pytestmark = pytest.mark.skipif(CORES < 2, reason="each process has a core at least")


class Several(GatewayProcess):
    """A gateway of two processes. own: where each is reached alone; admins: its administration."""

    def __init__(self, export_dir: Path, settings: Path) -> None:
        super().__init__(export_dir, settings, key=KEY)
        assert self._process.stdout is not None
        said = [self._process.stdout.readline() for _ in range(2)]
        addresses = [re.findall(r"http://[^\s,/]+", line) for line in said]
        self.own = [own for own, _ in addresses]
        self.admins = [admin for _, admin in addresses]

    @property
    def pids(self) -> list[int]:
        """Of the gateway processes; the parent has a child besides that watches over its resources."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]

    def wait_until_all_are_ready(self) -> None:
        self.wait_for_log("ready", process=0)
        self.wait_for_log("ready", process=1)

    def own_metric(self, process: int, sample: str) -> float:
        text = httpx.get(f"{self.own[process]}/metrics", headers=bearer(KEY), timeout=60).text
        return next((float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(sample + " ")), 0.0)


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def several(shop_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    settings = tmp_path_factory.mktemp("several") / "gateway.yaml"
    settings.write_text(yaml.safe_dump(SETTINGS))
    with Several(shop_export, settings) as gateway:
        gateway.wait_until_all_are_ready()
        yield gateway


def test_each_process_has_cores_of_its_own_and_a_thread_for_each(several: Several) -> None:
    cores = [os.sched_getaffinity(pid) for pid in several.pids]
    assert len(cores) == 2
    assert not cores[0] & cores[1]
    assert cores[0] | cores[1] == os.sched_getaffinity(0)
    # they were spawned: each began as a new Python, not as a copy of one that had TensorFlow
    assert all(b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in several.pids)


def test_both_answer_at_the_shared_port_and_each_tells_its_own_metrics(several: Several) -> None:
    def answered() -> list[float]:
        return [several.own_metric(process, 'privrank_answers_total{version="3"}') for process in (0, 1)]

    for address in several.own:
        answer = httpx.post(f"{address}/v1/rank", json=SOFAS, headers=bearer(KEY), timeout=60)
        assert answer.status_code == 200
    assert min(answered()) >= 1
    before = answered()
    with ExitStack() as open_at_once:
        clients = [open_at_once.enter_context(httpx.Client(timeout=60)) for _ in range(40)]
        with ThreadPoolExecutor(len(clients)) as pool:  # a burst of connections
            statuses = list(pool.map(lambda client: client.get(f"{several.address}/livez").status_code, clients))
        statuses += [
            client.post(f"{several.address}/v1/rank", json=SOFAS, headers=bearer(KEY)).status_code for client in clients
        ]
    assert set(statuses) == {200}
    answers = [now - then for now, then in zip(answered(), before, strict=True)]
    assert sum(answers) == 40
    assert min(answers) >= 5  # by chance fewer, once in ten million times
    assert several.http.get("/metrics").status_code == 404  # one process's would be told as if they were all


def test_each_process_has_an_administration_of_its_own(several: Several) -> None:
    for address in several.admins:
        told = httpx.get(f"{address}/admin/versions", headers=bearer(ADMIN_KEY), timeout=60).json()
        assert told["model"]["version"] == 3


def test_a_port_that_another_gateway_has_is_refused_and_not_shared(several: Several, tmp_path: Path) -> None:
    settings = tmp_path / "gateway.yaml"
    settings.write_text(yaml.safe_dump(SETTINGS))
    port = several.address.rpartition(":")[2]
    ended = run_serving("--export-dir", str(tmp_path), "--port", port, "--settings", str(settings))
    assert ended.returncode == 2
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in ended.stderr


def test_a_killed_process_is_replaced_and_the_other_answers_meanwhile(several: Several) -> None:
    before, statuses, ended = set(several.pids), list[int](), threading.Event()

    def ask() -> None:
        while not ended.is_set():
            answer = httpx.post(f"{several.address}/v1/rank", json=SOFAS, headers=bearer(KEY), timeout=60)
            statuses.append(answer.status_code)

    victim = several.pids[0]
    os.kill(victim, signal.SIGKILL)
    died = several.wait_for_log("process-died")
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        ready = len(several.logged("ready"))
        wait_until(lambda: len(several.logged("ready")) > ready, "another one is ready")
    finally:
        ended.set()
        asking.join()
    assert died["exit_code"] == -signal.SIGKILL
    assert statuses
    assert set(statuses) == {200}  # none was told that a process is not ready
    after = set(several.pids)
    assert len(after) == 2
    assert after - before
    assert victim not in after


def test_after_sigterm_all_end(several: Several) -> None:
    pids = several.pids
    several.terminate()
    assert several.wait() == 0
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert len(several.logged("ended")) == 2
    assert not any("Traceback" in line for line in several.log)


def test_a_killed_parent_takes_its_processes_with_it(shop_export: Path, tmp_path: Path) -> None:
    settings = tmp_path / "gateway.yaml"
    settings.write_text(yaml.safe_dump(SETTINGS))
    with Several(shop_export, settings) as gateway:
        pids = gateway.pids
        os.kill(gateway.pid, signal.SIGKILL)
        gateway.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "they are gone")


@pytest.mark.slow
def test_processes_that_find_nothing_to_serve_end_with_the_reason(tmp_path: Path) -> None:
    settings = tmp_path / "gateway.yaml"
    settings.write_text(yaml.safe_dump(SETTINGS))
    ended = run_serving("--export-dir", str(tmp_path), "--port", "0", "--settings", str(settings))
    assert ended.returncode == 2
    assert "error: " in ended.stderr
    assert "holds no complete version" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_more_processes_than_cores_are_refused(tmp_path: Path) -> None:
    settings = tmp_path / "gateway.yaml"
    settings.write_text(yaml.safe_dump({"processes": {"number": 1000}}))
    ended = run_serving("--export-dir", str(tmp_path), "--port", "0", "--settings", str(settings))
    assert ended.returncode == 2
    assert f"error: processes.number is 1000, but this process may use {CORES} cores" in ended.stderr
