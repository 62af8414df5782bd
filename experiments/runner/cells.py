"""The one way experiments run: as cells, each computed once in a process of its own kind, and kept in a file.

A *cell* describes one computation by JSON values, such as method, data set, loss and seed. An experiment is a list of
cells and its *work*: a function at a module's top level that turns a cell into a JSON result. `run_cells` computes the
cells that are missing and returns all results, so a run that was stopped goes on where it was. A work of many steps
makes them in a directory of the cell's own, from which it goes on, too.
"""

import argparse
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from features.errors import InputError
from features.manifest import stage_key
from features.task import SectionT, load_yaml, parse

Cell = Mapping[str, Any]  # JSON values
Work = Callable[[dict[str, Any], Path], Any]  # a cell, its directory -> a JSON result; pickled by its name

SECONDS_BETWEEN_LINES = 10.0  # of progress, where output is a file
CELLS_A_WORKER = 5  # that a process computes before another takes its place: TensorFlow keeps every loop it ever traced
LONGEST_NAME = 120  # characters of a cell's name that its files carry


def parse_arguments(experiment: str, description: str) -> argparse.Namespace:
    """The command line of every experiment: config, out (a Path), processes, quick.

    experiment: its module in this package, and the name of its settings.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{experiment}",
        description=description,
        epilog=f"example:\n  python -m experiments.{experiment} --config experiments/configs/{experiment}.yaml "
        f"--out build/experiments/{experiment}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", required=True, help="settings (YAML)")
    parser.add_argument(
        "--out", required=True, type=Path, help="directory to write; a run that was stopped goes on from what is there"
    )
    parser.add_argument("--processes", type=int, default=1, help="cells computed at a time (default: 1)")
    parser.add_argument("--quick", action="store_true", help="a small run: to see it work, not to judge anything by")
    return parser.parse_args()


def load_settings(path: str, model: type[SectionT]) -> SectionT:
    """An experiment's YAML as its typed, frozen model. Errors: InputError naming file, field, value and expectation."""
    return parse(load_yaml(path, "settings file", ("extends", *model.model_fields)), path, model, "the settings file")


def run_cells(cells: Sequence[Cell], work: Work, out: Path, processes: int, version: str) -> list[Any]:
    """Every cell's result, in the order of `cells`; what is not yet in `out`/cells is computed first.

    processes: workers at a time, each a spawned process with its share of the cores; 1 is one such worker too.
    version: says which work this is; a changed one computes every cell again, as a changed cell is computed again.

    A result lies in <cell's name>-<hash of version and cell>.json, written whole or not at all: an interrupt or a kill
    loses only the cells that were being computed. Beside it are, until it is there, a .log of what the cell prints and
    a .work, the directory that its work may make and write: both stay where the cell failed or was stopped. A cell that
    fails, even by killing its process, is reported and the others go on.
    Call from the main thread, of a module that does nothing when imported. Errors: InputError once all others are done
    when a cell failed; for an `out` that cannot be written; for no processes.
    """
    if processes < 1:
        raise InputError(f"--processes is {processes}, expected 1 or more")
    cells = [json.loads(json.dumps(cell, allow_nan=False)) for cell in cells]
    files = {_file_of(cell, out, version): cell for cell in cells}
    missing = {file: cell for file, cell in files.items() if _kept(file) is None}
    progress = _Progress(len(files), len(missing), processes)
    failed = []
    with closing(_answers(missing, work, processes)) as answers:
        for file, answer in answers:
            name = name_of(files[file])
            if answer.result is None:
                failed.append(name)
                progress.complain(f"failed: {name}: {answer.complaint}")
            else:
                content = {"version": version, "cell": files[file], "result": json.loads(answer.result)}
                write_whole(file, (json.dumps(content) + "\n").encode())
                _log_of(file).unlink()
                shutil.rmtree(_directory_of(file), ignore_errors=True)
            progress.step()
    if failed:
        raise InputError(
            f"{len(failed)} of {len(files)} cells failed ({'; '.join(failed[:3])}{'; ...' if failed[3:] else ''}): "
            f"read the .log of each in {out / 'cells'}, mend the cause and run the same command again, "
            "which computes only what is missing"
        )
    return [_kept(_file_of(cell, out, version))["result"] for cell in cells]


