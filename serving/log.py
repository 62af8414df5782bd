"""The log: one JSON object a line on stderr. No text of a request is ever in it."""

import asyncio
import json
import logging
import sys
import threading
import time
import traceback
from typing import Any, TextIO

WRITE_SECONDS = 0.05  # between two writes of lines that the event loop logs


class Lines:
    """Writes what the event loop logs some times a second, and everything else at once.

    Each write hands the interpreter's lock away, and the loop would wait for it behind the threads that score: with a
    write a line, a gateway that refuses hundreds of requests a second would do little else. Python's own logging, of
    which a line takes a tenth of a refusal's time, is for messages that others send.
    """

    def __init__(self, stream: TextIO, said: dict[str, Any]) -> None:
        """said: what every line says."""
        self._stream, self._said = stream, said
        self._lines: list[str] = []
        self._later: asyncio.TimerHandle | None = None
        self._writing = threading.Lock()

    def add(self, event: str, level: int, fields: dict[str, Any]) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
        line = {"time": stamp, "level": logging.getLevelName(level).lower(), "event": event} | self._said | fields
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
            lines, self._lines, self._later = self._lines, [], None
            self._stream.write("".join(lines))
            self._stream.flush()


class _OfOthers(logging.Handler):
    """What others log, as our lines."""

    def emit(self, record: logging.LogRecord) -> None:
        _lines.add(record.getMessage(), record.levelno, {})

    def flush(self) -> None:
        """Called at the end of the process."""
        _lines.write()


_lines = Lines(sys.stderr, {})


def log_to_stderr(process: int | None = None) -> None:
    """Sends our log and uvicorn's warnings to stderr. process: its number among several, which each line says."""
    global _lines
    _lines = Lines(sys.stderr, {} if process is None else {"process": process})
    logger = logging.getLogger("uvicorn.error")
    logger.handlers, logger.propagate = [_OfOthers()], False
    logger.setLevel(logging.WARNING)


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    _lines.add(event, level, fields)


def places_of(error: BaseException) -> list[str]:
    """Where it was raised, without its message, which may quote the request."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-8:]]
