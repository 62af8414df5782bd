"""Supervises several gateway processes that share one port, each on its own cores. Replaces those that die or hang.

Processes are spawned, because TensorFlow does not survive a fork. They do not communicate: common orders are read from
a file (`serve_version`), and each serves its own metrics at its own port. Each sends heartbeats to the supervisor.
"""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from contextlib import closing
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any

from features.errors import InputError, exit_code_of
from serving.cpus import available_cpus
from serving.observability.json_log import log, log_to_stderr
from serving.server.heartbeat import HeartbeatMonitor, WorkerContext
from serving.server.sockets import (
    Listeners,
    address_of,
    bind,
    check_authentication,
    listen,
    listen_for_admin,
    port_for,
    port_of,
)
from serving.server.worker import serve_on
from serving.settings import WAITING_PER_CORE, Settings

_POLL_SECONDS = 0.2  # polling interval of the processes
_SHORT_LIFE_SECONDS = 60.0  # seconds; a process that dies sooner is replaced after a growing pause
_MAX_DOUBLINGS = 6  # maximum doublings of that pause, which begins at a second
_INPUT_ERROR_CODE = 2  # exit code of an InputError


class WorkerSlot:
    """One worker process and its replacements, which keep its number, cores and listeners."""

    def __init__(self, settings: Settings, number: int, cores: list[int], listeners: Listeners) -> None:
        self.number = number
        self._settings, self._cores, self._listeners = settings, cores, listeners
        self._short_lives = 0  # consecutive
        self._replaced = {"died": 0, "hung": 0}
        self._has_served = False  # this process or one before it
        self._ending_since: float | None = None  # time of the first SIGTERM
        self._start()

    def _start(self) -> None:
        given = self._settings.model_dump(exclude_unset=True)  # unset members get the defaults of its own cores
        affinity = os.sched_getaffinity(0)
        receiver, heartbeats = multiprocessing.Pipe(duplex=False)
        worker = WorkerContext(self.number, heartbeats, dict(self._replaced))
        self._process = SpawnProcess(target=_run_worker, args=(given, self._listeners, worker))
        os.sched_setaffinity(0, self._cores)  # inherited by the process
        try:
            self._process.start()
        finally:
            os.sched_setaffinity(0, affinity)
            heartbeats.close()
        self._started_at, self._restart_at = time.monotonic(), 0.0
        self._monitor, self._kill_at = HeartbeatMonitor(receiver, self._started_at), 0.0

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def sentinel(self) -> int:
        """Handle for `multiprocessing.connection.wait`: ready when the process ends."""
        return self._process.sentinel

    @property
    def cannot_serve(self) -> bool:
        """Whether it failed with an InputError before any process of this slot was ready."""
        return self._process.exitcode == _INPUT_ERROR_CODE and not self._has_served

    def terminate(self) -> None:
        self._ending_since = self._ending_since or time.monotonic()
        self._process.terminate()

    def end_if_hung(self) -> None:
        """Ends the process if its event loop hangs or its model is not ready in time: SIGTERM, later SIGKILL.

        After `terminate`, one that was never ready may be silent no longer than one that was.
        """
        now, limits = time.monotonic(), self._settings.processes
        silence = self._monitor.silence(now)
        self._has_served = self._has_served or self._monitor.has_beaten
        limit = limits.hung_seconds if self._monitor.has_beaten else limits.start_seconds
        if self._ending_since is not None and not self._monitor.has_beaten:
            silence, limit = min(silence, now - self._ending_since), min(limit, limits.hung_seconds)
        if self._kill_at and now >= self._kill_at:
            self._process.kill()
        elif not self._kill_at and silence > limit:
            fields = {"silent_seconds": round(silence, 1), "was_ready": self._monitor.has_beaten}
            log("process-hung", logging.ERROR, process=self.number, **fields)
            self._kill_at = now + limits.kill_seconds
            self._process.terminate()

    def replace(self) -> None:
        """Starts a new process after one has ended; after a pause if that one was short-lived."""
        now = time.monotonic()
        if not self._restart_at:
            self._monitor.close()
            reason = "hung" if self._kill_at else "died"
            self._replaced[reason] += 1
            lived = now - self._started_at
            self._short_lives = self._short_lives + 1 if lived < _SHORT_LIFE_SECONDS else 0
            pause = 2.0 ** min(self._short_lives - 1, _MAX_DOUBLINGS) if self._short_lives else 0.0
            self._restart_at = now + pause
            fields = {
                "reason": reason,
                "exit_code": self._process.exitcode,
                "lived_seconds": round(lived, 1),
                "again_in_seconds": pause,
            }
            log("process-died", logging.ERROR, process=self.number, **fields)
        if now >= self._restart_at:
            self._start()


def supervise(settings: Settings) -> None:
    """Starts the processes and replaces those that die. Returns after a signal, when all have ended.

    Errors: InputError; SystemExit if a process could not serve at all; that process has logged the reason.
    """
    log_to_stderr()
    check_authentication(settings)
    slots = _start_workers(settings)
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    handled, code = 0, 0
    while not handled or any(slot.alive for slot in slots):
        wait([slot.sentinel for slot in slots if slot.alive], _POLL_SECONDS)
        if any(slot.cannot_serve for slot in slots) and not code:
            code = _INPUT_ERROR_CODE
            signals.append(signal.SIGTERM)
        if len(signals) > handled:
            handled = len(signals)
            for slot in slots:
                slot.terminate()
        for slot in slots:
            if slot.alive:
                slot.end_if_hung()
            elif not handled:
                slot.replace()
    if code:
        sys.exit(code)


def _start_workers(settings: Settings) -> list[WorkerSlot]:
    """Starts the processes and prints their addresses. Errors: InputError."""
    number, cores, usable = settings.processes.number, sorted(os.sched_getaffinity(0)), available_cpus().share()
    if number > usable:
        message = f"processes.number is {number}, but this process may use {usable} cores"
        raise InputError(f"{message}: set it to {usable} at most")
    with closing(listen(settings.host, settings.port)) as probe:  # fails if another program uses the port
        port = port_of(probe)
    clients = bind(settings.host, port, shared=True)  # reserves the port for the processes
    listeners = [
        Listeners(clients, listen(settings.host, port_for(n, settings.processes.port)), listen_for_admin(settings, n))
        for n in range(number)
    ]
    print(f"listening on {address_of(clients)}, loading {settings.export_dir}", flush=True)
    for n, (_, own, admin) in enumerate(listeners):
        if own is not None:
            administration = f", administration on {address_of(admin)}/admin" if admin is not None else ""
            print(f"process {n} on {address_of(own)}{administration}", flush=True)
    return [WorkerSlot(settings, n, cores[n::number], listeners[n]) for n in range(number)]


def _run_worker(given: dict[str, Any], listeners: Listeners, worker: WorkerContext) -> None:
    """Entry point of a spawned process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal signals the parent too, which ends this process
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    settings = Settings.model_validate(given)
    share = available_cpus().share(settings.processes.number)
    queue = {"threads": share, "waiting": WAITING_PER_CORE * share} | given.get("queue", {})
    settings = Settings.model_validate(given | {"queue": queue})
    sys.exit(exit_code_of(lambda: _serve_on_shared_port(listeners, settings, worker)))


def _serve_on_shared_port(listeners: Listeners, settings: Settings, worker: WorkerContext) -> None:
    # its own socket, closed when it dies; connections queued on the parent's socket would never be accepted
    clients = bind(settings.host, port_of(listeners.clients), shared=True)
    serve_on(listeners._replace(clients=clients), settings, worker)


def _exit_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
