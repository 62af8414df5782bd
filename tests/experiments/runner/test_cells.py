"""Cells, in real processes: kept, continued after a kill, computed again when anything that decides them changes."""

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
from pydantic import Field

from experiments.cells import CELLS_A_WORKER, load_settings, name_of, run_cells, write_whole
from features.errors import InputError
from features.task import Section
from tests.experiments.squares import not_json, square, square_or_fail, steps, threads

ROOT = Path(__file__).parents[2]


def numbers(folder: Path, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"number": number, "notes": str(folder / "notes"), **more} for number in range(count)]


def noted(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def kept(out: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in (out / "cells").glob("*.json")}


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {seconds} s"
        time.sleep(0.02)


# --- computing and keeping


def test_results_come_in_the_order_of_the_cells_from_several_other_processes(tmp_path: Path) -> None:
    results = run_cells(numbers(tmp_path, 6, seconds=0.3), square, tmp_path, processes=2, version="1")
    assert [result["square"] for result in results] == [0, 1, 4, 9, 16, 25]
    processes = {result["process"] for result in results}
    assert len(processes) == 2
    assert os.getpid() not in processes


def test_a_process_gives_way_to_another_after_some_cells(tmp_path: Path) -> None:
    results = run_cells(numbers(tmp_path, CELLS_A_WORKER + 2), square, tmp_path, processes=1, version="1")
    processes = [result["process"] for result in results]
    assert [processes.count(process) for process in dict.fromkeys(processes)] == [CELLS_A_WORKER, 2]


def test_what_is_there_is_not_computed_again(tmp_path: Path) -> None:
    cells = numbers(tmp_path, 3)
    first = run_cells(cells, square, tmp_path, processes=1, version="1")
    assert run_cells(cells, square, tmp_path, processes=2, version="1") == first
    assert sorted(noted(tmp_path / "notes")) == [0, 1, 2]


def test_a_cell_that_stands_twice_is_computed_once(tmp_path: Path) -> None:
    (cell,) = numbers(tmp_path, 1)
    first, second = run_cells([cell, cell], square, tmp_path, processes=2, version="1")
    assert first == second
    assert noted(tmp_path / "notes") == [0]


def test_a_changed_cell_or_version_is_computed_again_and_the_others_are_not(tmp_path: Path) -> None:
    cells = numbers(tmp_path, 3)
    run_cells(cells, square, tmp_path, processes=1, version="1")
    run_cells([*cells[:2], {**cells[2], "seconds": 0.01}], square, tmp_path, processes=1, version="1")
    assert sorted(noted(tmp_path / "notes")) == [0, 1, 2, 2]
    run_cells(cells, square, tmp_path, processes=1, version="2")
    assert sorted(noted(tmp_path / "notes")) == [0, 0, 1, 1, 2, 2, 2]
    assert len(kept(tmp_path)) == 7


def test_a_change_deep_inside_a_cell_counts(tmp_path: Path) -> None:
    (cell,) = numbers(tmp_path, 1, model={"layers": [1, 2]})
    run_cells([cell], square, tmp_path, processes=1, version="1")
    run_cells([{**cell, "model": {"layers": [1, 3]}}], square, tmp_path, processes=1, version="1")
    assert noted(tmp_path / "notes") == [0, 0]


def test_a_file_names_its_cell_and_holds_all_that_decides_it(tmp_path: Path) -> None:
    cell = {"number": 3, "notes": str(tmp_path / "notes"), "model": {"width": 8}}
    run_cells([cell], square, tmp_path, processes=1, version="squares 4")
    ((name, content),) = kept(tmp_path).items()
    assert re.fullmatch(r"number=3_notes=[\w.+=-]+-[0-9a-f]{12}\.json", name)
    assert (content["version"], content["cell"], content["result"]["square"]) == ("squares 4", cell, 9)
    assert name_of({"method": "pfd", "seed": 3, "model": {"width": 8}}) == "method=pfd seed=3"


def test_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    cells = numbers(tmp_path, 2)
    run_cells(cells, square, tmp_path, processes=1, version="1")
    damaged = next((tmp_path / "cells").glob("number=1*"))
    damaged.write_bytes(damaged.read_bytes()[:20])
    assert [result["square"] for result in run_cells(cells, square, tmp_path, processes=1, version="1")] == [0, 1]
    assert noted(tmp_path / "notes") == [0, 1, 1]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_processes_share_the_cores(tmp_path: Path, processes: int) -> None:
    before = dict(os.environ)
    names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"]
    (found,) = run_cells([{"names": names}], threads, tmp_path, processes, version="1")
    share = str(max(1, (os.cpu_count() or 1) // processes))
    assert found == dict(zip(names, ["1", "1", share, share], strict=True))
    assert dict(os.environ) == before


# --- failing


def test_failing_cells_are_named_the_others_go_on_and_a_mended_work_computes_only_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cells = numbers(tmp_path, 6)
    with pytest.raises(InputError, match=r"3 of 6 cells failed \(number=") as failure:
        run_cells(cells, square_or_fail, tmp_path, processes=2, version="1")
    assert "run the same command again" in str(failure.value)
    said = capfd.readouterr().err
    assert re.search(r"^failed: number=1 notes=.*: number is 1, expected another$", said, re.MULTILINE)
    assert re.search(r"^failed: number=2 notes=.*: ZeroDivisionError: nothing to divide by$", said, re.MULTILINE)
    assert re.search(r"^failed: number=3 notes=.*: its process ended with exit code -9", said, re.MULTILINE)
    assert "Traceback" not in said
    assert sorted(content["cell"]["number"] for content in kept(tmp_path).values()) == [0, 4, 5]

    logs = {path.name[:8]: path.read_text() for path in (tmp_path / "cells").glob("*.log")}
    assert sorted(logs) == ["number=1", "number=2", "number=3"]
    assert logs["number=2"].startswith("about to square 2\n")
    assert "in square_or_fail" in logs["number=2"]

    assert [result["square"] for result in run_cells(cells, square, tmp_path, 1, version="1")] == [0, 1, 4, 9, 16, 25]
    assert Counter(noted(tmp_path / "notes")) == dict.fromkeys(range(6), 1)
    assert not list((tmp_path / "cells").glob("*.log"))


def test_a_cell_goes_on_in_its_own_directory_which_is_gone_once_its_result_is_there(tmp_path: Path) -> None:
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
def test_a_result_that_is_no_json_fails_its_cell(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], number: int, complaint: str
) -> None:
    with pytest.raises(InputError, match="1 of 1 cells failed"):
        run_cells([{"number": number}], not_json, tmp_path, processes=1, version="1")
    assert complaint in capfd.readouterr().err
    assert not kept(tmp_path)


def test_no_processes_and_a_place_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--processes is 0, expected 1 or more"):
        run_cells(numbers(tmp_path, 1), square, tmp_path, processes=0, version="1")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"cannot write .*: Not a directory; name a writable place"):
        run_cells(numbers(tmp_path, 1), square, tmp_path / "file", processes=1, version="1")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_whole(tmp_path / "new" / "file", b"first")
    write_whole(tmp_path / "new" / "file", b"second")
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "new").iterdir()] == [("file", b"second")]


