"""Version changes, failures and rollbacks while a gateway serves. One process for all tests, in order."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import exp
from pathlib import Path
from typing import Any

import httpx
import pytest

from features.errors import InputError
from serving.exports.store import PIN
from serving.models.loaded_model import LoadedModel
from serving.models.version_manager import VersionManager
from serving.models.version_polls import select_version
from serving.settings import Settings
from tests.features.specs import DEMO
from tests.serving.api.test_bad_requests import problem_of
from tests.serving.operated import HISTOGRAM, KEY, Operated
from tests.serving.processes import bearer

SOFAS = {"query": "blue sofa", "items": ["blue sofa", "red sofa", "oak table"]}
BIAS = {1: -1.0, 2: -3.0, 3: 0.5}  # a version's logits are 2, 1, 0 plus this


def expected(version: int) -> list[float]:
    return [1 / (1 + exp(-(logit + BIAS[version]))) for logit in (2.0, 1.0, 0.0)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 2 and 3, outside the served directory. Their scores differ."""
    from tests.serving import exported_models

    folder = tmp_path_factory.mktemp("made")
    for version in (2, 3):
        module = exported_models.Overlap(exported_models.SHOP)
        module.bias.assign(BIAS[version])
        exported_models.export(folder, exported_models.SHOP, version, module, score_histogram=HISTOGRAM)
    return folder


@contextmanager
def traffic(operated: Operated, clients: int = 2) -> Iterator[list[httpx.Response]]:
    """Sends requests without a pause while the block runs. The list then has their answers."""
    answers: list[httpx.Response] = []
    ended = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=operated.gateway.address, headers=bearer(KEY), timeout=60) as http:
            while not ended.is_set():
                answers.append(http.post("/v1/rank", json=SOFAS))

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        operated.wait_until(lambda: bool(answers), "an answer")
        yield answers
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def check_unmixed(answers: list[httpx.Response], versions: set[int]) -> None:
    """Checks that every answer is a 200 whose scores, version and header belong to one version."""
    assert answers
    for answer in answers:
        assert answer.status_code == 200, answer.text
        version = answer.json()["model"]["version"]
        assert answer.headers["x-model-version"] == str(version)
        assert [result["score"] for result in answer.json()["results"]] == pytest.approx(expected(version))
    assert {answer.json()["model"]["version"] for answer in answers} == versions


def test_the_requested_version_is_selected_else_the_highest_that_is_not_refused() -> None:
    assert select_version([1, 2, 3], refused=[], requested=None) == 3
    assert select_version([1, 2, 3], refused=[3], requested=None) == 2
    assert select_version([1, 2, 3], refused=[3], requested=1) == 1
    assert select_version([1], refused=[1], requested=None) is None


def test_a_new_version_takes_over_under_load_without_a_failed_or_a_mixed_answer(operated: Operated, made: Path) -> None:
    with traffic(operated) as answers:
        operated.publish(2, made / "2")
        operated.wait_until_serving(2)
        operated.wait_until(lambda: answers[-1].json()["model"]["version"] == 2, "an answer of version 2")
    check_unmixed(answers, {1, 2})
    assert operated.gateway.metric('privrank_model_serving{name="overlap",version="2"}') == 1


def test_the_previous_version_stays_in_memory_and_may_be_pinned(operated: Operated) -> None:
    for version in (1, 2):
        answer = operated.gateway.post({**SOFAS, "model_version": version})
        check_unmixed([answer], {version})
    both = [{**SOFAS, "model_version": 1}, SOFAS, {**SOFAS, "model_version": 9}]
    batch = operated.gateway.post({"queries": both}, "/v1/rank/batch")
    one, two, none = batch.json()["answers"]
    assert (one["model"]["version"], two["model"]["version"]) == (1, 2)
    assert none["problem"]["type"] == "/problems/model-version-not-served"
    assert batch.headers["x-model-version"] == "1, 2"
    names = [operated.gateway.http.get(f"/v2/models/overlap/versions/{v}").status_code for v in (1, 2, 3)]
    assert names == [200, 200, 404]


def flipped(path: Path) -> None:
    [data] = (path / "variables").glob("*.data-*")
    data.write_bytes(b"\0" * data.stat().st_size)


def leaking(path: Path) -> None:
    manifest = path / "assets.extra" / "manifest.json"
    said = json.loads(manifest.read_text())
    said["warm_up"] = [{"query": "sofa", "items": [{"title": "a", "click": True}]}]
    manifest.write_text(json.dumps(said))


def leaking_graph(path: Path) -> None:
    import tensorflow as tf

    from tests.serving import exported_models

    module = exported_models.Overlap(exported_models.SHOP)
    surplus = {"click": tf.TensorSpec([None, None], tf.int64, name="click")}
    exported_models.export(
        path.parent, exported_models.SHOP, int(path.name), module, exported_models.signatures_of(module, surplus)
    )


