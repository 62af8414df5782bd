"""A toy experiment: `python -m tests.experiments.runner.squares --out DIR --processes 2 --cells 6 [--seconds 0.2]`.

Its work writes the number of each cell that it begins into a file beside `out`: a test counts what was computed.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from experiments.runner.cells import run_cells
from features.errors import InputError, exit_code_of


def square(cell: dict[str, Any], _: Path) -> dict[str, Any]:
    with open(cell["notes"], "a") as notes:
        notes.write(f"{cell['number']}\n")
    time.sleep(cell.get("seconds", 0.0))
    return {"square": cell["number"] ** 2, "process": os.getpid()}


def square_or_fail(cell: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Number 1 fails as a wrong input does, 2 as a mistake in code does, 3 takes its process with it."""
    print(f"about to square {cell['number']}")
    if cell["number"] == 1:
        raise InputError("number is 1, expected another")
    if cell["number"] == 2:
        raise ZeroDivisionError("nothing to divide by")
    if cell["number"] == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return square(cell, directory)


def not_json(cell: dict[str, Any], _: Path) -> Any:
    return float("nan") if cell["number"] else {1, 2}


def leave(cell: dict[str, Any], _: Path) -> None:
    sys.exit(f"leaves at {cell['number']}")


def threads(cell: dict[str, Any], _: Path) -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in cell["names"]}


def steps(cell: dict[str, Any], directory: Path) -> list[str]:
    """Makes three steps, each a file; a process that made the second is killed."""
    directory.mkdir(exist_ok=True)
    for step in ("one", "two", "three"):
        if not (made := directory / step).exists():
            made.write_text(f"made by {os.getpid()}")
            if step == "two":
                os.kill(os.getpid(), signal.SIGKILL)
    return [(directory / step).read_text() for step in ("one", "two", "three")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--cells", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=0.0)
    flags = parser.parse_args()
    constant = {"notes": f"{flags.out}.notes", "seconds": flags.seconds}
    cells = [{"number": number, **constant} for number in range(flags.cells)]
    results = run_cells(cells, square, flags.out, flags.processes, version="squares 1")
    print([result["square"] for result in results])


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
