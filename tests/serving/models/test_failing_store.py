"""A failing store: at each call of a poll, for some time, and so that the version thread dies."""

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from tests.serving.api.test_bad_requests import problem_of
from tests.serving.models.failing_store import VARIABLE
from tests.serving.operated import ADMIN_KEY, Operated, hashed
from tests.serving.processes import GatewayProcess

SETTINGS = {
    "admin": {"port": 0, "keys": [hashed("operator", ADMIN_KEY)]},
    "limits": {"items": 2},  # a short warm-up
    "reloading": {"every_seconds": 0.2, "again_seconds": 60.0, "resident": 1},
}
VECTORS = {"items": [{"vector": [1.0, 2.0]}, {"vector": [0.0, 1.0]}]}


@dataclass(frozen=True)
class Failing:
    """A gateway, the file that controls how its store fails, and a version to publish under further numbers."""

    operated: Operated
    orders: Path
    version: Path

    def order(self, order: str) -> None:
        new = self.orders.with_suffix(".new")
        new.write_text(order)
        new.rename(self.orders)

    def polls(self, result: str) -> float:
        return self.operated.gateway.metric(f'privrank_version_polls_total{{result="{result}"}}')

    def wait_for_polls(self, result: str, further: int) -> None:
        wanted = self.polls(result) + further
        self.operated.wait_until(lambda: self.polls(result) >= wanted, f"{further} polls that {result}")

    def readyz(self) -> httpx.Response:
        return self.operated.gateway.http.get("/readyz")

    def check_scores(self) -> None:
        answer = self.operated.gateway.post(VECTORS)
        assert answer.status_code == 200, answer.text
        assert [result["index"] for result in answer.json()["results"]] == [0, 1]


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Failing]:
    from tests.serving import exported_models

    folder, other = tmp_path_factory.mktemp("export"), tmp_path_factory.mktemp("other")
    version = exported_models.export(folder, exported_models.NUMBERS_ONLY)
    shutil.copytree(version, other / "1")
    settings, orders = other / "gateway.yaml", other / "order"
    settings.write_text(yaml.safe_dump(SETTINGS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(orders))
        orders.write_text("1")  # the first poll fails too
        with GatewayProcess(folder, settings, module="tests.serving.models.failing_store") as gateway:
            admin = gateway.admin(ADMIN_KEY)
            yield Failing(Operated(gateway.wait_until_ready(), admin, folder), orders, other / "1")
            admin.close()


def test_at_the_start_a_failing_store_is_retried(failing: Failing) -> None:
    assert "503 at call 1, exists" in failing.operated.gateway.logged("poll-failed")[0]["reason"]
    failing.check_scores()


def test_after_an_error_at_any_call_of_a_poll_the_next_poll_switches(failing: Failing) -> None:
    operated, failed_calls = failing.operated, list[str]()
    for at in itertools.count(1):
        failures = len(operated.gateway.logged("poll-failed"))
        failing.order(str(at))
        operated.publish(at + 1, failing.version)
        operated.wait_until_serving(at + 1)
        failing.check_scores()
        operated.withdraw(at)
        if failing.orders.exists():  # the poll that switched made fewer calls
            break
        operated.wait_until(lambda n=failures: len(operated.gateway.logged("poll-failed")) > n, "a log line")
        [line] = operated.gateway.logged("poll-failed")[failures:]
        assert f"503 at call {at}, " in line["reason"]
        failed_calls.append(line["reason"].rsplit(" ", 1)[1])
    failing.orders.unlink()
    assert set(failed_calls) == {"exists", "listdir", "read", "walk", "stat"}
    # the pin, the list, both versions' manifests; one manifest read, its directory walked, 5 files' sizes; 4 files
    # read, each until its end
    assert len(failed_calls) == 4 + 2 + 5 + 2 * 4
    assert operated.gateway.logged("version-refused") == []
    assert failing.polls("failed") == len(failed_calls) + 1


def test_readyz_warns_while_polls_fail_and_the_model_keeps_serving(failing: Failing) -> None:
    assert "warning" not in failing.readyz().json()
    failing.order("all")
    failing.operated.wait_until(lambda: "warning" in failing.readyz().json(), "a warning")
    ready = failing.readyz()
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert "new versions were last looked for" in ready.json()["warning"]
    assert str(failing.operated.folder) not in ready.text
    assert failing.operated.gateway.metric("privrank_version_poll_age_seconds") > 0.6
    failing.check_scores()
    failing.orders.unlink()
    failing.operated.wait_until(lambda: "warning" not in failing.readyz().json(), "no warning")


def test_an_order_that_fails_in_the_store_changes_nothing(failing: Failing) -> None:
    admin = failing.operated.admin
    serving = failing.operated.serving()
    failing.operated.publish(serving - 1, failing.version)
    failing.order("all")
    failing.wait_for_polls("failed", 1)
    before = admin.get("/admin/versions").json()
    for order in ("/admin/rollback", f"/admin/versions/{serving - 1}/serve", "/admin/follow"):
        problem = problem_of(admin.post(order), 409, "version-refused")
        assert "UnavailableError: 503" in problem["detail"]
        assert admin.get("/admin/versions").json() == before
    failing.orders.unlink()
    failing.wait_for_polls("succeeded", 2)
    assert admin.get("/admin/versions").json() == before
    assert failing.operated.serving() == serving


def test_without_its_version_thread_the_gateway_is_not_ready_but_answers(failing: Failing) -> None:
    failing.order("exit")
    failing.operated.wait_until(lambda: failing.readyz().status_code == 503, "unready")
    assert "The thread that changes versions has ended" in failing.readyz().json()["detail"]
    failing.check_scores()
    assert failing.operated.gateway.http.get("/v2/health/ready").status_code == 503
