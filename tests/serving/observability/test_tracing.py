"""Spans that a real gateway exports to a real collector process over HTTP, also when the collector fails."""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving.observability.request_record import RequestRecord
from serving.observability.spans import EndedRequest, spans_of
from serving.observability.trace_context import Span
from tests.serving.collector import ANSWERS, Collector
from tests.serving.processes import GatewayProcess

SOFAS = {"query": "blue sofa", "items": ["blue sofa", "red sofa", "oak table"]}
PARENT = "00f067aa0ba902b7"
WAITING = 20


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


def settings_file(folder: Path, collector: Collector, **tracing: Any) -> Path:
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump({"tracing": {"endpoint": f"{collector.address}/v1/traces", **tracing}}))
    return path


@pytest.fixture(scope="module")
def traced(
    shop_export: Path, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway that tells every 0.1 s, gives its collector 1 s, and lets 20 requests wait."""
    folder = tmp_path_factory.mktemp("settings")
    given = settings_file(folder, collector, every_seconds=0.1, timeout_seconds=1.0, waiting=WAITING)
    with GatewayProcess(shop_export, given) as gateway:
        yield gateway.wait_until_ready()


def ask(gateway: GatewayProcess, body: Any, path: str = "/v1/rank", flags: str = "01") -> str:
    """Asks within a new trace. Returns its id."""
    trace_id = secrets.token_hex(16)
    gateway.post(body, path, headers={"traceparent": f"00-{trace_id}-{PARENT}-{flags}"})
    return trace_id


def test_a_request_is_a_span_below_its_callers_and_its_stages_are_spans_below_it(
    traced: GatewayProcess, collector: Collector
) -> None:
    before = time.time_ns()
    whole, *stages = collector.wait_for(ask(traced, SOFAS))
    assert (whole["name"], whole["kind"], whole["parentSpanId"]) == ("POST /v1/rank", 2, PARENT)
    assert whole["resource"]["service.name"] == "privrank"
    assert whole["attributes"] == {
        "http.request.method": "POST",
        "http.route": "/v1/rank",
        "http.response.status_code": 200,
        "privrank.pairs": 3,
        "privrank.tokens": 8,
        "privrank.truncated": 0,
        "privrank.clipped": 0,
        "privrank.versions": [3],
        "privrank.problems": [],
    }
    assert "status" not in whole
    names = ["receive", "queue", "read", "score", "tokens", "answer"]
    assert [stage["name"] for stage in stages] == names
    assert stages[3]["attributes"] == {"privrank.version": 3, "privrank.groups": 1, "privrank.items": 3}
    assert {stage["parentSpanId"] for stage in stages} == {whole["spanId"]}
    assert len({span["spanId"] for span in (whole, *stages)}) == 1 + len(stages)
    times = [(int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])) for span in (whole, *stages)]
    began, ended = times[0]
    assert before <= began < ended <= time.time_ns()
    for (start, end), (next_start, _) in zip(times[1:], [*times[2:], (ended, ended)], strict=True):
        assert began <= start <= end <= next_start + 1000  # one after another, to a microsecond


def test_no_text_of_a_request_is_in_a_span(traced: GatewayProcess, collector: Collector) -> None:
    trace_id = secrets.token_hex(16)
    traced.http.post(
        "/v1/rank?secret=secret",
        json={"query": "secret sofa", "items": [{"id": "secret", "title": "secret"}], "model_version": 3},
        headers={"traceparent": f"00-{trace_id}-{PARENT}-01", "X-Request-ID": "secret", "User-Agent": "secret"},
    )
    of_unknown_path = secrets.token_hex(16)
    traced.http.get("/secret", headers={"traceparent": f"00-{of_unknown_path}-{PARENT}-01"})
    spans = collector.wait_for(trace_id) + collector.wait_for(of_unknown_path)
    assert "secret" not in str(spans)
    assert spans[-1]["name"] == "GET"
    assert spans[-1]["attributes"]["privrank.problems"] == ["not-found"]


def test_a_batch_exports_a_span_for_every_model_call(traced: GatewayProcess, collector: Collector) -> None:
    one = {"query": "sofa", "items": ["sofa"]}
    spans = collector.wait_for(ask(traced, {"queries": [SOFAS, one, SOFAS, {}]}, "/v1/rank/batch"))
    scored = [span["attributes"] for span in spans if span["name"] == "score"]
    assert [(sizes["privrank.groups"], sizes["privrank.items"]) for sizes in scored] == [(2, 3), (1, 1)]
    assert spans[0]["attributes"]["privrank.problems"] == ["invalid-request"]
    assert spans[0]["attributes"]["privrank.pairs"] == 7


def test_only_a_failure_of_the_gateway_is_an_error(traced: GatewayProcess, collector: Collector) -> None:
    refused, *_ = collector.wait_for(ask(traced, b"{"))
    assert (refused["attributes"]["http.response.status_code"], "status" in refused) == (400, False)
    failed, *_ = collector.wait_for(ask(traced, {"query": "sofa", "items": ["crash"]}))
    assert failed["status"] == {"code": 2}
    assert failed["attributes"]["error.type"] == "model-failed"


def test_the_callers_flag_decides_sampling_and_health_is_never_exported(
    traced: GatewayProcess, collector: Collector
) -> None:
    unrecorded = [ask(traced, SOFAS, flags="00"), ask(traced, SOFAS, flags="02")]
    watching = secrets.token_hex(16)
    traced.http.get("/readyz", headers={"traceparent": f"00-{watching}-{PARENT}-01"})
    without = traced.post(SOFAS).headers["traceparent"].split("-")
    assert without[3] == "00"
    collector.wait_for(ask(traced, SOFAS, flags="03"))
    assert [collector.spans(trace_id) for trace_id in (*unrecorded, watching, without[1])] == [[], [], [], []]


def count(gateway: GatewayProcess, outcome: str) -> int:
    return int(gateway.metric(f'privrank_spans_total{{outcome="{outcome}"}}'))


def wait_until(gateway: GatewayProcess, outcome: str, least: int) -> None:
    for _ in range(400):
        if count(gateway, outcome) >= least:
            return
        time.sleep(0.05)
    raise AssertionError(f"{count(gateway, outcome)} spans {outcome}, expected {least}: {gateway.log[-3:]}")


@pytest.mark.parametrize(
    ("behaviour", "failed"), [("busy", 7), ("elsewhere", 7), ("nonsense", 7), ("hostile", 7), ("partial", 2)]
)
def test_a_failing_collector_is_counted_and_logged_once_until_it_recovers(
    traced: GatewayProcess, collector: Collector, behaviour: str, failed: int
) -> None:
    collector.wait_for(ask(traced, SOFAS))
    before, lines = count(traced, "failed"), len(traced.logged("tracing-failed"))
    collector.behave(behaviour)
    try:
        ask(traced, SOFAS)
        wait_until(traced, "failed", before + failed)
        ask(traced, SOFAS)
        wait_until(traced, "failed", before + 2 * failed)
    finally:
        collector.behave("well")
    assert count(traced, "failed") == before + 2 * failed
    assert len(traced.logged("tracing-failed")) == lines + 1
    exported = count(traced, "exported")
    assert len(collector.wait_for(ask(traced, SOFAS))) == 7
    wait_until(traced, "exported", exported + 7)


def test_an_empty_response_of_the_collector_is_a_success(traced: GatewayProcess, collector: Collector) -> None:
    assert ANSWERS["silent"] == (200, b"")
    collector.behave("silent")
    failed = count(traced, "failed")
    assert len(collector.wait_for(ask(traced, SOFAS))) == 7
    assert count(traced, "failed") == failed
    collector.behave("well")


def test_a_hanging_collector_delays_no_request_and_bounds_the_queued_spans(
    traced: GatewayProcess, collector: Collector
) -> None:
    collector.wait_for(ask(traced, SOFAS))
    dropped, failed = count(traced, "dropped"), count(traced, "failed")
    collector.behave("hanging")
    try:
        ask(traced, SOFAS)
        time.sleep(0.3)  # the tracing thread hangs now, for a second
        began = time.monotonic()
        for _ in range(2 * WAITING + 10):
            ask(traced, SOFAS)
        seconds = time.monotonic() - began
        wait_until(traced, "failed", failed + 7)
        assert count(traced, "dropped") > dropped
    finally:
        collector.behave("well")
    assert seconds < 5.0  # 50 requests; one that waited for the collector would take a second
    assert len(collector.wait_for(ask(traced, SOFAS))) == 7


def test_queued_spans_are_exported_at_exit_and_new_traces_may_be_sampled(
    shop_export: Path, collector: Collector, tmp_path: Path
) -> None:
    given = settings_file(tmp_path, collector, every_seconds=600.0, share_of_new=1.0, service="shop-search")
    with GatewayProcess(shop_export, given) as gateway:
        gateway.wait_until_ready()
        version, trace_id, span_id, flags = gateway.post(SOFAS).headers["traceparent"].split("-")
        assert (version, flags) == ("00", "01")
        assert collector.spans(trace_id) == []
        gateway.terminate()
        assert gateway.wait() == 0
    whole, *_ = collector.wait_for(trace_id)
    assert (whole["spanId"], whole["parentSpanId"]) == (span_id, "")
    assert whole["resource"]["service.name"] == "shop-search"


def test_spans_by_hand() -> None:
    record = RequestRecord(
        "r", Span("ab" * 16, "cd" * 8, "01", "ef" * 8), began=10.0, began_at=1_700_000_000_000_000_000
    )
    record.add_interval("queue", 10.5)
    whole, queue = spans_of(EndedRequest(record, "POST", "/rank", 0, 2.0))
    assert (whole["startTimeUnixNano"], whole["endTimeUnixNano"]) == ("1700000000000000000", "1700000002000000000")
    assert queue["startTimeUnixNano"] == "1700000000500000000"
    assert (queue["parentSpanId"], queue["traceId"], queue["flags"]) == ("cd" * 8, "ab" * 16, 1)
    assert "http.response.status_code" not in str(whole)  # the client left before
