"""Dynamic batching: waiting requests share one call, and one request's failure does not affect the others."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.serving.api.test_bad_requests import problem_of
from tests.serving.cable import Cable
from tests.serving.certificates import write_certificate
from tests.serving.model_server import ModelServer
from tests.serving.observability.test_metrics import Growth
from tests.serving.processes import GatewayProcess

SETTINGS = {"queue": {"threads": 8}, "batching": {"calls": 1, "groups": 4}}
ROUNDS = 1200  # of the slow request's multiplications: over a second on a fast machine
CALL_SECONDS = 0.2  # until a request that is scored occupies the call, also on a busy machine
SLOW = {"query": "sofa", "items": ["slow sofa"]}  # seconds in the only call
WORDS = ["blue sofa", "red sofa", "oak table", "blue table"]  # logits for "blue sofa": 1, 0, -1, 0


@pytest.fixture(scope="module")
def batching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    from tests.serving import exported_models

    folder = tmp_path_factory.mktemp("batching")
    slow = exported_models.Overlap(exported_models.RICH, rounds=ROUNDS)
    exported_models.export(folder / "export", exported_models.RICH, module=slow)
    settings = folder / "gateway.yaml"
    settings.write_text(yaml.safe_dump(SETTINGS))
    with GatewayProcess(folder / "export", settings) as gateway:
        yield gateway.wait_until_ready()


def asking_for(count: int, **item: Any) -> dict[str, Any]:
    """A request with that many items."""
    return {"query": "blue sofa", "items": [{"title": word, **item} for word in WORDS[:count]]}


def order(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [result["index"] for result in answer.json()["results"]]


@contextmanager
def together(gateway: GatewayProcess, *bodies: Any, **headers: str) -> Iterator[list["Future[httpx.Response]"]]:
    """Sends all bodies while a slow request occupies the only call."""
    with ThreadPoolExecutor(1 + len(bodies)) as pool:
        slow = pool.submit(gateway.post, SLOW)
        while gateway.metric("privrank_queue_scoring") < 1:
            time.sleep(0.02)
        time.sleep(CALL_SECONDS)  # counted as scoring before its thread has the call
        yield [pool.submit(gateway.post, body, headers=headers) for body in bodies]
        assert slow.result().status_code == 200


def test_waiting_requests_are_scored_in_one_call_and_each_gets_its_own_scores(batching: GatewayProcess) -> None:
    growth = Growth(batching)
    with together(batching, *(asking_for(count, price=50.0 * (count - 3)) for count in (3, 4, 3))) as asked:
        answers = [future.result() for future in asked]
    assert [order(answer) for answer in answers] == [[0, 1, 2], [0, 1, 3, 2], [0, 1, 2]]
    alone = [batching.post(asking_for(count, price=50.0 * (count - 3))) for count in (3, 4, 3)]
    assert [answer.json()["results"] for answer in answers] == [answer.json()["results"] for answer in alone]
    assert growth.read().of("calls_joined_total", version="1") == 3


def test_a_batch_holds_at_most_its_limit_of_groups_all_of_one_bucket(batching: GatewayProcess) -> None:
    growth = Growth(batching)
    with together(batching, *[asking_for(4)] * 5, asking_for(1)) as asked:
        assert [order(future.result())[0] for future in asked] == [0] * 6
    assert growth.read().of("calls_joined_total", version="1") == 4


def test_a_request_that_the_model_fails_on_does_not_affect_its_batch(batching: GatewayProcess) -> None:
    crash, broken = ({"query": "sofa", "items": ["sofa", "table", f"{word} sofa"]} for word in ("crash", "broken"))
    with together(batching, asking_for(3), crash, asking_for(3)) as asked:
        first, failed, last = (future.result() for future in asked)
    problem_of(failed, 500, "model-failed")
    assert order(first) == order(last) == [0, 1, 2]
    with together(batching, asking_for(3), broken, asking_for(3)) as asked:
        first, failed, last = (future.result() for future in asked)
    problem_of(failed, 500, "non-finite-score")
    assert order(first) == order(last) == [0, 1, 2]


def test_a_request_that_expires_before_the_model_is_free_is_never_scored(batching: GatewayProcess) -> None:
    growth = Growth(batching)
    with together(batching, asking_for(3), asking_for(3), **{"X-Request-Timeout-Ms": "100"}) as asked:
        for future in asked:
            problem_of(future.result(), 504, "deadline-exceeded")
    assert order(batching.post(asking_for(3))) == [0, 1, 2]
    growth.read()
    assert growth.of("answers_total", version="1") == 2
    assert growth.of("calls_joined_total", version="1") == 0


@pytest.fixture
def remote(shop_export: Path, tmp_path: Path) -> Iterator[tuple[GatewayProcess, ModelServer, Cable]]:
    """A gateway that batches calls of a model server, the server, and the cable between them."""
    certificate = write_certificate(tmp_path / "server.pem")
    with ModelServer(certificate, shop_export) as server, Cable(server.port) as cable:
        remote = {"address": f"127.0.0.1:{cable.port}", "retries": 0, "failures": 100}
        settings = tmp_path / "gateway.yaml"
        settings.write_text(yaml.safe_dump({**SETTINGS, "backend": "tf-serving", "tf_serving": remote}))
        with GatewayProcess(shop_export, settings) as gateway:
            yield gateway.wait_until_ready(), server, cable


def test_all_requests_of_a_batch_get_its_error(remote: tuple[GatewayProcess, ModelServer, Cable]) -> None:
    gateway, server, cable = remote
    cable.seconds = 1.0  # how long the first request occupies the only call
    with ThreadPoolExecutor(5) as pool:
        asked = [pool.submit(gateway.post, asking_for(3)) for _ in range(5)]
        while gateway.metric("privrank_queue_scoring") < 5:
            time.sleep(0.01)
        server.lie("a full queue")
        answers = [future.result() for future in asked]
    for answer in answers[1:]:
        problem_of(answer, 503, "remote-unavailable")
    assert len({answer.json()["detail"] for answer in answers[1:]}) == 1