def _thread_limits(processes: int) -> dict[str, str]:
    """What numpy's linear algebra and TensorFlow read when a worker loads them.

    TensorFlow gets the worker's share of the cores. Linear algebra gets one thread: on the small matrices of
    experiments its threads mostly wait for one another, and burn a core each while they do.
    """
    share = str(max(1, (os.cpu_count() or 1) // processes))
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return one | {"TF_NUM_INTRAOP_THREADS": share, "TF_NUM_INTEROP_THREADS": share}


def name_of(cell: Cell) -> str:
    """`method=pfd data=istella seed=3`; values that are lists or mappings are left out."""
    return " ".join(f"{key}={value}" for key, value in cell.items() if not isinstance(value, list | dict))


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file, whole or not at all, and before it the directory that it needs. Errors: InputError."""
    staging = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging.write_bytes(content)
        staging.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; name a writable place") from None


def _file_of(cell: Cell, out: Path, version: str) -> Path:
    readable = re.sub(r"[^\w=.+-]+", "_", name_of(cell), flags=re.ASCII)[:LONGEST_NAME]
    return out / "cells" / f"{readable}-{stage_key(version=version, cell=cell)[:12]}.json"


def _log_of(file: Path) -> Path:
    return file.with_suffix(".log")


def _directory_of(file: Path) -> Path:
    return file.with_suffix(".work")


def _kept(file: Path) -> Any:
    """What the file of a computed cell holds; None where there is none, or a damaged disk left half of one."""
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None


class _Answer(NamedTuple):
    result: str | None  # JSON; None where the cell failed
    complaint: str = ""


def _answers(missing: dict[Path, Cell], work: Work, processes: int) -> Generator[tuple[Path, _Answer], None, None]:
    """Each missing cell's file and answer, as they come. Closing the iterator ends the workers."""
    waiting = deque(missing.items())
    idle: list[_Worker] = []
    busy: dict[Any, _Worker] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < processes:
                worker = idle.pop() if idle else _Worker(work, _thread_limits(processes))
                busy[worker.pipe] = worker
                worker.give(*waiting.popleft())
            for pipe in wait(list(busy)):
                worker = busy.pop(pipe)
                answer = worker.take()
                if not worker.process.is_alive() or worker.given >= CELLS_A_WORKER:
                    worker.end()
                else:
                    idle.append(worker)
                yield worker.file, answer
    finally:
        for worker in (*idle, *busy.values()):
            worker.end()


class _Worker:
    """A spawned process and this end of the pipe to it. Spawned, for a forked one would inherit locked threads."""

    file: Path  # of the cell that it was given last
    given = 0  # cells

    def __init__(self, work: Work, limits: dict[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, its_end = context.Pipe()
        self.process = context.Process(target=_compute_cells, args=(its_end, work))
        with _inherited(limits):
            self.process.start()
        its_end.close()  # so that its death closes the pipe

    def give(self, file: Path, cell: Cell) -> None:
        self.file = file
        self.given += 1
        log = _log_of(file)
        write_whole(log, b"")
        with suppress(BrokenPipeError):  # `take` tells that it died
            self.pipe.send((cell, log, _directory_of(file)))

    def take(self) -> _Answer:
        try:
            answer: _Answer = self.pipe.recv()
            return answer
        except (EOFError, ConnectionResetError):
            self.process.join()
            return _Answer(None, f"its process ended with exit code {self.process.exitcode}, below 0 by that signal")

    def end(self) -> None:
        self.process.kill()
        self.process.join()


@contextmanager
def _inherited(limits: dict[str, str]) -> Iterator[None]:
    """What a worker gets from this process: its environment, and deafness to Ctrl-C, which is for this one."""
    before = {name: os.environ[name] for name in limits if name in os.environ}
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(limits)
    try:
        yield
    finally:
        for name in limits:
            del os.environ[name]
        os.environ.update(before)
        signal.signal(signal.SIGINT, handler)


def _compute_cells(pipe: Connection, work: Work) -> None:
    """A worker's life."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, ConnectionError):  # the parent has ended
        while True:
            cell, log, directory = pipe.recv()
            pipe.send(_answer(work, cell, log, directory))


def _end_with_parent() -> None:
    """Else a killed run would leave a worker that computes on for nobody, beside those of the next run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _answer(work: Work, cell: dict[str, Any], log: Path, directory: Path) -> _Answer:
    with open(log, "wb") as file:
        for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):  # below Python, where TensorFlow writes
            os.dup2(file.fileno(), descriptor)
    try:
        return _Answer(json.dumps(work(cell, directory), allow_nan=False))
    except Exception as error:
        traceback.print_exc()
        return _Answer(None, str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()


class _Progress:
    """A line on stderr after a cell, rewritten in place on a terminal."""

    def __init__(self, total: int, missing: int, processes: int) -> None:
        self._total, self._missing, self._computed = total, missing, 0
        self._start = self._printed = time.monotonic()
        workers = "1 process" if processes == 1 else f"{processes} processes"
        print(f"{total} cells: {total - missing} are there, {missing} to compute in {workers}", file=sys.stderr)

    def step(self) -> None:
        self._computed += 1
        now, left = time.monotonic(), self._missing - self._computed
        terminal = sys.stderr.isatty()
        if left and not terminal and now - self._printed < SECONDS_BETWEEN_LINES:
            return
        self._printed = now
        elapsed = now - self._start
        line = (
            f"  {self._total - left}/{self._total} cells, {_minutes(elapsed)} elapsed, "
            f"about {_minutes(elapsed / self._computed * left)} left"
        )
        end = "" if terminal and left else "\n"
        print(f"\r\033[K{line}" if terminal else line, end=end, file=sys.stderr, flush=True)

    def complain(self, line: str) -> None:
        print(f"\r\033[K{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02}"
