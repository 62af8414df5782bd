"""One gateway process: listens, loads the model, serves, and ends after a signal."""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from features.errors import InputError
from serving.api.admin import create_admin_app
from serving.api.app import create_app
from serving.api.gateway import Gateway
from serving.cpus import available_cpus, size_tensorflow
from serving.models.loaded_model import LoadedModel
from serving.observability.json_log import log, log_to_stderr
from serving.observability.metrics import Replacements
from serving.ranking.body_decoder import MAX_INTEGER_DIGITS
from serving.server.heartbeat import WorkerContext, send_heartbeats
from serving.server.http_protocol import limited_protocol
from serving.server.sockets import Listeners, address_of, check_authentication, listen, listen_for_admin, port_of
from serving.settings import Settings

_LOADING_SECONDS = 1.0  # a version that is being loaded at the end has this long to finish
_SWITCH_SECONDS = 0.001  # switch interval; at Python's 5 ms the event loop waits too long for scoring threads


class DrainingServer(uvicorn.Server):
    """uvicorn's server with a drain period: after SIGTERM it serves for a while but reports that it is not ready.

    Load balancers need that time to stop sending requests. SIGINT or a second SIGTERM skips it.
    """

    def __init__(self, config: uvicorn.Config, gateway: Gateway, worker: WorkerContext | None) -> None:
        super().__init__(config)
        self._gateway, self._worker = gateway, worker
        self._drained_at = float("inf")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._worker is not None and not self.should_exit:  # its model is ready
            send_heartbeats(self._worker.heartbeats)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGTERM and not self._gateway.draining:
            self._gateway.draining = True
            self._drained_at = time.monotonic() + self._gateway.settings.drain_seconds
            return
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self._gateway.draining = self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if time.monotonic() >= self._drained_at:
            self.should_exit = True
        return await super().on_tick(counter)


class PortDispatcher:
    """ASGI app that dispatches a request by the port that received it: the client app or the admin app."""

    def __init__(self, apps: Mapping[int, ASGIApp]) -> None:
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._apps[scope["server"][1]](scope, receive, send)


def serve(settings: Settings) -> None:
    """Serves with a single process. Errors: InputError."""
    check_authentication(settings)
    listeners = Listeners(listen(settings.host, settings.port), admin=listen_for_admin(settings))
    print(f"listening on {address_of(listeners.clients)}, loading {settings.export_dir}", flush=True)
    if listeners.admin is not None:
        print(f"administration on {address_of(listeners.admin)}/admin", flush=True)
    serve_on(listeners, settings)


def serve_on(listeners: Listeners, settings: Settings, worker: WorkerContext | None = None) -> None:
    """Loads the model, serves, and returns after a signal. Errors: InputError.

    worker: given to one of several processes, which accepts no connection before its model is ready; others may be.
    """
    log_to_stderr(worker.number if worker is not None else None)
    _size_threads(settings)
    gateway = Gateway(settings)
    gateway.metrics.register(Replacements(worker.replaced if worker is not None else {}))
    server = DrainingServer(_uvicorn_config(_dispatcher(listeners, gateway), gateway), gateway, worker)
    loaded = threading.Event()

    def ready(served: LoadedModel) -> None:
        log("ready", model=served.name, version=served.version)
        print(f"ready: {served.name} version {served.version}; try it at {address_of(listeners.clients)}/", flush=True)
        loaded.set()

    def failed() -> None:
        server.should_exit = True
        loaded.set()

    gateway.versions.start(ready, failed)
    sys.setswitchinterval(_SWITCH_SECONDS)
    sys.set_int_max_str_digits(MAX_INTEGER_DIGITS)
    try:
        if worker is not None:
            loaded.wait()
        server.run(sockets=list(filter(None, listeners)))
    finally:
        gateway.versions.stop()
        gateway.shadow.stop()
        gateway.tracing.stop()
    if gateway.versions.failure is not None:
        raise gateway.versions.failure
    log("ended")
    _abandon_threads(gateway)


def _abandon_threads(gateway: Gateway) -> None:
    """Ends the process at once if a thread still scores or loads. The interpreter would wait for it without a limit.

    A model call or a read of the store may hang. The exit code is 1 only if a request was abandoned.
    """
    scoring, loading = gateway.queue.scoring, not gateway.versions.join(_LOADING_SECONDS)
    if scoring or loading:
        log("threads-abandoned", logging.WARNING, threads=scoring, loading=loading)
        sys.stdout.flush()
        os._exit(1 if scoring else 0)


def _size_threads(settings: Settings) -> None:
    """Sizes TensorFlow's thread pools by this process's share of the CPUs. Logs all sizes."""
    cpus = available_cpus()
    intra_op, inter_op = size_tensorflow(cpus.share(settings.processes.number)).values()
    tensorflow: dict[str, Any] = {"tensorflow_intra_op": intra_op, "tensorflow_inter_op": inter_op}
    log("threads", affinity=cpus.affinity, cpu_quota=cpus.quota, scoring=settings.queue.threads, **tensorflow)


def _dispatcher(listeners: Listeners, gateway: Gateway) -> ASGIApp:
    """Maps each listener's port to its app. Errors: InputError if two listeners have the same port."""
    apps = {port_of(listeners.clients): create_app(gateway, with_metrics=listeners.own is None)}
    if listeners.own is not None:
        apps[port_of(listeners.own)] = create_app(gateway)
    if listeners.admin is not None:
        apps[port_of(listeners.admin)] = create_admin_app(gateway)
    if len(apps) < sum(listener is not None for listener in listeners):
        ports = ", ".join(str(port_of(listener)) for listener in listeners if listener is not None)
        raise InputError(f"the ports are {ports}: expected different ports for clients, processes and administration")
    return PortDispatcher(apps)


def _uvicorn_config(app: ASGIApp, gateway: Gateway) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=limited_protocol(gateway.settings.connections, gateway.metrics.count_refused),
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=gateway.settings.finish_seconds,
    )
