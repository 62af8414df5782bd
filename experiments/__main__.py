"""Every experiment, one after the other, each with the settings that are kept beside it."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from features.errors import InputError, exit_code_of

EXPERIMENTS = (
    "linear",
    "letor_methods",
    "alpha",
    "sparsity",
    "privileged_strength",
    "unlabelled_groups",
    "imputation",
    "sdr",
    "rank_distil",
    "shop_methods",
)
CONFIGS = Path(__file__).parent / "configs"


def main() -> None:
    """Errors: InputError when an experiment failed, once all others are done."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.all",
        description=__doc__,
        epilog="example:\n  python -m experiments.all --quick --out build/experiments --processes 2",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", required=True, type=Path, help="directory to write, a folder an experiment")
    parser.add_argument("--processes", type=int, default=1, help="cells computed at a time (default: 1)")
    parser.add_argument("--quick", action="store_true", help="small runs: to see them work, not to judge anything by")
    arguments = parser.parse_args()
    failed = []
    for number, name in enumerate(EXPERIMENTS, start=1):
        print(f"== {number}/{len(EXPERIMENTS)} {name}", flush=True)
        started = time.monotonic()
        command = [sys.executable, "-m", f"experiments.{name}", "--config", str(CONFIGS / f"{name}.yaml")]
        command += ["--out", str(arguments.out / name), "--processes", str(arguments.processes)]
        code = subprocess.run([*command, *(["--quick"] if arguments.quick else [])]).returncode
        print(f"   {'done' if code == 0 else f'exit code {code}'} after {time.monotonic() - started:.0f} s", flush=True)
        if code:
            failed.append(name)
    if failed:
        raise InputError(
            f"{len(failed)} of {len(EXPERIMENTS)} experiments failed ({', '.join(failed)}): read what each said above; "
            "the same command goes on from what is there"
        )
    print(f"all {len(EXPERIMENTS)} experiments: their tables are {arguments.out}/<name>/<name>.md")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
