"""A gateway as an operator keeps it: with keys, an administration, and limits that a test can reach."""

import hashlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.serving.processes import START_SECONDS, GatewayProcess

KEY, NEW_KEY, ADMIN_KEY = "a client's key", "the key that comes after it", "the administration's key"
HISTOGRAM = {"edges": [0.0, 0.25, 0.5, 0.75, 1.0], "counts": [0, 50, 50, 0]}


def hashed(name: str, key: str) -> dict[str, str]:
    return {"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest()}


OPERATED_SETTINGS: dict[str, Any] = {
    "api_keys": [hashed("shop-2025", KEY), hashed("shop-2026", NEW_KEY)],
    "admin": {"port": 0, "keys": [hashed("operator", ADMIN_KEY)]},
    "queue": {"threads": 1, "waiting": 2, "request_seconds": 30.0},
    "connections": {"most": 40, "head_seconds": 1.0, "head_bytes": 4096, "body_seconds": 1.0},
    "reloading": {"every_seconds": 0.2, "again_seconds": 0.5},
    "shadow": {"version": "newest", "share": 1.0, "top": 1},
}


@dataclass(frozen=True)
class Operated:
    """The running gateway, a client of its administration's port, and the directory that it serves from."""

    gateway: GatewayProcess
    admin: httpx.Client
    folder: Path

    def serving(self) -> int:
        version: int = self.gateway.http.get("/readyz").json()["model"]["version"]
        return version

    def wait_until_serving(self, version: int) -> None:
        self.wait_until(lambda: self.serving() == version, f"version {version}")

    def wait_until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not true():
            assert time.monotonic() < deadline, f"never {what}: {self.gateway.log[-5:]}"
            time.sleep(0.05)

    def publish(self, version: int, path: Path) -> None:
        """Lets a version's directory appear whole, as the trainer does."""
        hidden = self.folder / f".{version}.partial"
        shutil.copytree(path, hidden)
        hidden.rename(self.folder / str(version))

    def withdraw(self, version: int) -> None:
        shutil.rmtree(self.folder / str(version))
