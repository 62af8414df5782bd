"""/metrics, read by Prometheus' own parser."""

from math import isnan
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.observability.request_record import STAGES
from tests.serving.operated import Operated
from tests.serving.processes import GatewayProcess

SOFAS = {"query": "blue sofa", "items": ["blue sofa", "red sofa", "oak table"]}
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(gateway: GatewayProcess) -> Samples:
    answer = gateway.http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(answer.text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def key(name: str, /, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return f"privrank_{name}", tuple(sorted(labels.items()))


class Growth:
    """How much a sample has grown since this was made."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway, self._before = gateway, samples(gateway)

    def read(self) -> "Growth":
        self._after = samples(self._gateway)
        return self

    def of(self, name: str, /, **labels: str) -> float:
        return self._after.get(key(name, **labels), 0.0) - self._before.get(key(name, **labels), 0.0)


def test_requests_are_counted_by_route_and_status_and_timed_by_stage(operated: Operated) -> None:
    growth = Growth(operated.gateway)
    for body in (SOFAS, SOFAS, {"query": ""}):
        operated.gateway.post(body)
    growth.read()
    assert growth.of("requests_total", route="/v1/rank", status="200") == 2
    assert growth.of("requests_total", route="/v1/rank", status="422") == 1
    assert growth.of("request_seconds_count", route="/v1/rank") == 3
    counts = {stage: growth.of("stage_seconds_count", stage=stage) for stage in STAGES}
    assert counts == {"receive": 3, "queue": 3, "read": 3, "score": 2, "tokens": 2, "answer": 2}
    assert growth.of("key_requests_total", key="shop-2025") == 3 + 1  # and the asking for /metrics itself


def test_refusals_are_counted_by_reason_those_of_a_batch_too(operated: Operated) -> None:
    growth = Growth(operated.gateway)
    operated.gateway.post(b"{")
    operated.gateway.post({"query": "a", "items": [{"title": "b", "click": 1}]})
    operated.gateway.post({"queries": [SOFAS, {"query": "a", "items": ["broken"]}, {}]}, "/v1/rank/batch")
    operated.gateway.http.get("/nowhere/secret%20words")
    operated.gateway.http.post("/v1/rank", headers={"Authorization": "Bearer wrong"})
    growth.read()
    reasons = (
        "malformed-json",
        "privileged-feature",
        "non-finite-score",
        "invalid-request",
        "not-found",
        "unauthorized",
    )
    assert [growth.of("problems_total", problem=reason) for reason in reasons] == [1] * len(reasons)
    assert growth.of("requests_total", route="other", status="404") == 1
    assert "secret" not in operated.gateway.http.get("/metrics").text


def test_usage_and_the_models_calls_are_counted(operated: Operated) -> None:
    growth = Growth(operated.gateway)
    operated.gateway.post({"queries": [SOFAS, {"query": "sofa", "items": ["sofa " * 7]}, SOFAS]}, "/v1/rank/batch")
    growth.read()
    assert growth.of("pairs_total") == 3 + 1 + 3
    assert growth.of("tokens_total") == 2 * (2 + 6) + (1 + 7)
    assert growth.of("truncated_items_total") == 1
    # two calls: the two groups of three items together, and the one of one item
    assert (growth.of("call_groups_count"), growth.of("call_groups_sum")) == (2, 3)
    assert (growth.of("call_items_count"), growth.of("call_items_sum")) == (2, 3 + 1)
    assert growth.of("call_items_bucket", le="1.0") == 1


def of_version(found: Samples, name: str, version: int, **labels: str) -> float:
    return found.get(key(name, version=str(version), **labels), 0.0)


def test_scores_are_shown_in_the_exports_bins_and_their_drift_from_them(operated: Operated) -> None:
    version = operated.serving()
    # logits 1, 0, -1 plus the version's own: one of each; the export saw scores between 0.25 and 0.75 only
    before = samples(operated.gateway)
    operated.gateway.post(SOFAS)
    after = samples(operated.gateway)
    bounds = ["0.25", "0.5", "0.75", "+Inf"]
    totals = [of_version(after, "scores_bucket", version, le=le) for le in bounds]
    assert totals == sorted(totals)
    assert totals[-1] - of_version(before, "scores_bucket", version, le="+Inf") == 3
    for _ in range(2):
        operated.gateway.post({"query": "blue sofa", "items": ["blue sofa"] * 1000})
    drift = of_version(samples(operated.gateway), "score_drift", version)
    assert not isnan(drift)
    # version 1 gives logit 1, which is score 0.73; far from the even split of the export over the two middle bins
    assert drift > 0.25


def test_the_state_is_exported(operated: Operated) -> None:
    found: Any = samples(operated.gateway)
    version = str(operated.serving())
    assert found[key("model_serving", name="overlap", version=version)] == 1
    assert found[key("queue_waiting")] == found[key("queue_scoring")] == found[key("bodies_arriving")] == 0
    assert found[key("model_switches_total")] >= 1
    assert found["process_resident_memory_bytes", ()] > 0


def test_metrics_need_no_key_where_there_is_none(shop: GatewayProcess) -> None:
    assert samples(shop)[key("model_serving", name="overlap", version="3")] == 1


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"])
def test_probes_are_counted_but_not_logged(shop: GatewayProcess, path: str) -> None:
    growth = Growth(shop)
    shop.http.get(path, headers={"X-Request-ID": "watching"})
    assert growth.read().of("requests_total", route=path, status="200") >= 1
    assert not [line for line in shop.logged("request") if line["request_id"] == "watching"]
