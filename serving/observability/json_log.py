"""The log: one JSON object a line on stderr. It never contains text of a request."""

import asyncio
import json
import logging
import sys
import threading
import time
import traceback
from collections import deque
from typing import Any

_WRITE_SECONDS = 0.05  # delay of the write of lines that the event loop logs


class LogWriter:
    """Batches the event loop's log lines, several writes a second; writes lines of other threads at once.

    Each write releases the interpreter's lock, and the event loop then waits behind the scoring threads to get it back.
    With a write for each line, a gateway that refuses hundreds of requests a second would do little else.
    Python's logging costs far more a line than the write itself, so only messages of libraries pass through it.
    """

    def __init__(self) -> None:
        self.common_fields: dict[str, Any] = {}  # fields of every line
        self._lines = deque[str]()  # append is thread-safe
        self._scheduled: asyncio.TimerHandle | None = None
        self._write_lock = threading.Lock()

    def add(self, event: str, level: int, fields: dict[str, Any]) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
        line = (
            {"time": stamp, "level": logging.getLevelName(level).lower(), "event": event} | self.common_fields | fields
        )
        self._lines.append(json.dumps(line) + "\n")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another thread
            self.write()
            return
        if level > logging.INFO:
            self.write()
        elif self._scheduled is None:
            self._scheduled = loop.call_later(_WRITE_SECONDS, self.write)

    def write(self) -> None:
        """Writes the pending lines."""
        with self._write_lock:
            self._scheduled = None
            sys.stderr.write("".join(self._lines.popleft() for _ in range(len(self._lines))))
            sys.stderr.flush()


_WRITER = LogWriter()


class _LibraryLogHandler(logging.Handler):
    """Forwards log records of libraries to the log."""

    def emit(self, record: logging.LogRecord) -> None:
        _WRITER.add(record.getMessage(), record.levelno, {})

    def flush(self) -> None:
        """Called by `logging` at exit."""
        _WRITER.write()


def log_to_stderr(process: int | None = None) -> None:
    """Sends our log and uvicorn's warnings to stderr. process: this process's number, added to every line."""
    _WRITER.common_fields = {} if process is None else {"process": process}
    logger = logging.getLogger("uvicorn.error")
    logger.handlers, logger.propagate = [_LibraryLogHandler()], False
    logger.setLevel(logging.WARNING)


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    _WRITER.add(event, level, fields)


def stack_locations(error: BaseException) -> list[str]:
    """Returns the innermost stack frames of an error, without its message, which may quote the request."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-8:]]
