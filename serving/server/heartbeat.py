"""Heartbeats: each worker's event loop writes to a pipe, which the supervisor reads."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple

_BEAT_SECONDS = 0.5  # between two heartbeats
_SUPERVISOR_STALL_SECONDS = 5.0  # between two reads: the supervisor itself stalled, so silence proves nothing


class WorkerContext(NamedTuple):
    """What the supervisor passes to a worker. replaced: number of its predecessors, by reason of replacement."""

    number: int
    heartbeats: Connection
    replaced: Mapping[str, int]


def send_heartbeats(pipe: Connection) -> None:
    """Sends heartbeats for as long as the running event loop runs."""
    loop = asyncio.get_running_loop()
    os.set_blocking(pipe.fileno(), False)

    def send() -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # the pipe is full, or the supervisor has ended
            os.write(pipe.fileno(), b".")
        loop.call_later(_BEAT_SECONDS, send)

    send()


class HeartbeatMonitor:
    """Measures how long a worker has sent no heartbeat."""

    def __init__(self, pipe: Connection, now: float) -> None:
        """now: time.monotonic(), as in `silence`."""
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._last_beat = self._last_read = now
        self.has_beaten = False  # since the process started

    def silence(self, now: float) -> float:
        """Returns the seconds since the last heartbeat, or since the start if there was none."""
        if self._read() or now - self._last_read > _SUPERVISOR_STALL_SECONDS:
            self._last_beat = now
        self._last_read = now
        return now - self._last_beat

    def _read(self) -> bool:
        try:
            beats = os.read(self._pipe.fileno(), 65536)
        except BlockingIOError:
            return False
        self.has_beaten = self.has_beaten or bool(beats)
        return bool(beats)

    def close(self) -> None:
        self._pipe.close()
