"""Serves an exported model over HTTP: `python -m serving --export-dir build/demo/run/export`."""

import argparse
import os
import signal
import sys
import time
from types import FrameType

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, which reads it once

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from features.errors import InputError, exit_code_of
from serving.admin import create_admin_app
from serving.app import create_app
from serving.connections import protocol_within
from serving.gateway import Gateway
from serving.listening import address_of, listen, port_of, refuse_strangers
from serving.log import log, log_to_stderr
from serving.served import Served
from serving.settings import Settings, settings_of

SWITCH_SECONDS = 0.001  # after which a thread that computes hands the lock to the one that answers, who else waits 5 ms
EXAMPLE = """example:
  python -m serving --export-dir build/demo/run/export
  curl -s http://127.0.0.1:8000/rank -H 'Content-Type: application/json' \\
    -d '{"query": "blue sofa", "items": ["Velvet sofa, navy", "Oak table"]}'
"""


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

    def __init__(self, apps: dict[int, ASGIApp]) -> None:
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._apps[scope["server"][1]](scope, receive, send)


def serve(settings: Settings) -> None:
    """Listens, loads, answers, and returns after a signal. Errors: InputError."""
    log_to_stderr()
    refuse_strangers(settings)
    gateway = Gateway(settings)
    client_side = listen(settings.host, settings.port)
    sockets, apps = [client_side], dict[int, ASGIApp]({port_of(client_side): create_app(gateway)})
    if settings.admin.keys:
        if settings.admin.port in apps:
            raise InputError(f"admin.port is {settings.admin.port}, the clients' port: give each a port of its own")
        sockets.append(listen(settings.admin.host, settings.admin.port))
        apps[port_of(sockets[1])] = create_admin_app(gateway)
    server = Server(_uvicorn_config(ByPort(apps), gateway), gateway)

    def ready(served: Served) -> None:
        log("ready", model=served.name, version=served.version)
        print(f"ready: {served.name} version {served.version}; try it at {address_of(client_side)}/", flush=True)

    def failed() -> None:
        server.should_exit = True

    print(f"listening on {address_of(client_side)}, loading {settings.export_dir}", flush=True)
    if settings.admin.keys:
        print(f"administration on {address_of(sockets[1])}/admin", flush=True)
    gateway.versions.start(ready, failed)
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        server.run(sockets=sockets)
    finally:
        gateway.versions.stop()
        gateway.shadow.stop()
        gateway.tracing.stop()
    if gateway.versions.failure is not None:
        raise gateway.versions.failure
    log("ended")


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


def _port(given: str) -> int:
    if not given.isdecimal() or int(given) > 65535:
        raise argparse.ArgumentTypeError(f"{given!r} is no port, expected 0 to 65535")
    return int(given)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m serving",
        description="Serves the highest complete version of an export directory at /rank, with a page to try it at /.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--export-dir", required=True, help="the `export` directory of a finished run")
    parser.add_argument("--port", type=_port, default=8000, help="TCP port (default 8000); 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default 127.0.0.1: this machine only)")
    parser.add_argument("--settings", help="YAML file with everything else: API keys, limits, queue (docs/operate.md)")
    parser.add_argument(
        "--without-keys", action="store_true", help="bind to other addresses although no API key is set: anyone may ask"
    )
    return parser.parse_args()


def main() -> None:
    given = vars(_arguments())
    serve(settings_of(given, given.pop("settings")))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
