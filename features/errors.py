"""Errors that a user can correct: one message, exit code 2, no traceback."""

import sys
from collections.abc import Callable

from features.termination import Terminated, exit_now


class InputError(Exception):
    """An invalid input. The message has the value, the expectation and the remedy."""


def exit_code_of(command: Callable[[], None]) -> int:
    """Runs a command's `main` and prints an InputError to stderr.

    Returns 0, 2 after an InputError, or 130 after an interrupt: `sys.exit(exit_code_of(main))`. If `exit_on_sigterm`
    was called, SIGTERM ends the process here with exit code 143.
    """
    try:
        command()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; nothing half-written was left in place", file=sys.stderr)
        return 130
    except Terminated:
        print("terminated; nothing half-written was left in place", file=sys.stderr)
        exit_now()
    return 0
