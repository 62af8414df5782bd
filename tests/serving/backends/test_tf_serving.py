"""The backend `tf-serving`: a gateway process, a cable that can fail, and a model server process behind it."""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from features.errors import InputError
from serving.api import handlers as answers
from serving.api.gateway import Gateway
from serving.models.loaded_model import Models, load
from serving.observability.request_record import RequestRecord
from serving.observability.trace_context import span_of
from serving.settings import Settings, TensorFlowServing
from tests.serving.api.test_bad_requests import problem_of
from tests.serving.cable import Cable
from tests.serving.certificates import write_certificate
from tests.serving.model_server import ANSWERS, BYTES, COUNTS, SCORES, TOKENS, ModelServer
from tests.serving.observability.alerts import Timeline
from tests.serving.processes import ROOT, START_SECONDS, GatewayProcess, run_serving

SOFAS = {"query": "blue sofa", "items": ["blue sofa", "red sofa", "oak table"]}
RIGHT = ("a list of values", "columns more")
HASTY = {"X-Request-Timeout-Ms": "300"}


@dataclass(frozen=True)
class Remote:
    """The gateway, its model server, and the cable between them. Two threads score requests."""

    gateway: GatewayProcess
    server: ModelServer
    cable: Cable
    folder: Path  # that the gateway serves from

    def ask(self, body: Any = SOFAS, **headers: str) -> Any:
        return self.gateway.post(body, headers=headers)

    def wait_until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not true():
            assert time.monotonic() < deadline, f"never {what}: {self.gateway.log[-5:]}"
            time.sleep(0.02)

    def circuit(self, state: str) -> bool:
        return self.gateway.metric(f'privrank_remote_circuit{{state="{state}"}}') == 1

    def unavailable(self) -> float:
        """Calls so far that did not reach the server."""
        return self.gateway.metric('privrank_remote_seconds_count{method="Predict",status="UNAVAILABLE"}')

    def retries(self) -> float:
        return self.gateway.metric("privrank_remote_retries_total")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_certificate(tmp_path_factory.mktemp("tls") / "server.pem")


@pytest.fixture(scope="module")
def server(certificate: Path, shop_export: Path, rich_export: Path) -> Iterator[ModelServer]:
    """A model server with version 3 (the demo's features) and version 1 (every type of feature)."""
    with ModelServer(certificate, shop_export, rich_export) as server:
        yield server


