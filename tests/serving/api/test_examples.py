"""The commands and programs of the documents, run as they stand there against a gateway of the demo's features."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from serving.problems import PROBLEM_TYPES
from serving.settings import settings_of
from tests.serving.processes import ROOT, GatewayProcess

SERVING, RUNBOOK, METRICS = (ROOT / "docs" / name for name in ("serving.md", "runbook.md", "metrics.md"))
GUIDES = [ROOT / "docs" / f"{name}.md" for name in ("operate", "settings", "runbook", "capacity", "metrics")]
DEMO_ADDRESS = "http://127.0.0.1:8000"


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway whose model has the name that the documents' examples ask for."""
    from tests.serving import exported_models

    folder = tmp_path_factory.mktemp("demo")
    exported_models.export(folder, exported_models.SHOP, name="product_search")
    with GatewayProcess(folder) as gateway:
        yield gateway.wait_until_ready()


def run(command: list[str], script: str, gateway: GatewayProcess) -> str:
    there = script.replace(DEMO_ADDRESS, gateway.address)
    done = subprocess.run([*command, there], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


CURLS = [block for block in blocks(SERVING, "sh") if "curl" in block]


@pytest.mark.parametrize("script", CURLS, ids=[re.findall(r"8000(/\S*)", script)[0] for script in CURLS])
def test_a_curl_command_is_answered_as_the_reference_says(demo: GatewayProcess, script: str) -> None:
    answer: Any = json.loads(run(["bash", "-c"], script, demo))
    path = re.findall(r"8000(/\S*)", script)[0]
    if path.startswith("/v1"):
        described = demo.http.get("/openapi.json").json()["paths"][path]["post"]["responses"]["200"]
        jsonschema.validate(answer, described["content"]["application/json"]["schema"])
    else:
        assert answer["name"] == "product_search"


def test_documented_responses_match_the_response_schema(demo: GatewayProcess) -> None:
    paths = demo.http.get("/openapi.json").json()["paths"]
    shown = [json.loads(block.replace('["…"]', "[]")) for block in blocks(SERVING, "json")]
    for answer, path in zip(shown, ("/v1/rank", "/v1/rank/batch", "/v1/rerank"), strict=False):
        schema = paths[path]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(answer, schema)


def test_the_python_example_prints_one_line_per_item(demo: GatewayProcess) -> None:
    [program] = blocks(SERVING, "python")
    lines = run([sys.executable, "-c"], program, demo).splitlines()
    assert [line.split()[1] for line in lines] == ["p1", "1"]


def test_every_problem_type_is_in_both_documents() -> None:
    listed = set(re.findall(r"`/problems/([a-z-]+)`", SERVING.read_text()))
    assert listed == PROBLEM_TYPES.keys()
    assert set(re.findall(r"^### ([a-z-]+)$", RUNBOOK.read_text(), re.MULTILINE)) == PROBLEM_TYPES.keys()


def test_the_documented_settings_are_valid(tmp_path: Path) -> None:
    shown = [block for guide in GUIDES for block in blocks(guide, "yaml")]
    assert len(shown) > 5
    for number, block in enumerate(shown):
        (tmp_path / f"{number}.yaml").write_text(block)
        settings_of({"export_dir": "x"}, str(tmp_path / f"{number}.yaml"))


def test_the_documented_metrics_are_those_of_a_gateway(demo: GatewayProcess) -> None:
    demo.post({"query": "sofa", "items": ["sofa", "broken"]})
    demo.post({"query": "sofa", "items": ["sofa"]})
    exposed = re.findall(r"^# TYPE (privrank_\S+)", demo.http.get("/metrics").text, re.MULTILINE)
    other_gateways = r"privrank_(?!remote|cache|shadow)[a-z_]+"
    assert set(re.findall(other_gateways, METRICS.read_text())) == set(exposed)
    for guide in GUIDES:
        assert set(re.findall(other_gateways, guide.read_text())) <= set(exposed)


def test_the_documented_log_events_are_those_of_the_code() -> None:
    sources = [path.read_text() for path in (ROOT / "serving").rglob("*.py")]
    logged = {event for source in sources for event in re.findall(r"\blog\(\s*\"([a-z-]+)\"", source)}
    listed = set(re.findall(r"^\| `([a-z-]+)` \|[^|]*\|[^|]*\|$", METRICS.read_text(), re.MULTILINE))
    assert listed | {"request"} == logged
