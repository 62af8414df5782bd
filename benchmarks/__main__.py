"""Emits all figures, one JSON line each. Training and serving measure the output of `make demo`.

Example: python -m benchmarks
"""

import subprocess
import sys

_BENCHMARKS = ("beam", "simulator", "letor", "training", "serving")  # one process each, so that none slows another


def main() -> int:
    """Runs every benchmark. Returns the first exit code that is not 0."""
    codes = [
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode for name in _BENCHMARKS
    ]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
