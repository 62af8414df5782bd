"""Asks a gateway one question: starts it, waits until it is ready, ranks one query over HTTP, prints the answer.

The query and its items are the first warm-up request that the exported model's manifest carries.
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

READY_WITHIN = 180.0  # seconds; loading and compiling take most of them on a busy machine
ANSWER_WITHIN = 30.0  # seconds
STOP_WITHIN = 20.0  # seconds

# The gateway is on this machine, whatever proxy the environment names for others.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def newest_manifest(export_dir: Path) -> ModelManifest:
    """The manifest of the highest version in a directory of exports. Errors: InputError."""
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


def first_question(manifest: ModelManifest) -> dict[str, Any]:
    """A request in the shape of /rank. Errors: InputError when the manifest carries none."""
    if not manifest.warm_up:
        raise InputError(
            f"the model {manifest.name!r} carries no warm-up request, so there is nothing to ask: "
            "train on a dataset whose valid split holds queries that enough users made"
        )
    return manifest.warm_up[0]


def free_port() -> int:
    """A TCP port that is free on the loopback interface at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running_gateway(export_dir: Path, port: int, settings: Path | None = None) -> Iterator[str]:
    """A gateway process of its own, ready to rank; its address. It is stopped on the way out.

    settings: its settings file.
    Errors: InputError with the gateway's last words when it ends or is not ready in time.
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
                process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, log: IO[bytes]) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise InputError(f"the gateway ended with exit code {process.returncode}. It said: {_last_words(log)}")
        with contextlib.suppress(OSError), _open(f"{address}/readyz", timeout=2):
            return
        time.sleep(0.2)
    raise InputError(f"the gateway was not ready within {READY_WITHIN:g} s. It said: {_last_words(log)}")


def _last_words(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").splitlines()[-20:]) or "nothing"


def ask(address: str, question: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """The gateway's answer to one /v1/rank request, and how long it took in milliseconds.

    Errors: InputError with the problem that the gateway answered.
    """
    request = urllib.request.Request(
        f"{address}/v1/rank", json.dumps(question).encode(), {"Content-Type": "application/json"}
    )
    began = time.monotonic()
    try:
        with _open(request, timeout=ANSWER_WITHIN) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        problem = error.read().decode(errors="replace")
        raise InputError(f"the gateway refused the model's own warm-up request ({error.code}): {problem}") from None
    return answer, 1000 * (time.monotonic() - began)


def as_table(question: dict[str, Any], answer: dict[str, Any]) -> str:
    """Question and answer for a person: a line each result, the best first."""
    context = ", ".join(f"{name}: {value}" for name, value in question.items() if name not in ("items", "top_n"))
    lines = [f"  {context}", f"  {'rank':>4}  {'score':>7}  {'given':>5}  item"]
    for rank, result in enumerate(answer["results"], start=1):
        index = result["index"]
        lines.append(f"  {rank:>4}  {result['score']:>7.4f}  {index + 1:>5}  {_named(question['items'][index])}")
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
        prog="python -m serving.ask",
        description="Starts the gateway, ranks one query over HTTP, prints the answer, stops the gateway.",
        epilog="example: python -m serving.ask --export-dir build/demo/run/export",
    )
    parser.add_argument("--export-dir", type=Path, required=True, help="directory of exported versions")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stopped from outside, it still stops the gateway
    manifest = newest_manifest(args.export_dir)
    question = first_question(manifest)
    print(f"starting the gateway on {args.export_dir}", flush=True)
    with running_gateway(args.export_dir, free_port()) as address:
        answer, milliseconds = ask(address, question)
    model = answer["model"]
    print(f"POST {address}/v1/rank -> {model['name']} version {model['version']}, {milliseconds:.1f} ms")
    print(as_table(question, answer))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
