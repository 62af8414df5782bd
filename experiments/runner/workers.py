"""Computes cells in worker processes, which are spawned: a fork could inherit held locks."""

import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from experiments.runner.files import write_atomically
from features.errors import InputError

Work = Callable[[dict[str, Any], Path], Any]  # a cell, its directory -> a JSON result; pickled by its name

CELLS_PER_WORKER = 5  # then the process is replaced: TensorFlow keeps every function that it traced


class PendingCell(NamedTuple):
    """A cell, and the file that its result is for."""

    file: Path
    cell: dict[str, Any]

    @property
    def log(self) -> Path:
        """What the cell prints."""
        return self.file.with_suffix(".log")

    @property
    def directory(self) -> Path:
        """The directory that its work may make and write."""
        return self.file.with_suffix(".work")


class Outcome(NamedTuple):
    """What computing a cell came to. result: JSON; None if the cell failed, for the reason in `error`."""

    result: str | None
    error: str = ""


def compute_cells(
    cells: Iterable[PendingCell], work: Work, processes: int
) -> Generator[tuple[PendingCell, Outcome], None, None]:
    """Yields each cell and its outcome as it finishes. Closing the generator kills the workers.

    Call from the main thread. Errors: InputError when a log cannot be written.
    """
    pending, limits = deque(cells), _thread_limits(processes)
    workers: list[_Worker] = []
    idle: list[_Worker] = []
    busy: dict[Future[Outcome], tuple[_Worker, PendingCell]] = {}
    try:
        while pending or busy:
            while pending and len(busy) < processes:
                cell = pending.popleft()
                write_atomically(cell.log, b"")
                if not idle:
                    workers.append(_Worker(limits))
                    idle.append(workers[-1])
                worker = idle.pop()
                busy[worker.submit(work, cell)] = worker, cell
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                worker, cell = busy.pop(future)
                outcome = worker.outcome(future)
                if worker.process.is_alive() and worker.given < CELLS_PER_WORKER:
                    idle.append(worker)
                else:
                    workers.remove(worker)
                    worker.end()
                yield cell, outcome
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A pool of one process: a cell that ends its process breaks no other cell's pool."""

    def __init__(self, limits: dict[str, str]) -> None:
        self.given = 0  # cells
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_watch_parent)
        others = set(multiprocessing.active_children())
        with _worker_environment(limits):
            self._pool.submit(os.getpid)  # starts the process
        (self.process,) = set(multiprocessing.active_children()) - others

    def submit(self, work: Work, cell: PendingCell) -> Future[Outcome]:
        self.given += 1
        try:
            return self._pool.submit(_compute, work, cell)
        except BrokenProcessPool as error:  # killed since its last cell
            failed = Future[Outcome]()
            failed.set_exception(error)
            return failed

    def outcome(self, future: Future[Outcome]) -> Outcome:
        """Of a future that is done."""
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, BrokenProcessPool):
            self.process.join()
            return Outcome(None, f"its process ended with exit code {self.process.exitcode}, below 0 by that signal")
        return Outcome(None, _message_of(error))

    def end(self) -> None:
        self.process.kill()
        self._pool.shutdown()


def _thread_limits(processes: int) -> dict[str, str]:
    """Environment variables that limit the threads of numpy and TensorFlow in a worker.

    TensorFlow gets the worker's share of the cores. Linear algebra gets one thread: on small matrices its
    threads mostly busy-wait for one another.
    """
    share = str(max(1, (os.cpu_count() or 1) // processes))
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return one | {"TF_NUM_INTRAOP_THREADS": share, "TF_NUM_INTEROP_THREADS": share}


@contextmanager
def _worker_environment(limits: dict[str, str]) -> Iterator[None]:
    """Sets what a worker inherits: the thread limits, and ignoring SIGINT, which the parent handles."""
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


# --- in the worker


def _watch_parent() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exits with the parent, so that a killed run leaves no orphaned worker."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _compute(work: Work, pending: PendingCell) -> Outcome:
    with open(pending.log, "wb") as file:
        # file descriptors, because TensorFlow writes below Python
        for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
            os.dup2(file.fileno(), descriptor)
    try:
        return Outcome(json.dumps(work(pending.cell, pending.directory), allow_nan=False))
    except Exception as error:
        traceback.print_exc()
        return Outcome(None, _message_of(error))
    finally:
        sys.stdout.flush()


def _message_of(error: BaseException) -> str:
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
