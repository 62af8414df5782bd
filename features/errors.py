"""What a user can mend: one message, exit code 2, no traceback."""

import sys
from collections.abc import Callable


class InputError(Exception):
    """A wrong input. The message names the value, the expectation and the remedy."""


def exit_code_of(command: Callable[[], None]) -> int:
    """Runs a command line's `main`; prints an InputError to stderr.

    Returns 0, 2 after an InputError, 130 after an interrupt: `sys.exit(exit_code_of(main))`.
    """
    try:
        command()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; nothing half-written was left in place", file=sys.stderr)
        return 130
    return 0