SPOILED = [
    (flipped, "has SHA-256"),
    (leaking, "feature 'click' is privileged"),
    (leaking_graph, "takes feature 'click', whose role is privileged"),
]


@pytest.mark.parametrize(("spoil", "told"), SPOILED, ids=[spoil.__name__ for spoil, _ in SPOILED])
def test_a_corrupt_or_leaking_version_is_refused_logged_and_counted_while_the_old_serves(
    operated: Operated, made: Path, tmp_path: Path, spoil: Callable[[Path], None], told: str
) -> None:
    number = 10 + [known for known, _ in SPOILED].index(spoil)
    before = operated.gateway.metric("privrank_model_refusals_total")
    shutil.copytree(made / "3", tmp_path / str(number))
    spoil(tmp_path / str(number))
    with traffic(operated) as answers:
        operated.publish(number, tmp_path / str(number))
        line = operated.gateway.wait_for_log("version-refused", version=number)
    check_unmixed(answers, {2})
    assert told in line["reason"]
    assert operated.gateway.metric("privrank_model_refusals_total") > before
    assert operated.gateway.metric(f'privrank_model_refused{{version="{number}"}}') == 1
    assert told in operated.admin.get("/admin/versions").json()["refused"][str(number)]
    operated.withdraw(number)


def test_a_refused_version_is_retried_and_served_once_it_is_complete(operated: Operated, made: Path) -> None:
    # as when a directory is copied file by file, the manifest first
    target = operated.folder / "3"
    (target / "assets.extra").mkdir(parents=True)
    (target / "assets.extra" / "manifest.json").write_bytes((made / "3/assets.extra/manifest.json").read_bytes())
    assert "lacks" in operated.gateway.wait_for_log("version-refused", version=3)["reason"]
    assert operated.serving() == 2
    shutil.copytree(made / "3", target, dirs_exist_ok=True)
    operated.wait_until_serving(3)
    assert "3" not in operated.admin.get("/admin/versions").json()["refused"]


def test_an_admin_rolls_back_at_once_and_follows_again(operated: Operated) -> None:
    with traffic(operated) as answers:
        state = operated.admin.post("/admin/rollback").json()
        assert (state["model"]["version"], state["held"], operated.serving()) == (2, 2, 2)
        operated.wait_until(lambda: answers[-1].json()["model"]["version"] == 2, "an answer of version 2")
        state = operated.admin.post("/admin/follow").json()
        assert (state["model"]["version"], state["held"]) == (3, None)
    check_unmixed(answers, {2, 3})


def test_an_admin_request_serves_a_version_by_number_or_explains_its_refusal(operated: Operated) -> None:
    assert operated.admin.post("/admin/versions/1/serve").json()["model"]["version"] == 1
    assert "no version below 1" in problem_of(operated.admin.post("/admin/rollback"), 409, "version-refused")["detail"]
    refused = operated.admin.post("/admin/versions/99/serve")
    assert "99" in problem_of(refused, 409, "version-refused")["detail"]
    assert operated.admin.get("/admin/versions").json()["held"] == 1
    problem_of(operated.admin.post("/admin/versions/one/serve"), 422, "invalid-request")
    assert operated.serving() == 1
    assert operated.admin.post("/admin/follow").json()["model"]["version"] == 3


def test_a_file_pins_a_version_until_it_is_removed(operated: Operated) -> None:
    (operated.folder / PIN).write_text("1\n")
    operated.wait_until_serving(1)
    (operated.folder / PIN).write_text("one")
    assert "expected the number of a version" in operated.gateway.wait_for_log("poll-failed")["reason"]
    assert operated.serving() == 1
    (operated.folder / PIN).unlink()
    operated.wait_until_serving(3)


def state(operated: Operated) -> dict[str, Any]:
    """Returns what an order may change; the shadow changes at each poll."""
    told = operated.admin.get("/admin/versions").json()
    return {name: told[name] for name in ("model", "held", "resident", "refused")}


def wait_for_polls(operated: Operated) -> None:
    """Waits until two more polls of the directory have succeeded."""
    sample = 'privrank_version_polls_total{result="succeeded"}'
    wanted = operated.gateway.metric(sample) + 2
    operated.wait_until(lambda: operated.gateway.metric(sample) >= wanted, "two polls")


