"""The Grafana dashboard asks for what a gateway tells: each metric and label of its queries; no metric is left out.

Neither Grafana nor Prometheus runs here: the queries are taken apart, not evaluated.
"""

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.api.app import RANKING_HANDLERS
from serving.exports.store import PIN
from serving.observability.request_record import STAGES
from serving.problems import PROBLEM_TYPES
from tests.serving.operated import KEY, Operated
from tests.serving.processes import ROOT

DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
OF_PROMETHEUS = {"job", "instance"}  # it puts them on whatever it reads
SELECTOR = re.compile(r"\b((?:privrank|process)_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


def _queries() -> Iterator[tuple[str, str, str]]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["name"], annotation["expr"], ""


QUERIES = list(_queries())  # title, query, legend


@pytest.fixture(scope="module")
def told(operated: Operated) -> dict[str, list[dict[str, str]]]:
    """The labels of every sample of /metrics by name, after traffic of every kind, the shadow's and a refusal's too."""
    gateway = operated.gateway
    sofas = {"query": "blue sofa", "items": ["blue sofa", "oak table"]}
    (operated.folder / PIN).write_text(str(operated.serving()))
    shutil.copytree(operated.folder / str(operated.serving()), operated.folder / "76")
    gateway.wait_for_log("shadow", version=76)
    for path, body in (("/v1/rank", sofas), ("/rank", b"{"), ("/v1/rank/batch", {"queries": [sofas, {}]})):
        gateway.post(body, path)
    gateway.post({"query": "sofa", "documents": ["sofa"]}, "/v1/rerank")
    broken = operated.folder / "77" / "assets.extra"
    broken.mkdir(parents=True)
    (broken / "manifest.json").write_text("{}")
    operated.wait_until(lambda: gateway.metric('privrank_model_refused{version="77"}') == 1, "refused")
    compared = 'privrank_shadow_requests_total{outcome="compared",version="76"}'
    operated.wait_until(lambda: gateway.metric(compared) >= 1, "compared")
    text = gateway.http.get("/metrics").text
    operated.withdraw(77)
    operated.withdraw(76)
    (operated.folder / PIN).unlink()
    samples: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(dict(sample.labels))
    return samples


@pytest.mark.parametrize(("title", "query", "legend"), QUERIES, ids=lambda value: value[:40])
def test_each_query_uses_existing_metrics_and_labels(
    told: dict[str, list[dict[str, str]]], title: str, query: str, legend: str
) -> None:
    assert query.count("(") == query.count(")")
    selectors = SELECTOR.findall(query)
    assert selectors
    by = {label for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")}
    shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
    for name, matchers in selectors:
        assert name in told
        labels = {label for sample in told[name] for label in sample} | OF_PROMETHEUS
        asked = {label for label, _, _ in MATCHER.findall(matchers)}
        assert asked | by <= labels, title
        assert "job" in asked, title
        for label, kind, value in MATCHER.findall(matchers):
            if kind == "=~" and label not in OF_PROMETHEUS | {"status"}:
                assert any(re.fullmatch(value, sample[label]) for sample in told[name]), title
        aggregated = re.search(r"\b(sum|max)\b", query) is not None
        assert shown <= (by if aggregated else labels), title
    if "histogram_quantile" in query:
        assert "le" in by


def test_every_metric_of_the_gateway_is_on_the_dashboard(told: dict[str, list[dict[str, str]]]) -> None:
    asked = {re.sub("_(bucket|sum|count)$", "", name) for _, query, _ in QUERIES for name, _ in SELECTOR.findall(query)}
    families = {re.sub("_(bucket|sum|count)$", "", name) for name in told if name.startswith("privrank_")}
    assert families == {name for name in asked if name.startswith("privrank_")}


def test_ranking_requests_are_those_of_the_ranking_endpoints(told: dict[str, list[dict[str, str]]]) -> None:
    [pattern] = {value for _, q, _ in QUERIES for label, _, value in MATCHER.findall(q) if label == "route"}
    routes = {sample["route"] for sample in told["privrank_requests_total"]}
    matched = {route for route in routes | RANKING_HANDLERS.keys() if re.fullmatch(pattern, route)}
    assert matched == RANKING_HANDLERS.keys()
    assert "/metrics" in routes


def test_stages_and_reasons_are_the_gateways_own(told: dict[str, list[dict[str, str]]]) -> None:
    assert {sample["stage"] for sample in told["privrank_stage_seconds_count"]} == set(STAGES)
    assert {sample["problem"] for sample in told["privrank_problems_total"]} <= PROBLEM_TYPES.keys()
    assert KEY not in str(told)


def test_panels_do_not_overlap_and_have_unique_ids() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in PANELS)
