"""Simulates a shop's search logs: `python -m simulator --help`."""

from features.termination import exit_on_sigterm

if __name__ == "__main__":
    exit_on_sigterm()  # before the imports, which take seconds

import sys

from features.errors import exit_code_of
from simulator.simulate_logs import main

if __name__ == "__main__":
    sys.exit(exit_code_of(main))
