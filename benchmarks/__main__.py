"""All figures, one JSON line each. The ones of training and serving measure what `make demo` built.

Example: python -m benchmarks
"""

import subprocess
import sys

BENCHMARKS = ("beam", "simulator", "letor", "training", "serving")  # each a process of its own: none slows another


def main() -> int:
    """Runs every benchmark. Returns the first exit code that is not 0."""
    codes = [
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode for name in BENCHMARKS
    ]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
