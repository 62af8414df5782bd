"""Every command of the images ends on SIGTERM, as process 1 of a container too; real processes, no container engine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from features.termination import CLEANUP_SECONDS, SIGTERM_EXIT_CODE
from tests.beam_jobs.datasets import write_task as write_beam_task
from tests.beam_jobs.log_lines import impression, write_jsonl
from tests.serving import exported_models
from tests.trainer.shop import NUMBERS, write_shop

ROOT = Path(__file__).parents[1]
AS_PROCESS_1 = ("unshare", "--pid", "--fork", "--kill-child")  # of a PID namespace, as in a container
PROMPT_SECONDS = 20.0  # most of them for a busy machine: the slowest takes CLEANUP_SECONDS and the exit's own time
COMMANDS = {
    "simulator": ("--config", "configs/product_search.yaml", "--output", "build/x"),
    "beam_jobs.build_elwc": ("--config", "configs/product_search.yaml", "--input", "x", "--output", "build/x"),
    "beam_jobs.build_vocabulary": ("--config", "configs/product_search.yaml", "--dataset", "x", "--output", "build/x"),
    "beam_jobs.compare_datasets": ("x", "y"),
    "beam_jobs.letor_to_elwc": ("--config", "configs/product_search.yaml", "--output", "build/x"),
    "trainer": (
        "fit",
        "--config",
        "configs/product_search.yaml",
        "--dataset",
        "build/x/dataset",
        "--workdir",
        "build/x/run",
    ),
    "serving": ("--export-dir", "build/x"),
}


@cache
def can_be_process_1() -> bool:
    try:
        return subprocess.run([*AS_PROCESS_1, "true"], capture_output=True, timeout=30).returncode == 0
    except FileNotFoundError:
        return False


def child_of(pid: int) -> int:
    """The first child of a process, once it is there."""
    children, deadline = Path(f"/proc/{pid}/task/{pid}/children"), time.monotonic() + 30
    while not (found := children.read_text().split()):
        assert time.monotonic() < deadline, "unshare started nothing"
        time.sleep(0.01)
    return int(found[0])


class Command:
    """A Python command; process 1 of a PID namespace where the kernel lets us make one.

    Elsewhere it is a process as any other, which tells a handler from the kernel's default action by the exit code.
    """

    def __init__(self, *arguments: str, python_path: Path = ROOT) -> None:
        prefix = AS_PROCESS_1 if can_be_process_1() else ()
        self._started = subprocess.Popen(
            [*prefix, sys.executable, *arguments],
            cwd=ROOT,
            env=os.environ
            | {"PYTHONPATH": str(python_path), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._pid = child_of(self._started.pid) if prefix else self._started.pid

    def wait_for_line(self, start: str) -> None:
        assert self._started.stdout is not None
        lines = []
        for line in self._started.stdout:
            lines.append(line)
            if line.startswith(start):
                return
        raise AssertionError(f"it ended before {start!r}: {lines}, {self._started.communicate()[1]}")

    def terminated(self) -> tuple[int, float, str]:
        """Sends SIGTERM. Returns the exit code, the seconds that it took, and stderr."""
        began = time.monotonic()
        os.kill(self._pid, signal.SIGTERM)
        _, error = self._started.communicate(timeout=PROMPT_SECONDS)
        return self._started.returncode, time.monotonic() - began, error

    def kill(self) -> None:
        if self._started.poll() is None:
            os.kill(self._pid, signal.SIGKILL)
        self._started.communicate()


@contextmanager
def running(*arguments: str, python_path: Path = ROOT) -> Iterator[Command]:
    command = Command(*arguments, python_path=python_path)
    try:
        yield command
    finally:
        command.kill()


@pytest.mark.parametrize("module", COMMANDS)
def test_a_command_ends_while_it_is_still_importing(module: str, tmp_path: Path) -> None:
    # the imports take seconds on a busy machine; here the first slow one never returns
    for package in ("apache_beam", "numpy", "tensorflow", "uvicorn"):
        (tmp_path / f"{package}.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(300)\n")
    with running("-m", module, *COMMANDS[module], python_path=tmp_path) as command:
        command.wait_for_line("importing")
        code, seconds, error = command.terminated()
    assert code == SIGTERM_EXIT_CODE == 143
    assert seconds < CLEANUP_SECONDS
    assert "Traceback" not in error


def test_the_simulator_ends_with_its_workers_and_leaves_nothing(tmp_path: Path) -> None:
    command = ("simulator", "--config", "configs/product_search.yaml", "--output", str(tmp_path / "logs"))
    with running("-m", *command) as simulating:
        simulating.wait_for_line("simulating")
        time.sleep(2)
        assert_ended_clean(simulating)
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []


def test_build_elwc_ends_within_a_pipeline_and_leaves_nothing(tmp_path: Path) -> None:
    write_beam_task(tmp_path)
    shown: list[Any] = [impression(f"r{n}", f"query {n}", "p1", "p2") for n in range(40_000)]
    write_jsonl(tmp_path / "events.jsonl", *shown)
    given = ("--config", str(tmp_path / "task.yaml"), "--input", str(tmp_path / "events.jsonl"))
    with running("-m", "beam_jobs.build_elwc", *given, "--output", str(tmp_path / "dataset")) as building:
        building.wait_for_line("building")
        time.sleep(2)  # a pipeline runs
        assert_ended_clean(building)
    left = {path.name for path in tmp_path.iterdir()} - {".dataset.lock"}
    assert left == {"task.yaml", "events.jsonl"}


def test_the_trainer_ends_within_a_training_and_leaves_no_finished_stage(tmp_path: Path) -> None:
    task = write_shop(tmp_path, NUMBERS)
    config = yaml.safe_load(task.read_text())
    config["training"] |= {"steps": 10**7, "evaluate_every": 10**7}  # hours without a validation
    task.write_text(yaml.safe_dump(config))
    given = ("--config", str(task), "--dataset", str(tmp_path / "dataset"), "--workdir", str(tmp_path / "run"))
    with running("-m", "trainer", "fit", *given) as training:
        training.wait_for_line("== teacher")
        time.sleep(4)  # it trains
        assert_ended_clean(training)
    names = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*")}
    assert {name for name in names if not name.startswith(("teachers", "tensorboard"))} == {
        "config.yaml",
        "manifest.json",
    }
    assert not [name for name in names if name.startswith("teachers/") and name.endswith("manifest.json")]


def assert_ended_clean(command: Command) -> None:
    code, seconds, error = command.terminated()
    assert (code, error) == (SIGTERM_EXIT_CODE, "terminated; nothing half-written was left in place\n")
    assert seconds < CLEANUP_SECONDS + 5


def test_a_command_in_native_code_ends_too() -> None:
    # native code that no signal interrupts, for minutes; as training, it holds no lock of Python's
    work = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"
    program = (
        f"from features.termination import exit_on_sigterm; exit_on_sigterm(1.0); print('busy', flush=True); {work}"
    )
    with running("-c", program) as command:
        command.wait_for_line("busy")
        time.sleep(0.5)
        code, seconds, error = command.terminated()
    assert (code, error) == (SIGTERM_EXIT_CODE, "")
    assert 1.0 <= seconds < 10


def test_the_gateway_drains_as_process_1_and_exits_0(tmp_path: Path) -> None:
    exported_models.export(tmp_path, exported_models.SHOP, version=1, warm_up=exported_models.WARM_UP)
    with running("-m", "serving", "--export-dir", str(tmp_path), "--port", "0") as gateway:
        gateway.wait_for_line("ready:")
        code, seconds, error = gateway.terminated()
    assert code == 0, error
    assert seconds >= 2.0  # drain_seconds, in which a load balancer looks elsewhere


def test_whether_this_machine_makes_a_process_1() -> None:
    if not can_be_process_1():
        pytest.skip("no PID namespace may be made here: the tests above ran with a process as any other")
