"""Chromium without a screen, driven through chromedriver's plain HTTP (W3C WebDriver)."""

import base64
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element's id in WebDriver's JSON
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Browser:
    """One page in one browser, with a profile of its own."""

    def __init__(self, profile: Path, width: int = 1200, height: int = 1000) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [str(DRIVER), f"--port={port}", "--allowed-ips=127.0.0.1"]
        self._driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        self._wait_for_driver()
        flags = [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
        chrome = {"binary": CHROMIUM, "args": flags}
        wanted = {"goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self._post("/session", capabilities={"alwaysMatch": wanted})["sessionId"]
        self._at = f"/session/{session}"

    def _wait_for_driver(self) -> None:
        for _ in range(200):
            try:
                self._http.get("/status")
                return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError("chromedriver did not start")

    def _post(self, path: str, **body: Any) -> Any:
        answer = self._http.post(path, json=body).json()["value"]
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return answer

    def open(self, address: str) -> None:
        self._post(f"{self._at}/url", url=address)

    def run(self, script: str) -> Any:
        """What the script returns."""
        return self._post(f"{self._at}/execute/sync", script=script, args=[])

    def press(self, keys: str) -> None:
        """Types into whatever has the focus."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._post(f"{self._at}/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def chord(self, modifier: str, key: str) -> None:
        down, up = [{"type": "keyDown", "value": k} for k in (modifier, key)], [(key), (modifier)]
        actions = down + [{"type": "keyUp", "value": k} for k in up]
        self._post(f"{self._at}/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def wait_for(self, script: str) -> Any:
        """The script's first truthy answer."""
        for _ in range(200):
            if found := self.run(script):
                return found
            time.sleep(0.05)
        raise AssertionError(f"never true: {script}; the console says {self.console()}")

    def console(self) -> list[str]:
        """Errors and warnings, refusals of the content security policy among them."""
        return [entry["message"] for entry in self._post(f"{self._at}/se/log", type="browser")]

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of the browser's own protocol (Chrome DevTools)."""
        return self._post(f"{self._at}/goog/cdp/execute", cmd=name, params=parameters)

    def be_phone(self) -> None:
        """A phone's screen, 375 wide: narrower than any window."""
        self.command("Emulation.setDeviceMetricsOverride", width=375, height=812, deviceScaleFactor=2, mobile=True)
        self.command("Emulation.setTouchEmulationEnabled", enabled=True)

    def prefer(self, scheme: str) -> None:
        """The colours that the person prefers: light or dark. Nothing moves by itself for them."""
        wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self.command("Emulation.setEmulatedMedia", features=features)

    def screenshot(self) -> bytes:
        return base64.b64decode(self._http.get(f"{self._at}/screenshot").json()["value"])

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.delete(self._at)
        self._http.close()
        self._driver.terminate()
        self._driver.wait(timeout=20)
