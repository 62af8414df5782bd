"""The log: one JSON object a line on stderr. No text of a request is ever in it."""

import asyncio
import json
import logging
import sys
import time
import traceback
from contextlib import nullcontext
from typing import Any, TextIO

LOG = logging.getLogger("serving")
WRITE_SECONDS = 0.05  # between two writes of lines that the event loop logs


class JsonLines(logging.Formatter):
    """A log record as one JSON object; `extra={"fields": {...}}` joins it. said: what every line says."""

    def __init__(self, said: dict[str, Any]) -> None:
        super().__init__()
        self._said = said

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        line = {"time": stamp, "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps(line | self._said | getattr(record, "fields", {}))


class TogetherHandler(logging.Handler):
    """Writes what the event loop logs some times a second, and everything else at once.

    Each write hands the interpreter's lock away, and the loop would wait for it behind the threads that score: with a
    write a line, a gateway that refuses hundreds of requests a second would do little else.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: list[str] = []
        self._later: asyncio.TimerHandle | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record) + "\n")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another thread
            self.flush()
            return
        if record.levelno > logging.INFO:
            self.flush()
        elif self._later is None:
            self._later = loop.call_later(WRITE_SECONDS, self.flush)

    def flush(self) -> None:
        """Writes what waits."""
        with self.lock or nullcontext():
            lines, self._lines, self._later = self._lines, [], None
            self._stream.write("".join(lines))
            self._stream.flush()


def log_to_stderr(process: int | None = None) -> None:
    """Sends our log and uvicorn's warnings to stderr. process: its number among several, which each line says."""
    handler = TogetherHandler(sys.stderr)
    handler.setFormatter(JsonLines({} if process is None else {"process": process}))
    for name, level in (("serving", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    LOG.log(level, event, extra={"fields": fields})


def places_of(error: BaseException) -> list[str]:
    """Where it was raised, without its message, which may quote the request."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-8:]]
