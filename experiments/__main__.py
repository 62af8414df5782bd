"""Runs one of the experiments, or all of them: computes what is missing, and writes the report."""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.registry import EXPERIMENTS
from features.errors import InputError, exit_code_of

ALL = "all"
CONFIGS = Path(__file__).parent / "configs"
EXAMPLES = """\
examples:
  python -m experiments linear --out build/experiments/linear
  python -m experiments alpha --out build/experiments/alpha --processes 2
  python -m experiments alpha --config my_alpha.yaml --out build/experiments/my_alpha
  python -m experiments all --quick --out build/experiments --processes 2
"""


def main() -> None:
    arguments = _parse_arguments()
    if arguments.name == ALL:
        _run_all(arguments)
    else:
        config = arguments.config or str(CONFIGS / f"{arguments.name}.yaml")
        print(EXPERIMENTS[arguments.name].run(config, arguments.out, arguments.processes, arguments.quick))


def _parse_arguments() -> argparse.Namespace:
    names = [f"  {name:<20} {experiment.title}" for name, experiment in EXPERIMENTS.items()]
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="\n".join([str(__doc__), "", "experiments:", *names, f"  {ALL:<20} each of them in turn"]),
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", choices=[*EXPERIMENTS, ALL], help=f"an experiment, or `{ALL}`")
    parser.add_argument("--config", help="settings (YAML; default: NAME.yaml in experiments/configs)")
    parser.add_argument(
        "--out",
        required=True,
        type=Path,
        help=f"directory to write, with `{ALL}` a folder in it for each; a stopped run goes on from what is there",
    )
    parser.add_argument("--processes", type=int, default=1, help="cells computed at a time (default: 1)")
    parser.add_argument("--quick", action="store_true", help="a small run: to see it work, not to judge anything by")
    return parser.parse_args()


def _run_all(arguments: argparse.Namespace) -> None:
    """Errors: InputError when an experiment failed, raised after the others are done."""
    if arguments.config:
        raise InputError(
            f"--config is {arguments.config}, expected none with `{ALL}`, where each experiment has its own: "
            "leave it out, or name one experiment"
        )
    failed = []
    for number, name in enumerate(EXPERIMENTS, start=1):
        print(f"== {number}/{len(EXPERIMENTS)} {name}", flush=True)
        started = time.monotonic()
        code = _run_in_process_of_its_own(name, arguments)
        print(f"   {'done' if code == 0 else f'exit code {code}'} after {time.monotonic() - started:.0f} s", flush=True)
        if code:
            failed.append(name)
    if failed:
        raise InputError(
            f"{len(failed)} of {len(EXPERIMENTS)} experiments failed ({', '.join(failed)}): read the message of each "
            "above; the same command goes on from what is there"
        )
    print(f"all {len(EXPERIMENTS)} experiments: their tables are {arguments.out}/<name>/<name>.md")


def _run_in_process_of_its_own(name: str, arguments: argparse.Namespace) -> int:
    """Returns its exit code. An error that nobody foresaw ends one experiment, and not those after it."""
    flags: Sequence[str] = ["--out", str(arguments.out / name), "--processes", str(arguments.processes)]
    command = [sys.executable, "-m", "experiments", name, *flags, *(["--quick"] if arguments.quick else [])]
    return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
