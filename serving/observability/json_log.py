"""The log: one JSON object a line on stderr. No text of a request is ever in it."""

import asyncio
import json
import logging
import sys
import threading
import time
import traceback
from collections import deque
from typing import Any

WRITE_SECONDS = 0.05  # between two writes of lines that the event loop logs


class Lines:
    """Writes what the event loop logs some times a second, and everything else at once.

    Each write hands the interpreter's lock away, and the loop would wait for it behind the threads that score: with a
    write a line, a gateway that refuses hundreds of requests a second would do little else. Python's own logging does
    far more for a line than to write it: it is for messages that others send.
    """

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}  # what every line says
        self._lines = deque[str]()  # any thread appends without a lock, and none is lost
        self._later: asyncio.TimerHandle | None = None
        self._writing = threading.Lock()

    def add(self, event: str, level: int, fields: dict[str, Any]) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
        line = {"time": stamp, "level": logging.getLevelName(level).lower(), "event": event} | self.said | fields
        self._lines.append(json.dumps(line) + "\n")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another thread
            self.write()
            return
        if level > logging.INFO:
            self.write()
        elif self._later is None:
            self._later = loop.call_later(WRITE_SECONDS, self.write)

    def write(self) -> None:
        """Writes what waits."""
        with self._writing:
            self._later = None
            sys.stderr.write("".join(self._lines.popleft() for _ in range(len(self._lines))))
            sys.stderr.flush()


LINES = Lines()


class _OfOthers(logging.Handler):
    """What others log, as our lines."""

    def emit(self, record: logging.LogRecord) -> None:
        LINES.add(record.getMessage(), record.levelno, {})

    def flush(self) -> None:
        """Called at the end of the process."""
        LINES.write()


def log_to_stderr(process: int | None = None) -> None:
    """Sends our log and uvicorn's warnings to stderr. process: its number among several, which each line says."""
    LINES.said = {} if process is None else {"process": process}
    logger = logging.getLogger("uvicorn.error")
    logger.handlers, logger.propagate = [_OfOthers()], False
    logger.setLevel(logging.WARNING)


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    LINES.add(event, level, fields)


def places_of(error: BaseException) -> list[str]:
    """Where it was raised, without its message, which may quote the request."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-8:]]