def test_a_refused_order_to_serve_changes_nothing_even_at_the_next_poll(operated: Operated) -> None:
    before = state(operated)
    assert (before["model"]["version"], before["held"]) == (3, None)
    assert 2 not in before["resident"], "a version in memory needs no directory"
    away = operated.folder.with_name("away")
    for order in ("/admin/versions/2/serve", "/admin/rollback", "/admin/follow"):
        operated.folder.rename(away)
        problem_of(operated.admin.post(order), 409, "version-refused")
        away.rename(operated.folder)
        wait_for_polls(operated)
        assert state(operated) == before
    # a version that exists but is corrupt
    [data] = (operated.folder / "2" / "variables").glob("*.data-*")
    whole = data.read_bytes()
    flipped(operated.folder / "2")
    problem_of(operated.admin.post("/admin/versions/2/serve"), 409, "version-refused")
    data.write_bytes(whole)
    wait_for_polls(operated)
    assert state(operated) == before


def test_a_refused_order_to_follow_leaves_the_held_version_held(operated: Operated) -> None:
    assert operated.admin.post("/admin/versions/1/serve").json()["held"] == 1
    held = state(operated)
    (operated.folder / PIN).write_text("one")
    refused = problem_of(operated.admin.post("/admin/follow"), 409, "version-refused")
    assert "expected the number of a version" in refused["detail"]
    assert state(operated) == held
    (operated.folder / PIN).write_text("2")
    wait_for_polls(operated)
    assert state(operated) == held
    (operated.folder / PIN).unlink()
    assert operated.admin.post("/admin/follow").json()["model"]["version"] == 3


def test_a_version_with_breaking_changes_serves_only_when_requested(operated: Operated, tmp_path: Path) -> None:
    from features.spec import spec_from_json
    from tests.serving import exported_models

    exported_models.export(tmp_path, spec_from_json({**DEMO, "hour": {"type": "int", "level": "context"}}), 4)
    operated.publish(4, tmp_path / "4")
    line = operated.gateway.wait_for_log("version-refused", version=4)
    assert "needs feature 'hour', which requests may leave out so far" in line["reason"]
    assert operated.serving() == 3
    assert operated.admin.post("/admin/versions/4/serve").json()["model"]["version"] == 4
    assert operated.gateway.post(SOFAS).status_code == 422
    assert operated.gateway.post({**SOFAS, "hour": 3}).status_code == 200
    # a version that is in memory reads its own features
    assert operated.gateway.post({**SOFAS, "model_version": 3}).status_code == 200
    operated.withdraw(4)
    assert operated.admin.post("/admin/follow").json()["model"]["version"] == 3


def test_admin_requests_need_their_own_key_on_their_own_port(operated: Operated) -> None:
    address = str(operated.admin.base_url)
    for headers, status, slug in (({}, 401, "unauthorized"), (bearer(KEY), 403, "forbidden")):
        problem_of(httpx.post(f"{address}/admin/rollback", headers=headers), status, slug)
        problem_of(httpx.get(f"{address}/admin/versions", headers=headers), status, slug)
    problem_of(operated.gateway.http.get("/admin/versions"), 404, "not-found")
    problem_of(operated.admin.post("/v1/rank", json=SOFAS), 404, "not-found")
    assert operated.admin.get("/admin/versions").json()["resident"]


def started(folder: Path) -> tuple[VersionManager, int | None]:
    """Starts the version manager of a directory. Returns it with the first version, after its thread has loaded it."""
    versions, settled, found = VersionManager(Settings(export_dir=str(folder))), threading.Event(), list[int]()

    def ready(served: LoadedModel) -> None:
        found.append(served.version)
        settled.set()

    versions.start(ready, settled.set)
    assert settled.wait(60)
    versions.stop()
    return versions, found[0] if found else None


def test_an_order_whose_client_disconnected_is_not_executed_and_the_next_one_is(made: Path) -> None:
    versions, ready = VersionManager(Settings(export_dir=str(made))), threading.Event()
    versions.start(lambda served: ready.set(), ready.set)
    assert ready.wait(60)
    busy = threading.Event()
    versions._order(busy.wait)
    left = versions.serve(2)
    assert left.cancel()
    after = versions.follow()
    busy.set()
    after.result(60)
    assert versions.held is None
    assert versions.models is not None
    assert versions.models.current.version == 3
    versions.stop()


def test_at_the_start_the_next_lower_version_replaces_a_refused_one(made: Path, tmp_path: Path) -> None:
    for version in (2, 3):
        shutil.copytree(made / str(version), tmp_path / str(version))
    flipped(tmp_path / "3")
    versions, first = started(tmp_path)
    assert first == 2
    assert "has SHA-256" in versions.refused[3].reason


def test_at_the_start_a_pin_that_cannot_be_served_is_an_error_and_not_another_version(
    made: Path, tmp_path: Path
) -> None:
    shutil.copytree(made / "2", tmp_path / "2")
    (tmp_path / PIN).write_text("7")
    versions, first = started(tmp_path)
    assert first is None
    assert isinstance(versions.failure, InputError)
    assert str(tmp_path / "7") in str(versions.failure)
