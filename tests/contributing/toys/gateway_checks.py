"""The tests of the toys of `serving`: a gateway that has the toy backend, the toy endpoints and the toy metric."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.processes import GatewayProcess

BODY = {"query": "sofa", "items": ["oak", "a long title", "velvet"]}


@pytest.fixture(scope="module")
def gateway(shop_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    settings = tmp_path_factory.mktemp("settings") / "gateway.yaml"
    settings.write_text("backend: toy\n")
    with GatewayProcess(shop_export, settings) as process:
        yield process.wait_until_ready()


def test_the_setting_selects_the_backend(gateway: GatewayProcess) -> None:
    results = gateway.post(BODY).json()["results"]
    assert [result["index"] for result in results] == [1, 2, 0]  # by the length of their titles


def test_the_endpoint_that_ranks_answers_and_is_described(gateway: GatewayProcess) -> None:
    assert gateway.post(BODY, "/v1/toy").json() == {"best": "1"}
    assert gateway.post({"query": "sofa"}, "/v1/toy").json()["type"] == "/problems/invalid-request"
    described = gateway.http.get("/openapi.json").json()["paths"]["/v1/toy"]["post"]
    assert described["summary"] == "Name the best item"
    page = gateway.http.get("/docs").text.split("<code>POST /v1/toy</code>")[1].split("<h2")[0]
    assert "<td><code>best</code></td><td>string</td>" in page
    assert "queries" not in page
    assert "usage" not in page


def test_the_other_endpoints_answer(gateway: GatewayProcess) -> None:
    assert gateway.http.get("/toyz").json() == {"toy": True}


def test_the_metric_is_exposed(gateway: GatewayProcess) -> None:
    assert "# TYPE privrank_toys_total counter" in gateway.http.get("/metrics").text
