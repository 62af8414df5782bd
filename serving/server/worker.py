"""One gateway process: it listens, loads, answers, and ends after a signal."""

import signal
import sys
import threading
import time
from collections.abc import Mapping
from types import FrameType

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from features.errors import InputError
from serving.admin import create_admin_app
from serving.app import create_app
from serving.connections import protocol_within
from serving.gateway import Gateway
from serving.listening import Doors, address_of, listen, listen_for_admin, port_of, refuse_strangers
from serving.log import log, log_to_stderr
from serving.served import Served
from serving.settings import Settings

SWITCH_SECONDS = 0.001  # after which a thread that computes hands the lock to the one that answers, who else waits 5 ms


class Server(uvicorn.Server):
    """uvicorn, with a pause between SIGTERM and the end in which the gateway answers but says that it is not ready.

    A load balancer needs that pause to look elsewhere. SIGINT, or a second SIGTERM, skips it.
    """

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._ends_at = float("inf")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGTERM and not self._gateway.draining:
            self._gateway.draining = True
            self._ends_at = time.monotonic() + self._gateway.settings.drain_seconds
            return
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self._gateway.draining = self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if time.monotonic() >= self._ends_at:
            self.should_exit = True
        return await super().on_tick(counter)


class ByPort:
    """An ASGI app that hands a request to the app of the port that it came in by: clients', or the administration's."""

    def __init__(self, apps: Mapping[int, ASGIApp]) -> None:
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._apps[scope["server"][1]](scope, receive, send)


def serve(settings: Settings) -> None:
    """One process alone. Errors: InputError."""
    refuse_strangers(settings)
    doors = Doors(listen(settings.host, settings.port), admin=listen_for_admin(settings))
    print(f"listening on {address_of(doors.clients)}, loading {settings.export_dir}", flush=True)
    if doors.admin is not None:
        print(f"administration on {address_of(doors.admin)}/admin", flush=True)
    serve_behind(doors, settings)


def serve_behind(doors: Doors, settings: Settings, process: int | None = None) -> None:
    """Loads, answers, and returns after a signal. Errors: InputError.

    process: its number among several. Then it takes no connection before its model is ready, for others may be.
    """
    log_to_stderr(process)
    gateway = Gateway(settings)
    server = Server(_uvicorn_config(_app_behind(doors, gateway), gateway), gateway)
    loaded = threading.Event()

    def ready(served: Served) -> None:
        log("ready", model=served.name, version=served.version)
        print(f"ready: {served.name} version {served.version}; try it at {address_of(doors.clients)}/", flush=True)
        loaded.set()

    def failed() -> None:
        server.should_exit = True
        loaded.set()

    gateway.versions.start(ready, failed)
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        if process is not None:
            loaded.wait()
        server.run(sockets=list(filter(None, doors)))
    finally:
        gateway.versions.stop()
        gateway.shadow.stop()
        gateway.tracing.stop()
    if gateway.versions.failure is not None:
        raise gateway.versions.failure
    log("ended")


def _app_behind(doors: Doors, gateway: Gateway) -> ASGIApp:
    """Errors: InputError where two doors have one port."""
    apps = {port_of(doors.clients): create_app(gateway, tells_metrics=doors.own is None)}
    if doors.own is not None:
        apps[port_of(doors.own)] = create_app(gateway)
    if doors.admin is not None:
        apps[port_of(doors.admin)] = create_admin_app(gateway)
    if len(apps) < sum(door is not None for door in doors):
        ports = ", ".join(str(port_of(door)) for door in doors if door is not None)
        raise InputError(f"the ports are {ports}: give clients, processes and the administration ports of their own")
    return ByPort(apps)


def _uvicorn_config(app: ASGIApp, gateway: Gateway) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol_within(gateway.settings.connections, gateway.metrics.count_refused),
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=gateway.settings.finish_seconds,
    )
