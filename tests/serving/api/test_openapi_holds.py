"""What the OpenAPI document says of requests and answers holds: schemathesis asks a real gateway whatever it allows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.processes import ROOT, GatewayProcess

CONFIG = Path(__file__).with_name("schemathesis.toml")


def run_schemathesis(gateway: GatewayProcess, folder: Path, *options: str) -> None:
    command = [Path(sys.executable).with_name("schemathesis"), "--config-file", CONFIG, "run"]
    options = (*options, "--no-color", "--report-dir", str(folder), f"{gateway.address}/openapi.json")
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "tests.serving.api.schemathesis_hooks", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *options], cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    operations = sum(map(len, gateway.http.get("/openapi.json").json()["paths"].values()))
    assert f"Tested: {operations}" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_requests_that_the_document_allows_or_forbids(rich: GatewayProcess, tmp_path: Path) -> None:
    run_schemathesis(rich, tmp_path, "--max-examples", "50")
