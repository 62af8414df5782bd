"""Smoke test: starts a gateway, waits until it is ready, ranks one query over HTTP, prints the response.

The request is the first warm-up request of the exported model's manifest.
"""

import argparse
import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from features.errors import InputError, exit_code_of
from features.manifest import FILE_NAME, ModelManifest, parse_manifest

READY_TIMEOUT = 180.0  # seconds; a busy machine needs most of them to load and compile
ANSWER_TIMEOUT = 30.0  # seconds
STOP_TIMEOUT = 20.0  # seconds

# Ignores the environment's proxy: the gateway runs on this machine.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def newest_manifest(export_dir: Path) -> ModelManifest:
    """Reads the manifest of the highest version in an export directory. Errors: InputError."""
    versions = [path for path in export_dir.glob("*") if path.name.isdecimal() and path.is_dir()]
    if not versions:
        raise InputError(
            f"no exported model in {export_dir}, expected a directory named by its version: "
            "make one with `make demo`, or give --export-dir the `export` directory of a finished run"
        )
    path = max(versions, key=lambda version: int(version.name)) / "assets.extra" / FILE_NAME
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give --export-dir a complete export") from None
    return parse_manifest(content, str(path), ModelManifest)


def first_warm_up_request(manifest: ModelManifest) -> dict[str, Any]:
    """Returns the manifest's first warm-up request, a body of /rank. Errors: InputError if it has none."""
    if not manifest.warm_up:
        raise InputError(
            f"the model {manifest.name!r} has no warm-up request to send: "
            "train on a dataset whose valid split holds queries that enough users made"
        )
    return manifest.warm_up[0]


def free_port() -> int:
    """Returns a TCP port that is currently free on the loopback interface."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running_gateway(export_dir: Path, port: int, settings: Path | None = None) -> Iterator[str]:
    """Starts a gateway process, yields its address once it is ready, and stops it at exit.

    settings: path of its settings file.
    Errors: InputError with the end of the gateway's log if it ends early or is not ready in time.
    """
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "serving", "--export-dir", str(export_dir), "--port", str(port)]
    command += ["--settings", str(settings)] if settings else []
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_until_ready(process, address, log)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, log: IO[bytes]) -> None:
    deadline = time.monotonic() + READY_TIMEOUT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise InputError(f"the gateway ended with exit code {process.returncode}. Its log: {_log_tail(log)}")
        with contextlib.suppress(OSError), _open(f"{address}/readyz", timeout=2):
            return
        time.sleep(0.2)
    raise InputError(f"the gateway was not ready within {READY_TIMEOUT:g} s. Its log: {_log_tail(log)}")


def _log_tail(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").splitlines()[-20:]) or "nothing"


def send_rank_request(address: str, request: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Sends one /v1/rank request. Returns the response and its duration in milliseconds.

    Errors: InputError with the problem that the gateway returned.
    """
    http_request = urllib.request.Request(
        f"{address}/v1/rank", json.dumps(request).encode(), {"Content-Type": "application/json"}
    )
    began = time.monotonic()
    try:
        with _open(http_request, timeout=ANSWER_TIMEOUT) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        problem = error.read().decode(errors="replace")
        raise InputError(f"the gateway refused the model's own warm-up request ({error.code}): {problem}") from None
    return answer, 1000 * (time.monotonic() - began)


def as_table(request: dict[str, Any], answer: dict[str, Any]) -> str:
    """Formats request and response as text: one line a result, the best first."""
    context = ", ".join(f"{name}: {value}" for name, value in request.items() if name not in ("items", "top_n"))
    lines = [f"  {context}", f"  {'rank':>4}  {'score':>7}  {'given':>5}  item"]
    for rank, result in enumerate(answer["results"], start=1):
        index = result["index"]
        lines.append(f"  {rank:>4}  {result['score']:>7.4f}  {index + 1:>5}  {_named(request['items'][index])}")
    return "\n".join(lines)


def _named(item: Any) -> str:
    if isinstance(item, str):
        return item
    features = {name: value for name, value in item.items() if name != "id"}
    title = str(features.pop("title", ""))
    rest = ", ".join(f"{name} {value}" for name, value in features.items())
    return f"{title} ({rest})" if title and rest else title or rest


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m serving.smoke_test",
        description="Starts the gateway, ranks one query over HTTP, prints the answer, stops the gateway.",
        epilog="example: python -m serving.smoke_test --export-dir build/demo/run/export",
    )
    parser.add_argument("--export-dir", type=Path, required=True, help="directory of exported versions")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # SIGTERM stops the gateway too
    manifest = newest_manifest(args.export_dir)
    request = first_warm_up_request(manifest)
    print(f"starting the gateway on {args.export_dir}", flush=True)
    with running_gateway(args.export_dir, free_port()) as address:
        answer, milliseconds = send_rank_request(address, request)
    model = answer["model"]
    print(f"POST {address}/v1/rank -> {model['name']} version {model['version']}, {milliseconds:.1f} ms")
    print(as_table(request, answer))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
