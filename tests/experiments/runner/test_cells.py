"""Cells in real processes: stored, resumed after a kill or an interrupt, computed again after a change."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.runner.cells import cell_name, run_cells
from experiments.runner.files import write_atomically
from experiments.runner.workers import CELLS_PER_WORKER
from features.errors import InputError
from tests.experiments.runner.squares import leave, not_json, square, square_or_fail, steps, threads

ROOT = Path(__file__).parents[3]


def numbers(folder: Path, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"number": number, "notes": str(folder / "notes"), **more} for number in range(count)]


def computed_numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def stored_results(out: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in (out / "cells").glob("*.json")}


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {seconds} s"
        time.sleep(0.02)


# --- computing and storing


def test_results_come_in_the_order_of_the_cells_from_several_other_processes(tmp_path: Path) -> None:
    results = run_cells(numbers(tmp_path, 6, seconds=0.3), square, tmp_path, processes=2, version="1")
    assert [result["square"] for result in results] == [0, 1, 4, 9, 16, 25]
    processes = {result["process"] for result in results}
    assert len(processes) == 2
    assert os.getpid() not in processes


def test_a_worker_is_replaced_after_some_cells(tmp_path: Path) -> None:
    results = run_cells(numbers(tmp_path, CELLS_PER_WORKER + 2), square, tmp_path, processes=1, version="1")
    processes = [result["process"] for result in results]
    assert [processes.count(process) for process in dict.fromkeys(processes)] == [CELLS_PER_WORKER, 2]


def test_a_stored_result_is_not_computed_again(tmp_path: Path) -> None:
    cells = numbers(tmp_path, 3)
    first = run_cells(cells, square, tmp_path, processes=1, version="1")
    assert run_cells(cells, square, tmp_path, processes=2, version="1") == first
    assert sorted(computed_numbers(tmp_path / "notes")) == [0, 1, 2]


def test_a_repeated_cell_is_computed_once(tmp_path: Path) -> None:
    (cell,) = numbers(tmp_path, 1)
    first, second = run_cells([cell, cell], square, tmp_path, processes=2, version="1")
    assert first == second
    assert computed_numbers(tmp_path / "notes") == [0]


def test_a_changed_cell_or_version_is_computed_again_and_the_others_are_not(tmp_path: Path) -> None:
    cells = numbers(tmp_path, 3)
    run_cells(cells, square, tmp_path, processes=1, version="1")
    run_cells([*cells[:2], {**cells[2], "seconds": 0.01}], square, tmp_path, processes=1, version="1")
    assert sorted(computed_numbers(tmp_path / "notes")) == [0, 1, 2, 2]
    run_cells(cells, square, tmp_path, processes=1, version="2")
    assert sorted(computed_numbers(tmp_path / "notes")) == [0, 0, 1, 1, 2, 2, 2]
    assert len(stored_results(tmp_path)) == 7


def test_a_cell_is_computed_again_after_a_change_deep_inside_it(tmp_path: Path) -> None:
    (cell,) = numbers(tmp_path, 1, model={"layers": [1, 2]})
    run_cells([cell], square, tmp_path, processes=1, version="1")
    run_cells([{**cell, "model": {"layers": [1, 3]}}], square, tmp_path, processes=1, version="1")
    assert computed_numbers(tmp_path / "notes") == [0, 0]


def test_a_file_names_its_cell_and_holds_version_cell_and_result(tmp_path: Path) -> None:
    cell = {"number": 3, "notes": str(tmp_path / "notes"), "model": {"width": 8}}
    run_cells([cell], square, tmp_path, processes=1, version="squares 4")
    ((name, content),) = stored_results(tmp_path).items()
    assert re.fullmatch(r"number=3_notes=[\w.+=-]+-[0-9a-f]{12}\.json", name)
    assert (content["version"], content["cell"], content["result"]["square"]) == ("squares 4", cell, 9)
    assert cell_name({"method": "pfd", "seed": 3, "model": {"width": 8}}) == "method=pfd seed=3"


def test_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    cells = numbers(tmp_path, 2)
    run_cells(cells, square, tmp_path, processes=1, version="1")
    damaged = next((tmp_path / "cells").glob("number=1*"))
    damaged.write_bytes(damaged.read_bytes()[:20])
    assert [result["square"] for result in run_cells(cells, square, tmp_path, processes=1, version="1")] == [0, 1]
    assert computed_numbers(tmp_path / "notes") == [0, 1, 1]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_processes_share_the_cores(tmp_path: Path, processes: int) -> None:
    before = dict(os.environ)
    names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"]
    (found,) = run_cells([{"names": names}], threads, tmp_path, processes, version="1")
    share = str(max(1, (os.cpu_count() or 1) // processes))
    assert found == dict(zip(names, ["1", "1", share, share], strict=True))
    assert dict(os.environ) == before


# --- failing


def test_failing_cells_are_named_the_others_go_on_and_a_second_run_computes_only_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cells = numbers(tmp_path, 6)
    with pytest.raises(InputError, match=r"3 of 6 cells failed \(number=") as failure:
        run_cells(cells, square_or_fail, tmp_path, processes=2, version="1")
    assert "run the same command again" in str(failure.value)
    stderr = capfd.readouterr().err
    assert re.search(r"^failed: number=1 notes=.*: number is 1, expected another$", stderr, re.MULTILINE)
    assert re.search(r"^failed: number=2 notes=.*: ZeroDivisionError: nothing to divide by$", stderr, re.MULTILINE)
    assert re.search(r"^failed: number=3 notes=.*: its process ended with exit code -9", stderr, re.MULTILINE)
    assert "Traceback" not in stderr
    assert sorted(content["cell"]["number"] for content in stored_results(tmp_path).values()) == [0, 4, 5]

    logs = {path.name[:8]: path.read_text() for path in (tmp_path / "cells").glob("*.log")}
    assert sorted(logs) == ["number=1", "number=2", "number=3"]
    assert logs["number=2"].startswith("about to square 2\n")
    assert "in square_or_fail" in logs["number=2"]

    assert [result["square"] for result in run_cells(cells, square, tmp_path, 1, version="1")] == [0, 1, 4, 9, 16, 25]
    assert Counter(computed_numbers(tmp_path / "notes")) == dict.fromkeys(range(6), 1)
    assert not list((tmp_path / "cells").glob("*.log"))


def test_a_cell_resumes_in_its_own_directory_which_is_removed_once_its_result_is_stored(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 of 1 cells failed"):
        run_cells([{"number": 7}], steps, tmp_path, processes=1, version="1")
    ((directory, log),) = zip((tmp_path / "cells").glob("*.work"), (tmp_path / "cells").glob("*.log"), strict=True)
    assert directory.stem == log.stem
    ((one, two, three),) = run_cells([{"number": 7}], steps, tmp_path, processes=1, version="1")
    assert one == two != three
    assert [path.suffix for path in (tmp_path / "cells").iterdir()] == [".json"]


@pytest.mark.parametrize(
    ("number", "complaint"), [(0, "TypeError: Object of type set is not JSON"), (1, "ValueError: Out of range float")]
)
def test_a_result_that_is_not_json_fails_its_cell(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], number: int, complaint: str
) -> None:
    with pytest.raises(InputError, match="1 of 1 cells failed"):
        run_cells([{"number": number}], not_json, tmp_path, processes=1, version="1")
    assert complaint in capfd.readouterr().err
    assert not stored_results(tmp_path)


def test_a_work_that_exits_fails_its_cell_and_not_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="1 of 1 cells failed"):
        run_cells([{"number": 3}], leave, tmp_path, processes=1, version="1")
    assert "failed: number=3: SystemExit: leaves at 3\n" in capfd.readouterr().err


def test_zero_processes_and_an_unwritable_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--processes is 0, expected 1 or more"):
        run_cells(numbers(tmp_path, 1), square, tmp_path, processes=0, version="1")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"cannot write .*: Not a directory; name a writable place"):
        run_cells(numbers(tmp_path, 1), square, tmp_path / "file", processes=1, version="1")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_written_file_replaces_the_former_one_and_leaves_no_partial_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new" / "file", b"first")
    write_atomically(tmp_path / "new" / "file", b"second")
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "new").iterdir()] == [("file", b"second")]


# --- ended in the middle


class Run:
    """12 cells in 2 processes, as a command in a session of its own."""

    def __init__(self, folder: Path, seconds_a_cell: float = 0.4) -> None:
        self.out, self.notes = folder / "out", folder / "out.notes"
        command = [sys.executable, "-m", "tests.experiments.runner.squares", "--out", str(self.out), "--processes", "2"]
        self.process = subprocess.Popen(
            [*command, "--cells", "12", "--seconds", str(seconds_a_cell)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def computed(self) -> int:
        return len(list((self.out / "cells").glob("*.json")))

    def others(self) -> list[int]:
        """Processes of the run's session besides the one that was started: its workers, and Python's tracker."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            except OSError:  # it ended meanwhile
                continue
            if int(session) == self.process.pid and int(stat.parent.name) != self.process.pid and state != "Z":
                found.append(int(stat.parent.name))
        return found

    def end(self) -> tuple[str, str]:
        stdout, stderr = self.process.communicate(timeout=60)
        return stdout, stderr


