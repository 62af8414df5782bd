"""Serves an exported model over HTTP: `python -m serving --export-dir build/demo/run/export`."""

import argparse
import os
import signal
import socket
import sys
import time
from types import FrameType

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, which reads it once

import uvicorn

from features.errors import InputError, exit_code_of
from features.task import parse
from serving.app import create_app
from serving.gateway import Gateway, Served, raise_failure
from serving.settings import Settings
from serving.telemetry import log, log_to_stderr

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


def serve(settings: Settings) -> None:
    """Listens, loads, answers, and returns after a signal. Errors: InputError."""
    log_to_stderr()
    gateway = Gateway(settings)
    listener = _listen(settings)
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    server = Server(_uvicorn_config(gateway), gateway)

    def ready(served: Served) -> None:
        log("ready", model=served.name, version=served.version, warm_up_requests=served.warmed)
        print(f"ready: {served.name} version {served.version}; try it at {address}/", flush=True)

    def failed() -> None:
        server.should_exit = True

    print(f"listening on {address}, loading {settings.export_dir}", flush=True)
    gateway.start_loading(ready, failed)
    server.run(sockets=[listener])
    raise_failure(gateway)
    log("ended")


def _uvicorn_config(gateway: Gateway) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(gateway),
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=gateway.settings.finish_seconds,
    )


def _listen(settings: Settings) -> socket.socket:
    """A bound socket. Errors: InputError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)  # from here on a client waits instead of being refused
    except OSError as error:
        told = f"cannot listen on {settings.host} port {settings.port}: {error.strerror}"
        raise InputError(f"{told}. Give --port another number (0 takes a free one), or --host an own address") from None
    return listener


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
    return parser.parse_args()


def main() -> None:
    given = _arguments()
    serve(parse({"export_dir": given.export_dir, "port": given.port, "host": given.host}, "serving", Settings))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
