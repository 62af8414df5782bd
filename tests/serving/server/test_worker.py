"""The gateway as a process: its start, its end, its log, and what it imports."""

import ast
import json
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.serving.processes import ROOT, GatewayProcess, environment, run_serving


def test_it_is_alive_but_not_ready_while_the_model_is_loaded(shop_export: Path) -> None:
    with GatewayProcess(shop_export) as gateway:
        assert gateway.http.get("/livez").status_code == 200
        waiting = gateway.http.get("/readyz")
        assert (waiting.status_code, waiting.json()["type"]) == (503, "/problems/not-ready")
        assert gateway.post({"query": "sofa", "items": ["a"]}).status_code == 503
        page = gateway.http.get("/")
        assert (page.status_code, page.headers["refresh"]) == (503, "2")
        gateway.wait_until_ready()
        assert gateway.post({"query": "sofa", "items": ["a"]}).status_code == 200


def test_after_sigterm_it_is_not_ready_and_finishes_requests_in_flight(shop_export: Path) -> None:
    with GatewayProcess(shop_export) as gateway, ThreadPoolExecutor(1) as pool:
        gateway.wait_until_ready()
        slow = pool.submit(gateway.post, {"query": "sofa", "items": ["slow sofa"]})
        time.sleep(0.3)
        gateway.terminate()
        time.sleep(0.3)
        other = httpx.get(f"{gateway.address}/readyz")  # a new connection: it still listens
        assert (other.status_code, other.json()["detail"]) == (503, "The gateway is shutting down")
        assert gateway.post({"query": "sofa", "items": ["a"]}).status_code == 200
        assert slow.result().status_code == 200
        assert gateway.wait() == 0
        assert not any("Traceback" in line for line in gateway.log)


def test_the_log_is_json_lines_without_any_text_of_a_request(shop_export: Path) -> None:
    with GatewayProcess(shop_export) as gateway:
        gateway.wait_until_ready()
        words = ["magenta", "turquoise", "vermilion"]
        gateway.post({"query": words[0], "items": [words[1], {"title": words[2], "id": words[0]}]})
        gateway.post({"query": words[0], "items": [{"title": words[1], words[2]: 1}]})
        gateway.post({"query": words[0], "items": [words[1], "broken " + words[2]]})
        gateway.post({"query": words[0], "items": ["a"]}, f"/{words[1]}?q={words[2]}")
        gateway.terminate()
        assert gateway.wait() == 0
        lines = [json.loads(line) for line in gateway.log]
        requests = [line for line in lines if line["event"] == "request"]
        assert [line["status"] for line in requests] == [200, 422, 500, 404]
        assert requests[0]["pairs"] == 2
        assert not any(word in line for word in words for line in gateway.log)


def test_a_port_in_use_is_reported(shop_export: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run_serving("--export-dir", str(shop_export), "--port", str(taken.getsockname()[1]))
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: cannot listen on 127.0.0.1 port ")
    assert "Traceback" not in ended.stderr


def test_invalid_flags_are_reported() -> None:
    assert run_serving("--export-dir", "x", "--port", "70000").returncode == 2
    assert run_serving().returncode == 2
    helped = run_serving("--help")
    assert helped.returncode == 0
    assert "curl" in helped.stdout


def test_serving_imports_neither_the_trainer_nor_beam() -> None:
    for path in (ROOT / "serving").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] in ("trainer", "beam_jobs", "apache_beam")], path


def test_the_http_side_starts_without_tensorflow() -> None:
    # /livez answers while TensorFlow is being imported, which takes seconds
    program = "import sys, serving.__main__; print('tensorflow' in sys.modules)"
    command = [sys.executable, "-c", program]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment(), check=True, timeout=120
    )
    assert ended.stdout.strip() == "False"