def assert_goes_on_where_it_was(run: Run, folder: Path) -> None:
    """Nothing half-written is there, and a second run computes what is missing and nothing else."""
    before = {name: (run.out / "cells" / name).stat().st_mtime_ns for name in stored_results(run.out)}
    assert 3 <= len(before) < 12
    begun = len(computed_numbers(run.notes))
    assert begun - len(before) <= 2  # what was lost: at most a cell a process

    second = Run(folder)
    stdout, stderr = second.end()
    assert second.process.returncode == 0, stderr
    assert stdout.strip() == str([number**2 for number in range(12)])
    assert f"12 cells: {len(before)} are there, {12 - len(before)} to compute in 2 processes" in stderr
    assert len(computed_numbers(run.notes)) == begun + 12 - len(before)
    assert {name: (run.out / "cells" / name).stat().st_mtime_ns for name in before} == before


def test_a_killed_run_resumes(tmp_path: Path) -> None:
    run = Run(tmp_path)
    wait_until(lambda: run.computed() >= 3)
    run.process.kill()  # SIGKILL, to the run alone
    run.end()
    assert run.process.returncode == -signal.SIGKILL
    assert_goes_on_where_it_was(run, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the workers")
def test_the_workers_of_a_killed_run_end_in_the_middle_of_a_cell(tmp_path: Path) -> None:
    run = Run(tmp_path, seconds_a_cell=120.0)
    wait_until(lambda: len(computed_numbers(run.notes)) == 2)
    assert len(run.others()) >= 2
    run.process.kill()
    wait_until(lambda: not run.others(), seconds=20.0)
    run.end()


def assert_ends_in_one_line_when_interrupted(run: Run) -> None:
    os.killpg(run.process.pid, signal.SIGINT)  # as Ctrl-C does: to every process of the group
    _, stderr = run.end()
    assert run.process.returncode == 130
    assert re.fullmatch(r"12 cells: .*\n(  \d+/12 cells.*\n)*interrupted.*\n", stderr), stderr


def test_an_interrupted_run_says_so_in_one_line_and_resumes(tmp_path: Path) -> None:
    run = Run(tmp_path)
    wait_until(lambda: run.computed() >= 3)
    assert_ends_in_one_line_when_interrupted(run)
    assert_goes_on_where_it_was(run, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the workers")
def test_a_run_interrupted_while_its_workers_start_says_so_in_one_line(tmp_path: Path) -> None:
    run = Run(tmp_path)
    wait_until(lambda: len(run.others()) == 3)  # both workers and Python's tracker
    time.sleep(0.3)  # they are importing
    assert_ends_in_one_line_when_interrupted(run)
