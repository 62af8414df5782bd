"""A gateway as an operator starts it: a process of its own, spoken to over HTTP."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
START_SECONDS = 120.0


def environment() -> dict[str, str]:
    return os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def run_serving(*arguments: str, launcher: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """The command with these arguments, run to its end. launcher: a command that runs it."""
    command = [*launcher, sys.executable, "-m", "serving", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, cwd=ROOT, env=environment())


class GatewayProcess:
    """`python -m serving` on a free port of loopback.

    settings: a settings file; key: sent with every request; module: run in the place of `serving`;
    launcher: a command that runs it, in the same process.
    """

    def __init__(
        self,
        export_dir: Path,
        settings: Path | None = None,
        key: str = "",
        module: str = "serving",
        launcher: Sequence[str] = (),
    ) -> None:
        command = [*launcher, sys.executable, "-m", module, "--export-dir", str(export_dir), "--port", "0"]
        if settings is not None:
            command += ["--settings", str(settings)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
        )
        self.log: list[str] = []  # stderr's lines
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.address = self._address_said()
        self.http = httpx.Client(base_url=self.address, timeout=60, headers=bearer(key) if key else {})

    def _address_said(self) -> str:
        """The address in the next line of stdout: the clients', then the administration's where there is one."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        match = re.search(r"http://[^\s,/]+", said)
        assert match, f"expected an address, the gateway said {said!r}; {self.log}"
        return match[0]

    def admin(self, key: str) -> httpx.Client:
        """A client of the administration's port. To be asked for once."""
        return httpx.Client(base_url=self._address_said(), timeout=60, headers=bearer(key))

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)

    def wait_until_ready(self) -> "GatewayProcess":
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"the gateway ended: {self.log}"
            if self.http.get("/readyz").status_code == 200:
                return self
            time.sleep(0.1)
        raise AssertionError(f"not ready after {START_SECONDS} s: {self.log}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])

    def post(self, body: Any = None, path: str = "/v1/rank", **options: Any) -> httpx.Response:
        """A /rank request; `body` as JSON, or bytes as they are."""
        headers = {"Content-Type": "application/json"} | options.pop("headers", {})
        given = {"content": body} if isinstance(body, bytes) else {"json": body}
        return self.http.post(path, headers=headers, **given, **options)

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log's lines of this event so far."""
        return [line for line in map(json.loads, list(self.log)) if line["event"] == event]

    def wait_for_log(self, event: str, **fields: Any) -> dict[str, Any]:
        """The first line of this event with these fields, once it is there."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for line in self.logged(event):
                if fields.items() <= line.items():
                    return line
            time.sleep(0.02)
        raise AssertionError(f"no line {event} with {fields}: {self.log}")

    def metric(self, sample: str) -> float:
        """A sample of /metrics as it stands there, labels and all; 0 where it is not there yet."""
        text = self.http.get("/metrics").text
        return next((float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(sample + " ")), 0.0)

    @staticmethod
    def json_of(value: Any) -> bytes:
        """As JSON in ASCII, lone surrogates and all, which httpx would not send."""
        return json.dumps(value).encode()

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As `kill -9` does."""
        self._process.kill()
        self._process.wait(timeout=60)

    def wait(self) -> int:
        """Its exit code, the log read to its end."""
        code = self._process.wait(timeout=60)
        self._reader.join(timeout=10)
        return code

    def __enter__(self) -> "GatewayProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.http.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
