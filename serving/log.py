"""The log: one JSON object a line on stderr. No text of a request is ever in it."""

import json
import logging
import sys
import time
import traceback
from typing import Any

LOG = logging.getLogger("serving")


class JsonLines(logging.Formatter):
    """A log record as one JSON object; `extra={"fields": {...}}` joins it."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        line = {"time": stamp, "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps(line | getattr(record, "fields", {}))


def log_to_stderr() -> None:
    """Sends our log and uvicorn's warnings to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
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