# --- ended in the middle


class Run:
    """12 cells in 2 processes, as a command in a session of its own."""

    def __init__(self, folder: Path, seconds_a_cell: float = 0.4) -> None:
        self.out, self.notes = folder / "out", folder / "out.notes"
        command = [sys.executable, "-m", "tests.experiments.squares", "--out", str(self.out), "--processes", "2"]
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
        said, complained = self.process.communicate(timeout=60)
        return said, complained


def assert_goes_on_where_it_was(run: Run, folder: Path) -> None:
    """Nothing half-written is there, and a second run computes what is missing and nothing else."""
    before = {name: (run.out / "cells" / name).stat().st_mtime_ns for name in kept(run.out)}
    assert 3 <= len(before) < 12
    began = len(noted(run.notes))
    assert began - len(before) <= 2  # what was lost: at most a cell a process

    second = Run(folder)
    said, complained = second.end()
    assert second.process.returncode == 0, complained
    assert said.strip() == str([number**2 for number in range(12)])
    assert f"12 cells: {len(before)} are there, {12 - len(before)} to compute in 2 processes" in complained
    assert len(noted(run.notes)) == began + 12 - len(before)
    assert {name: (run.out / "cells" / name).stat().st_mtime_ns for name in before} == before


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    run = Run(tmp_path)
    wait_until(lambda: run.computed() >= 3)
    run.process.kill()  # SIGKILL, to the run alone
    run.end()
    assert run.process.returncode == -signal.SIGKILL
    assert_goes_on_where_it_was(run, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the workers")
def test_a_killed_run_takes_its_workers_along_in_the_middle_of_a_cell(tmp_path: Path) -> None:
    run = Run(tmp_path, seconds_a_cell=120.0)
    wait_until(lambda: len(noted(run.notes)) == 2)
    assert len(run.others()) >= 2
    run.process.kill()
    wait_until(lambda: not run.others(), seconds=20.0)
    run.end()


def assert_ends_in_one_line_when_interrupted(run: Run) -> None:
    os.killpg(run.process.pid, signal.SIGINT)  # as Ctrl-C does: to every process of the group
    _, complained = run.end()
    assert run.process.returncode == 130
    assert re.fullmatch(r"12 cells: .*\n(  \d+/12 cells.*\n)*interrupted.*\n", complained), complained


def test_an_interrupted_run_says_so_in_one_line_and_goes_on_where_it_was(tmp_path: Path) -> None:
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


# --- settings


class Toy(Section):
    """Settings of a toy experiment."""

    seed: int
    widths: tuple[int, ...] = Field(min_length=1)


def test_settings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text("seed: 7\nwidths: [8, 16]\n")
    assert load_settings(str(path), Toy) == Toy(seed=7, widths=(8, 16))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot read settings file .*toy.yaml: No such file"),
        (b"seed: [", "toy.yaml is not valid YAML"),
        (b"\xff\xfe\x00", "toy.yaml is not valid YAML"),
        (b"!!python/object/apply:os.getpid []", "toy.yaml is not valid YAML"),
        (b"- seed", "toy.yaml holds list, expected a mapping of extends, seed, widths"),
        (b"", "toy.yaml holds NoneType"),
        (b"seed: 7", "toy.yaml.widths"),
        (b"seed: x\nwidths: [8]", "toy.yaml.seed is 'x': Input should be a valid integer"),
        (b"seed: 7\nwidths: [8]\nseed: 8", "the key 'seed' stands twice"),
        (b"seed: 7\nwidths: [8]\ndepth: 2", "toy.yaml: unknown key 'depth', expected one of extends, seed, widths"),
    ],
    ids=["missing", "broken", "binary", "hostile", "a list", "empty", "incomplete", "mistyped", "doubled", "unknown"],
)
def test_wrong_settings_are_refused(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    path = tmp_path / "toy.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        load_settings(str(path), Toy)
