"""Runs experiments as cells: each is computed once, in a worker process, and stored in a file.

A *cell* describes one computation by JSON values, such as method, data set, loss and seed. An experiment is a list of
cells and its *work*: a top-level function that turns a cell into a JSON result. `run_cells` computes the missing cells
and returns all results, so a stopped run resumes. Work of many steps can store them in the cell's directory and resume
from there.
"""

import json
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from experiments.runner.files import write_atomically
from experiments.runner.workers import PendingCell, Work, compute_cells
from features.errors import InputError
from features.manifest import stage_key

Cell = Mapping[str, Any]  # JSON values

_SECONDS_BETWEEN_LINES = 10.0  # between progress lines, when stderr is not a terminal
MAX_NAME_CHARACTERS = 120  # of a cell's name in file names


def run_cells(cells: Sequence[Cell], work: Work, out: Path, processes: int, version: str) -> list[Any]:
    """Returns every cell's result, in the order of `cells`; computes those that are not yet in `out`/cells.

    processes: number of workers, each a spawned process with its share of the cores.
    version: of the work; changing it computes every cell again.

    A result lies in <cell's name>-<hash of version and cell>.json, written whole or not at all: an interrupt or a kill
    loses only the cells that were being computed. Beside it are, until it is there, a .log of what the cell prints and
    a .work, the directory that its work may make and write: both stay where the cell failed or was stopped. A cell that
    fails, even by killing its process, is reported and the others go on.
    Call from the main thread, of a module that does nothing when imported. Errors: InputError once all others are done
    when a cell failed; for an `out` that cannot be written; for no processes.
    """
    if processes < 1:
        raise InputError(f"--processes is {processes}, expected 1 or more")
    plain: list[dict[str, Any]] = [json.loads(json.dumps(cell, allow_nan=False)) for cell in cells]
    files = {_file_of(cell, out, version): cell for cell in plain}
    missing = [PendingCell(file, cell) for file, cell in files.items() if _read_result(file) is None]
    progress = _Progress(len(files), len(missing), processes)
    failed = []
    with closing(compute_cells(missing, work, processes)) as outcomes:
        for computed, outcome in outcomes:
            if outcome.result is None:
                name = cell_name(computed.cell)
                failed.append(name)
                progress.print_error(f"failed: {name}: {outcome.error}")
            else:
                content = {"version": version, "cell": computed.cell, "result": json.loads(outcome.result)}
                write_atomically(computed.file, (json.dumps(content) + "\n").encode())
                computed.log.unlink()
                shutil.rmtree(computed.directory, ignore_errors=True)
            progress.step()
    if failed:
        raise InputError(
            f"{len(failed)} of {len(files)} cells failed ({'; '.join(failed[:3])}{'; ...' if failed[3:] else ''}): "
            f"read the .log of each in {out / 'cells'}, mend the cause and run the same command again, "
            "which computes only what is missing"
        )
    return [_read_result(_file_of(cell, out, version))["result"] for cell in plain]


def cell_name(cell: Cell) -> str:
    """`method=pfd data=istella seed=3`; values that are lists or mappings are left out."""
    return " ".join(f"{key}={value}" for key, value in cell.items() if not isinstance(value, list | dict))


def _file_of(cell: Cell, out: Path, version: str) -> Path:
    readable = re.sub(r"[^\w=.+-]+", "_", cell_name(cell), flags=re.ASCII)[:MAX_NAME_CHARACTERS]
    return out / "cells" / f"{readable}-{stage_key(version=version, cell=cell)[:12]}.json"


def _read_result(file: Path) -> Any:
    """The content of a computed cell's file; None if it is missing or damaged."""
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None


class _Progress:
    """Prints a progress line to stderr after a cell, rewritten in place on a terminal."""

    def __init__(self, total: int, missing: int, processes: int) -> None:
        self._total, self._missing, self._computed = total, missing, 0
        self._start = self._printed = time.monotonic()
        workers = "1 process" if processes == 1 else f"{processes} processes"
        print(f"{total} cells: {total - missing} are there, {missing} to compute in {workers}", file=sys.stderr)

    def step(self) -> None:
        self._computed += 1
        now, left = time.monotonic(), self._missing - self._computed
        terminal = sys.stderr.isatty()
        if left and not terminal and now - self._printed < _SECONDS_BETWEEN_LINES:
            return
        self._printed = now
        elapsed = now - self._start
        line = (
            f"  {self._total - left}/{self._total} cells, {_minutes(elapsed)} elapsed, "
            f"about {_minutes(elapsed / self._computed * left)} left"
        )
        end = "" if terminal and left else "\n"
        print(f"\r\033[K{line}" if terminal else line, end=end, file=sys.stderr, flush=True)

    def print_error(self, line: str) -> None:
        print(f"\r\033[K{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02}"
