"""Several gateway processes behind one port, each on cores of its own. A dead one is replaced.

They are spawned, for TensorFlow does not survive a fork. Nothing passes between them: what all must do, a file says
(`serve_version`), and each tells its own metrics at a port of its own.
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
from serving.listening import Doors, address_of, bind, listen, listen_for_admin, port_for, port_of, refuse_strangers
from serving.log import log, log_to_stderr
from serving.process import serve_behind
from serving.settings import Settings

LOOK_SECONDS = 0.2  # between two looks at the processes
SHORT_LIFE = 60.0  # seconds: who dies sooner is replaced later each time
DOUBLINGS = 6  # of that pause of a second, at most
WRONG_INPUT = 2  # the exit code


class Place:
    """One of the processes. Its cores and its doors stay as they are when it is replaced."""

    def __init__(self, settings: Settings, number: int, cores: list[int], doors: Doors) -> None:
        self.number = number
        self._settings, self._cores, self._doors = settings, cores, doors
        self._short_lives = 0  # in a row
        self._start(replaces=False)

    def _start(self, replaces: bool) -> None:
        given = self._settings.model_dump(exclude_unset=True)  # its defaults are those of its own cores
        ours = os.sched_getaffinity(0)
        self._process = SpawnProcess(target=_serve, args=(given, self._doors, self.number))
        os.sched_setaffinity(0, self._cores)  # which it inherits
        try:
            self._process.start()
        finally:
            os.sched_setaffinity(0, ours)
        self._replaces, self._began, self._starts_at = replaces, time.monotonic(), 0.0

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def sentinel(self) -> int:
        """What `wait` wakes up at when it ends."""
        return self._process.sentinel

    @property
    def cannot_serve(self) -> bool:
        """Whether it has found nothing to serve, though none served here before."""
        return self._process.exitcode == WRONG_INPUT and not self._replaces

    def terminate(self) -> None:
        self._process.terminate()

    def replace(self) -> None:
        """Starts another one in the place of one that died, after a pause where that was soon."""
        now = time.monotonic()
        if not self._starts_at:
            lived = now - self._began
            self._short_lives = self._short_lives + 1 if lived < SHORT_LIFE else 0
            pause = 2.0 ** min(self._short_lives - 1, DOUBLINGS) if self._short_lives else 0.0
            self._starts_at = now + pause
            said = {"exit_code": self._process.exitcode, "lived_seconds": round(lived, 1), "again_in_seconds": pause}
            log("process-died", logging.ERROR, process=self.number, **said)
        if now >= self._starts_at:
            self._start(replaces=True)


def supervise(settings: Settings) -> None:
    """Starts the processes, replaces those that die, and returns after a signal, when all have ended.

    Errors: InputError; SystemExit where one cannot serve from the start, which has said why.
    """
    log_to_stderr()
    refuse_strangers(settings)
    places = _places(settings)
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    told, code = 0, 0
    while not told or any(place.alive for place in places):
        wait([place.sentinel for place in places if place.alive], LOOK_SECONDS)
        if any(place.cannot_serve for place in places) and not code:
            code = WRONG_INPUT
            signals.append(signal.SIGTERM)
        if len(signals) > told:
            told = len(signals)
            for place in places:
                place.terminate()
        for place in places:
            if not told and not place.alive:
                place.replace()
    if code:
        sys.exit(code)


def _places(settings: Settings) -> list[Place]:
    """The processes, started; where each is reached is printed. Errors: InputError."""
    number, cores = settings.processes.number, sorted(os.sched_getaffinity(0))
    if number > len(cores):
        told = f"processes.number is {number}, but this process may use {len(cores)} cores"
        raise InputError(f"{told}: give each process one at least")
    with closing(listen(settings.host, settings.port)) as alone:  # fails where another gateway has the port
        port = port_of(alone)
    clients = bind(settings.host, port, shared=True)  # which keeps it for the processes
    doors = [
        Doors(clients, listen(settings.host, port_for(n, settings.processes.port)), listen_for_admin(settings, n))
        for n in range(number)
    ]
    print(f"listening on {address_of(clients)}, loading {settings.export_dir}", flush=True)
    for n, (_, own, admin) in enumerate(doors):
        if own is not None:
            administration = f", administration on {address_of(admin)}/admin" if admin is not None else ""
            print(f"process {n} on {address_of(own)}{administration}", flush=True)
    return [Place(settings, n, cores[n::number], doors[n]) for n in range(number)]


def _serve(given: dict[str, Any], doors: Doors, number: int) -> None:
    """The life of one of the processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent is told as well, and says how to end
    threading.Thread(target=_end_with_parent, daemon=True).start()
    settings = Settings.model_validate(given)
    sys.exit(exit_code_of(lambda: _serve_beside_others(doors, settings, number)))


def _serve_beside_others(doors: Doors, settings: Settings, number: int) -> None:
    # a socket of its own, that closes when it dies: what came to the parent's would wait for nobody
    clients = bind(settings.host, port_of(doors.clients), shared=True)
    serve_behind(doors._replace(clients=clients), settings, number)


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
