"""Handles SIGTERM in commands, also as process 1 of a container, where the kernel has no default action."""

import atexit
import logging
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

SIGTERM_EXIT_CODE = 128 + signal.SIGTERM  # 143, by the shells' convention
CLEANUP_SECONDS = 5.0  # for clean-up; a container engine kills after 10


class Terminated(SystemExit):
    """Raised in the main thread at SIGTERM. Uncaught, it ends the process with exit code 143."""

    def __init__(self, message: str = "SIGTERM") -> None:
        super().__init__(message)  # a str, to which Beam appends the name of the step that was running
        self.code = SIGTERM_EXIT_CODE


def exit_on_sigterm(unwind_seconds: float | None = CLEANUP_SECONDS) -> None:
    """Makes SIGTERM raise Terminated in the main thread, so that `finally` blocks run. Call before long imports.

    unwind_seconds: after the signal; then the process ends with exit code 143 whatever it does. Python runs no
    handler while the main thread is in native code, where training spends its time. None: no such limit, for a
    command that installs a handler of its own.
    """
    signal.signal(signal.SIGTERM, _raise)
    if unwind_seconds is not None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        # the handler in C writes each signal's number here at once, whatever the main thread does
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=_exit_after_sigterm, args=(reader, unwind_seconds), daemon=True).start()


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would interrupt the clean-up
    logging.disable()  # Beam logs the exception as a step's failure
    atexit.register(exit_now)  # registered last, it runs first
    raise Terminated


def exit_now() -> NoReturn:
    """Ends the process with exit code 143. The interpreter's own shutdown waits seconds for threads of TensorFlow."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # a closed pipe must not prevent the exit
        os._exit(SIGTERM_EXIT_CODE)


def _exit_after_sigterm(reader: int, seconds: float) -> None:
    while os.read(reader, 1) != bytes([signal.SIGTERM]):
        pass
    time.sleep(seconds)
    os._exit(SIGTERM_EXIT_CODE)
