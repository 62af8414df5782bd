"""Response headers: request id, timings, model version, trace context; and the time limit header."""

import re

import pytest

from serving.observability.request_record import STAGES
from tests.serving.api.test_bad_requests import problem_of
from tests.serving.processes import GatewayProcess

SOFAS = {"query": "blue sofa", "items": ["oak table", "blue velvet sofa"]}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def timing_of(header: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"(\w+);dur=([\d.]+)", header)}


@pytest.mark.parametrize("path", ["/rank", "/v1/rank", "/v1/rank/batch", "/v1/rerank"])
def test_every_stage_is_timed_and_together_they_are_not_more_than_the_total(shop: GatewayProcess, path: str) -> None:
    bodies = {"/v1/rank/batch": {"queries": [SOFAS]}, "/v1/rerank": {"query": "sofa", "documents": ["a"]}}
    answer = shop.post(bodies.get(path, SOFAS), path)
    timing = timing_of(answer.headers["server-timing"])
    assert list(timing) == [*STAGES, "total"]
    assert 0 < sum(timing.values()) - timing["total"] <= timing["total"]
    assert answer.headers["x-model-version"] == "3"


def test_a_refusal_has_the_timings_of_the_stages_it_passed(shop: GatewayProcess) -> None:
    answer = shop.post({"query": "sofa"})
    assert list(timing_of(answer.headers["server-timing"])) == ["receive", "queue", "read", "total"]
    assert "x-model-version" not in answer.headers
    assert shop.post({"query": "sofa", "items": ["broken"]}).headers["x-model-version"] == "3"


def test_a_trace_continues_with_a_new_span_and_is_logged(shop: GatewayProcess) -> None:
    sent = f"00-{TRACE}-00f067aa0ba902b7-01"
    answer = shop.post(SOFAS, headers={"traceparent": sent, "X-Request-ID": "traced"})
    found = answer.headers["traceparent"]
    assert re.fullmatch(rf"00-{TRACE}-[0-9a-f]{{16}}-01", found)
    assert found != sent
    line = shop.wait_for_log("request", request_id="traced")
    assert line["trace_id"] == TRACE
    assert line["versions"] == [3]
    assert shop.http.get("/livez").headers["traceparent"] != found


def test_a_deadline_that_cannot_be_kept_is_504_at_the_deadline(shop: GatewayProcess) -> None:
    late = shop.post({"query": "sofa", "items": ["slow sofa"]}, headers={"X-Request-Timeout-Ms": "100"})
    problem_of(late, 504, "deadline-exceeded")
    assert 0.09 < late.elapsed.total_seconds() < 1.0
    assert shop.post(SOFAS, headers={"X-Request-Timeout-Ms": "30000"}).status_code == 200


def test_a_deadline_is_a_number_of_milliseconds(shop: GatewayProcess) -> None:
    problem = problem_of(shop.post(SOFAS, headers={"X-Request-Timeout-Ms": "soon"}), 422, "invalid-request")
    assert "X-Request-Timeout-Ms is 'soon', expected a whole number of milliseconds" in problem["detail"]
