"""Several processes that share a port: their own cores, ports and metrics, and the replacement of dead ones."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import httpx
import pytest
import yaml

from serving.settings import CORES
from tests.serving.observability.alerts import Timeline
from tests.serving.operated import ADMIN_KEY, KEY, hashed
from tests.serving.processes import START_SECONDS, GatewayProcess, bearer, run_serving

HUNG_SECONDS, KILL_SECONDS = 5.0, 1.0
SETTINGS = {
    "processes": {"number": 2, "port": 0, "hung_seconds": HUNG_SECONDS, "kill_seconds": KILL_SECONDS},
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

    def own_metrics(self, process: int) -> str:
        return httpx.get(f"{self.own[process]}/metrics", headers=bearer(KEY), timeout=60).text

    def own_metric(self, process: int, sample: str) -> float:
        lines = self.own_metrics(process).splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(sample + " ")), 0.0)


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


def test_each_process_has_its_own_cores_and_one_thread_per_core(several: Several) -> None:
    cores = [os.sched_getaffinity(pid) for pid in several.pids]
    assert len(cores) == 2
    assert not cores[0] & cores[1]
    assert cores[0] | cores[1] == os.sched_getaffinity(0)
    # they were spawned: each began as a new Python, not as a copy of one that had TensorFlow
    assert all(b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in several.pids)


def test_both_processes_serve_the_shared_port_and_their_own_metrics(several: Several) -> None:
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


def test_each_process_has_its_own_admin_port(several: Several) -> None:
    for address in several.admins:
        told = httpx.get(f"{address}/admin/versions", headers=bearer(ADMIN_KEY), timeout=60).json()
        assert told["model"]["version"] == 3


def test_a_port_of_another_gateway_is_refused_and_not_shared(several: Several, tmp_path: Path) -> None:
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


def test_a_hung_process_is_replaced_and_the_other_answers_meanwhile(several: Several) -> None:
    before, timelines = set(several.pids), [Timeline().hold(several.own_metrics(process), 20) for process in (0, 1)]
    assert not any(timeline.fires("PrivRankProcessReplaced") for timeline in timelines)
    victim = several.pids[0]
    ready = len(several.logged("ready"))
    os.kill(victim, signal.SIGSTOP)
    noticed = several.wait_for_log("process-hung")
    hung = noticed["process"]
    assert not answers_soon(several.own[hung])  # what others see of it until it is killed
    for _ in range(20):
        answer = httpx.post(f"{several.own[1 - hung]}/v1/rank", json=SOFAS, headers=bearer(KEY), timeout=60)
        assert answer.status_code == 200
    died = several.wait_for_log("process-died", reason="hung")
    assert (died["process"], died["exit_code"]) == (hung, -signal.SIGKILL)  # SIGTERM alone does not end it
    assert HUNG_SECONDS < noticed["silent_seconds"] + 0.1 < HUNG_SECONDS + 5
    took = datetime.fromisoformat(died["time"]) - datetime.fromisoformat(noticed["time"])
    assert took.total_seconds() < KILL_SECONDS + 5
    wait_until(lambda: len(several.logged("ready")) > ready, "another one is ready")
    after = set(several.pids)
    assert len(after) == 2
    assert victim not in after
    assert len(after - before) == 1
    for _ in range(20):  # new connections, of which each process gets its share
        answer = httpx.post(f"{several.address}/v1/rank", json=SOFAS, headers=bearer(KEY), timeout=60)
        assert answer.status_code == 200
    replacements = 'privrank_process_replacements_total{{reason="{}"}}'
    assert several.own_metric(hung, replacements.format("hung")) == 1
    assert several.own_metric(1 - hung, replacements.format("hung")) == 0
    assert sum(several.own_metric(process, replacements.format("died")) for process in (0, 1)) == 1  # the killed one
    timelines = [timeline.hold(several.own_metrics(process), 1) for process, timeline in enumerate(timelines)]
    assert [alert["reason"] for alert in timelines[hung].fires("PrivRankProcessReplaced")] == ["hung"]
    assert not timelines[1 - hung].fires("PrivRankProcessReplaced")


def answers_soon(address: str) -> bool:
    try:
        return httpx.get(f"{address}/livez", timeout=0.5).status_code == 200
    except httpx.TransportError:
        return False


def test_after_sigterm_all_end(several: Several) -> None:
    pids = several.pids
    several.terminate()
    assert several.wait() == 0
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert len(several.logged("ended")) == 2
    assert not any("Traceback" in line for line in several.log)


def test_the_processes_end_when_their_parent_is_killed(shop_export: Path, tmp_path: Path) -> None:
    settings = tmp_path / "gateway.yaml"
    settings.write_text(yaml.safe_dump(SETTINGS))
    with Several(shop_export, settings) as gateway:
        pids = gateway.pids
        os.kill(gateway.pid, signal.SIGKILL)
        gateway.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "they are gone")


def test_processes_that_are_not_ready_in_time_are_replaced(shop_export: Path, tmp_path: Path) -> None:
    settings = tmp_path / "gateway.yaml"
    limits = {"number": 2, "port": 0, "start_seconds": 1.0, "kill_seconds": 1.0}  # less than TensorFlow's import takes
    settings.write_text(yaml.safe_dump(SETTINGS | {"processes": limits}))
    with Several(shop_export, settings) as gateway:
        for process in (0, 1):
            assert not gateway.wait_for_log("process-hung", process=process)["was_ready"]
            gateway.wait_for_log("process-died", process=process, reason="hung")
        gateway.wait_for_log("process-died", process=0, again_in_seconds=2.0)  # the second in a row
        began = time.monotonic()
        gateway.terminate()
        gateway.wait()
        assert time.monotonic() - began < 30


def test_a_hung_process_does_not_keep_the_gateway_from_ending(shop_export: Path, tmp_path: Path) -> None:
    settings = tmp_path / "gateway.yaml"
    settings.write_text(yaml.safe_dump(SETTINGS))
    with Several(shop_export, settings) as gateway:
        gateway.wait_until_all_are_ready()
        pids = gateway.pids
        os.kill(pids[1], signal.SIGSTOP)
        gateway.terminate()
        assert gateway.wait() == 0
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        assert len(gateway.logged("ended")) == 1


def test_a_process_that_hangs_before_it_is_ready_does_not_keep_the_gateway_from_ending(
    shop_export: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "gateway.yaml"
    settings.write_text(yaml.safe_dump(SETTINGS))
    with Several(shop_export, settings) as gateway:
        pids = gateway.pids
        os.kill(pids[1], signal.SIGSTOP)  # while it imports TensorFlow
        gateway.terminate()
        assert gateway.wait() == 0
        assert not gateway.wait_for_log("process-hung", process=1)["was_ready"]
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.slow
def test_processes_without_a_model_end_with_the_reason(tmp_path: Path) -> None:
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