@pytest.fixture(scope="module")
def running(server: ModelServer, shop_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    folder = tmp_path_factory.mktemp("remote")
    shutil.copytree(shop_export / "3", folder / "export" / "3")
    with Cable(server.port) as cable:
        settings = {
            "backend": "tf-serving",
            "tf_serving": {
                "address": f"127.0.0.1:{cable.port}",
                "seconds": 2.0,
                "failures": 3,
                "open_seconds": 0.5,
                "message_bytes": 1 << 20,
            },
            "limits": {"items": 64},
            "queue": {"threads": 2},
            "reloading": {"every_seconds": 0.1, "again_seconds": 0.5},
        }
        (folder / "gateway.yaml").write_text(yaml.safe_dump(settings))
        with GatewayProcess(folder / "export", folder / "gateway.yaml") as gateway:
            yield Remote(gateway.wait_until_ready(), server, cable, folder / "export")


@pytest.fixture
def remote(running: Remote) -> Iterator[Remote]:
    """Restores the server and the cable before and after each test."""
    yield running
    running.cable.mend()
    running.server.lie("")
    running.wait_until(lambda: running.ask().status_code == 200, "answered again")
    assert running.circuit("closed")
    assert all(line.startswith("{") for line in running.gateway.log), "the log is JSON lines"


# --- the same answers


def at(address: str, **more: Any) -> dict[str, Any]:
    return {"backend": "tf-serving", "tf_serving": TensorFlowServing(address=address, **more)}


def answered(folder: Path, version: int, body: dict[str, Any], **settings: Any) -> Any:
    served = load(Settings(export_dir=str(folder), **settings), version)
    found = json.loads(
        answers.answer(
            answers.batch, json.dumps(body).encode(), Models(served, {version: served}), RequestRecord("r", span_of(""))
        )
    )
    return [found["answers"], found["usage"]]


def test_it_answers_like_the_embedded_backend_for_every_type_of_feature(server: ModelServer, rich_export: Path) -> None:
    item = {"price": 45.5, "brand": "acme", "in_stock": False, "colour": [0.5, 0.25, 2.0]}
    queries = [
        {"query": "blue sofa", "hour": 30, "items": [{"title": "blue é sofa"} | item, {"title": "oak"}, "velvet " * 9]},
        {"query": "sofa", "items": ["sofa", "red sofa"], "debug": True},
        {"query": "sofa", "items": [{"title": "sofa", "price": 1e30}] * 3},
        {"query": "broken", "items": ["broken table"]},
    ]
    body = {"queries": queries}
    expected = answered(rich_export, 1, body)
    assert json.dumps(expected).count("score") > 8
    assert approximately(expected) == answered(rich_export, 1, body, **at(f"127.0.0.1:{server.port}"))


def approximately(value: Any) -> Any:
    """Compares equal if only floats differ, by at most 1e-5."""
    if isinstance(value, float):
        return pytest.approx(value, abs=1e-5)
    if isinstance(value, dict):
        return {key: approximately(member) for key, member in value.items()}
    return [approximately(member) for member in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("how", RIGHT)
def test_a_list_of_values_and_the_padding_of_a_batching_server_are_read(remote: Remote, how: str) -> None:
    expected = remote.ask().json()["results"]
    remote.server.lie(how)
    assert remote.ask().json()["results"] == expected


def test_nan_is_a_problem_and_a_graph_error_affects_only_its_own_query(remote: Remote) -> None:
    problem_of(remote.ask({"query": "sofa", "items": ["sofa", "broken"]}), 500, "non-finite-score")
    queries = [{"query": "sofa", "items": [title]} for title in ("sofa", "crash magenta", "oak")]
    first, second, third = remote.gateway.post({"queries": queries}, "/v1/rank/batch").json()["answers"]
    assert second["problem"]["type"] == "/problems/model-failed"
    assert "INVALID_ARGUMENT" in second["problem"]["detail"]
    assert "results" in first
    assert "results" in third
    assert not any("magenta" in line for line in remote.gateway.log)


def test_all_requests_share_one_connection(remote: Remote) -> None:
    connections, calls = remote.cable.connections, remote.server.calls
    with ThreadPoolExecutor(4) as pool:
        assert {answer.status_code for answer in pool.map(lambda _: remote.ask(), range(20))} == {200}
    assert remote.server.calls == calls + 2 * 20  # the scores and the tokens
    assert remote.cable.connections == connections


# --- wrong answers

WRONG = [fault for fault in (*SCORES, *COUNTS, *TOKENS, *ANSWERS, *BYTES, "an internal error") if fault not in RIGHT]


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_answer_is_a_problem_that_quotes_nothing_of_it(remote: Remote, fault: str) -> None:
    remote.server.lie(fault)
    answer = remote.ask({**SOFAS, "debug": fault in TOKENS})  # only `debug` requests tokens
    problem_of(answer, 502, "remote-failed")
    assert "results" not in answer.json()
    assert remote.circuit("closed")  # the server did answer


def test_garbled_bytes_are_a_problem(remote: Remote) -> None:
    remote.cable.garbles = True
    answer = remote.ask()
    assert (answer.status_code, answer.json()["type"]) in [
        (502, "/problems/remote-failed"),
        (503, "/problems/remote-unavailable"),
    ]


def test_a_version_that_the_server_dropped_is_503_and_makes_the_gateway_unready(remote: Remote) -> None:
    remote.server.lie("no such version")
    answer = remote.ask()
    assert "does not hold version 3" in problem_of(answer, 503, "remote-unavailable")["detail"]
    assert answer.headers["retry-after"] == "1"
    problem_of(remote.gateway.http.get("/readyz"), 503, "remote-unavailable")


# --- a server that is slow, cut off, or down


def test_a_request_gets_504_at_its_deadline_and_its_thread_is_free_afterwards(remote: Remote) -> None:
    remote.cable.hangs = True
    for _ in range(4):  # more than open the circuit; but their own timeouts are too short to count
        answer = remote.ask(**HASTY)
        problem_of(answer, 504, "deadline-exceeded")
        assert 0.25 < answer.elapsed.total_seconds() < 1.5
    assert remote.circuit("closed")
    began = time.monotonic()
    remote.wait_until(lambda: remote.gateway.metric("privrank_queue_scoring") == 0, "free")
    assert time.monotonic() - began < 1.0


def test_a_slow_server_delays_requests_at_most_to_the_deadlines_of_those_before_them(remote: Remote) -> None:
    remote.cable.seconds = 0.6
    with ThreadPoolExecutor(3) as pool:
        hasty = [pool.submit(remote.ask, SOFAS, **HASTY) for _ in range(2)]  # in both threads
        time.sleep(0.1)
        patient = pool.submit(remote.ask)
        assert [future.result().status_code for future in hasty] == [504, 504]
        assert patient.result().status_code == 200


def test_a_server_that_hangs_opens_the_circuit(remote: Remote) -> None:
    remote.cable.hangs = True
    with ThreadPoolExecutor(3) as pool:
        hung = list(pool.map(lambda _: remote.ask(), range(3)))
    for answer in hung:
        problem_of(answer, 504, "deadline-exceeded")
    problem_of(remote.ask(), 503, "remote-unavailable")


def test_a_call_whose_connection_breaks_is_retried_once_and_answered(remote: Remote) -> None:
    retries = remote.retries()
    remote.cable.cuts = 1
    assert remote.ask().status_code == 200
    assert remote.cable.cuts == 0
    assert remote.retries() == retries + 1


def test_a_full_queue_of_the_server_is_503_after_one_retry(remote: Remote) -> None:
    remote.server.lie("a full queue")
    calls = remote.server.calls
    problem_of(remote.ask(), 503, "remote-unavailable")
    assert remote.server.calls == calls + 2


def test_without_a_server_503_comes_at_once_and_an_open_circuit_makes_no_calls(remote: Remote) -> None:
    remote.cable.pull_out()
    for _ in range(3):
        answer = remote.ask()
        problem_of(answer, 503, "remote-unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.elapsed.total_seconds() < 1.5
    # the circuit is open for half a second, then one trial call fails: most requests make no call
    asked = remote.unavailable()
    refused = [remote.ask() for _ in range(20)]
    assert {answer.status_code for answer in refused} == {503}
    assert remote.unavailable() - asked <= 2 * (1 + sum(answer.elapsed.total_seconds() for answer in refused) / 0.5)
    problem_of(remote.gateway.http.get("/readyz"), 503, "remote-unavailable")
    assert remote.gateway.http.get("/livez").status_code == 200


def test_the_circuit_closes_again_with_the_first_answer(remote: Remote) -> None:
    remote.cable.pull_out()
    for _ in range(3):
        remote.ask()
    assert not remote.circuit("closed")
    remote.cable.mend()
    # it becomes ready again without a request: a load balancer would send none
    remote.wait_until(lambda: remote.gateway.http.get("/readyz").status_code == 200, "ready")
    assert not remote.circuit("closed")
    remote.wait_until(lambda: remote.ask().status_code == 200, "answered")
    assert remote.circuit("closed")


# --- versions


def test_a_version_that_the_server_does_not_hold_is_refused_and_the_current_one_keeps_serving(remote: Remote) -> None:
    shutil.copytree(remote.folder / "3", remote.folder / "4")
    try:
        refused = remote.gateway.wait_for_log("version-refused", version=4)
        assert "does not hold version 4 of overlap" in refused["reason"]
        assert remote.ask().json()["model"] == {"name": "overlap", "version": 3}
    finally:
        shutil.rmtree(remote.folder / "4")


@pytest.mark.parametrize(
    ("fault", "reason"), [("an input more", "takes feature 'click'"), ("no signatures", "hold no signatures")]
)
def test_a_version_of_other_signatures_is_refused(
    server: ModelServer, shop_export: Path, fault: str, reason: str
) -> None:
    server.lie(fault)
    try:
        with pytest.raises(InputError, match=reason):
            load(Settings(export_dir=str(shop_export), **at(f"127.0.0.1:{server.port}")), 3)
    finally:
        server.lie("")


def test_a_gateway_that_finds_no_server_at_its_start_ends_with_a_message(shop_export: Path, tmp_path: Path) -> None:
    with Cable(1) as cable:  # its port is open, but nothing answers
        cable.pull_out()
        settings = {"backend": "tf-serving", "tf_serving": {"address": f"127.0.0.1:{cable.port}"}}
        (tmp_path / "gateway.yaml").write_text(yaml.safe_dump(settings))
        ended = run_serving(
            "--export-dir", str(shop_export), "--port", "0", "--settings", str(tmp_path / "gateway.yaml")
        )
    assert ended.returncode == 2
    assert f"on TensorFlow Serving at 127.0.0.1:{cable.port} cannot be asked" in ended.stderr
    assert "Traceback" not in ended.stderr


# --- settings


def test_a_ca_file_enables_tls_and_only_servers_of_its_authority_are_accepted(
    server: ModelServer, shop_export: Path, certificate: Path, tmp_path: Path
) -> None:
    address = f"localhost:{server.tls_port}"
    found, _ = answered(shop_export, 3, {"queries": [SOFAS]}, **at(address, ca_file=str(certificate)))
    assert len(found[0]["results"]) == 3
    for wrong in (at(address), at(address, ca_file=str(write_certificate(tmp_path / "stranger.pem")))):
        with pytest.raises(InputError, match="cannot be reached"):
            load(Settings(export_dir=str(shop_export), **wrong), 3)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({}, "tf_serving.address is empty, expected host:port"),
        (
            {"address": "localhost:1", "ca_file": "nowhere.pem"},
            "cannot read tf_serving.ca_file nowhere.pem: No such file",
        ),
    ],
)
def test_invalid_settings_are_refused_with_a_message(tmp_path: Path, section: dict[str, str], told: str) -> None:
    settings = Settings(export_dir=str(tmp_path), backend="tf-serving", tf_serving=TensorFlowServing(**section))
    with pytest.raises(InputError, match=told):
        Gateway(settings)


def test_an_unreachable_model_server_fires_its_alert(remote: Remote) -> None:
    def scrape() -> str:
        return remote.gateway.http.get("/metrics").text

    timeline = Timeline().hold(scrape(), 20)
    assert not timeline.fires("PrivRankModelServerFails")
    remote.cable.pull_out()
    for _ in range(4):
        problem_of(remote.ask(), 503, "remote-unavailable")
        timeline.hold(scrape(), 3)
    assert [alert["problem"] for alert in timeline.fires("PrivRankModelServerFails")] == ["remote-unavailable"]


def test_the_metrics_are_those_that_the_reference_lists(remote: Remote) -> None:
    told = set(re.findall(r"^# TYPE (privrank_remote_\S+)", remote.gateway.http.get("/metrics").text, re.MULTILINE))
    assert told == set(re.findall(r"privrank_remote_[a-z_]+", (ROOT / "docs/metrics.md").read_text()))
