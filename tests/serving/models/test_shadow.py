"""A version in the shadow: what it says of the one that serves, and that no client notices it, whatever it does.

Version 2 turns version 1's order round, gives NaN for `velvet`, fails at `oak`, and takes a second or two for `navy`.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import yaml

from serving.exports.store import PIN
from tests.serving.observability.test_metrics import Growth
from tests.serving.operated import ADMIN_KEY, KEY, Operated, hashed
from tests.serving.processes import GatewayProcess, bearer

SETTINGS = {
    "api_keys": [hashed("shop", KEY)],
    "admin": {"port": 0, "keys": [hashed("operator", ADMIN_KEY)]},
    "queue": {"threads": 1},
    "reloading": {"every_seconds": 0.2},
    "shadow": {"version": "newest", "share": 1.0, "waiting": 1, "wait_seconds": 0.2, "top": 2},
}
SOFAS = {"query": "blue sofa", "items": ["blue sofa", "red sofa", "table"]}
OUTCOMES = ("compared", "failed", "dropped")


@pytest.fixture(scope="module")
def shadowed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """Version 1 serves, since a file pins it; version 2 is the shadow."""
    from tests.serving import exported_models

    folder, settings = tmp_path_factory.mktemp("shadowed"), tmp_path_factory.mktemp("settings") / "gateway.yaml"
    settings.write_text(yaml.safe_dump(SETTINGS))
    other = exported_models.Overlap(exported_models.SHOP, broken="velvet", slow="navy", crash="oak")
    other.weight.assign(-2.0)
    exported_models.export(folder, version=1)
    exported_models.export(folder, version=2, module=other)
    (folder / PIN).write_text("1")
    with GatewayProcess(folder, settings, key=KEY) as gateway:
        admin = gateway.admin(ADMIN_KEY)
        operated = Operated(gateway.wait_until_ready(), admin, folder)
        operated.wait_until(lambda: state(operated) == (1, 2), "a shadow")
        yield operated
        admin.close()


def state(operated: Operated) -> tuple[int, int | None]:
    """Returns the current version and the shadow version."""
    told = operated.admin.get("/admin/versions").json()
    return told["model"]["version"], told["shadow"]


def outcomes(operated: Operated) -> dict[str, float]:
    metric = operated.gateway.metric
    sample = 'privrank_shadow_requests_total{{outcome="{}",version="2"}}'
    return {outcome: metric(sample.format(outcome)) for outcome in OUTCOMES}


def ask(operated: Operated, body: Any, path: str = "/v1/rank", **expected: int) -> httpx.Response:
    """Returns the answer after the shadow has handled the request with the expected outcomes."""
    before = outcomes(operated)
    answer = operated.gateway.post(body, path)
    wanted = {outcome: before[outcome] + expected.get(outcome, 0) for outcome in OUTCOMES}
    operated.wait_until(lambda: outcomes(operated) == wanted, f"{wanted} after {before}")
    return answer


def test_the_shadows_order_is_compared_with_the_answered_order(shadowed: Operated) -> None:
    growth = Growth(shadowed.gateway)
    answer = ask(shadowed, SOFAS, compared=1).json()
    assert answer["model"]["version"] == 1
    assert [result["index"] for result in answer["results"]] == [0, 1, 2]
    growth.read()
    told = {"version": "2", "served": "1"}
    # every pair is discordant; of the two best, the middle item is among the shadow's two best
    assert growth.of("shadow_kendall_tau_bucket", le="-0.5", **told) == 1
    assert [growth.of("shadow_top_overlap_bucket", le=le, **told) for le in ("0.4", "0.5")] == [0, 1]


def test_shadow_scoring_does_not_count_as_requests(shadowed: Operated) -> None:
    growth = Growth(shadowed.gateway)
    answer = ask(shadowed, SOFAS, compared=1)
    growth.read()
    assert growth.of("requests_total", route="/v1/rank", status="200") == 1
    assert growth.of("pairs_total") == 3
    assert growth.of("call_groups_count") == 1
    assert growth.of("answers_total", version="1") == 1
    assert growth.of("answers_total", version="2") == growth.of("scores_count", version="2") == 0
    assert answer.headers["x-model-version"] == "1"


@pytest.mark.parametrize(
    ("path", "body", "groups"),
    [
        ("/rank", {**SOFAS, "model_version": 1, "top_n": 1}, 1),
        ("/v1/rank/batch", {"queries": [SOFAS, {"query": ""}, SOFAS]}, 2),
        ("/v1/rerank", {"query": "blue sofa", "documents": SOFAS["items"]}, 1),
    ],
    ids=["pinned", "batch", "rerank"],
)
def test_every_shape_of_request_is_compared(shadowed: Operated, path: str, body: dict[str, Any], groups: int) -> None:
    growth = Growth(shadowed.gateway)
    assert ask(shadowed, body, path, compared=1).status_code == 200
    assert growth.read().of("shadow_kendall_tau_bucket", version="2", served="1", le="-0.5") == groups


@pytest.mark.parametrize(("word", "reason"), [("velvet", "non-finite-score"), ("oak", "model-failed")])
def test_a_shadow_that_fails_or_scores_nan_is_counted_and_affects_no_request(
    shadowed: Operated, word: str, reason: str
) -> None:
    ask(shadowed, SOFAS, compared=1)  # the first failure after a success is logged
    answer = ask(shadowed, {"query": "sofa", "items": ["sofa", f"{word} table"]}, failed=1)
    assert [result["index"] for result in answer.json()["results"]] == [0, 1]
    shadowed.gateway.wait_for_log("shadow-failed", version=2, reason=reason)
    mixed = {"queries": [SOFAS, {"query": "sofa", "items": [f"{word} table"]}]}
    assert "problem" not in ask(shadowed, mixed, "/v1/rank/batch", failed=1).text
    problems = [line["problems"] for line in shadowed.gateway.logged("request") if "problems" in line]
    assert reason not in str(problems)


def test_a_slow_shadow_delays_no_request_and_drops_those_beyond_its_queue(shadowed: Operated) -> None:
    before = outcomes(shadowed)
    for _ in range(5):
        answer = shadowed.gateway.post({"query": "sofa", "items": ["sofa", "navy table"]})
        assert answer.status_code == 200
    # the shadow still scores the first, one waits, and the others are dropped
    assert outcomes(shadowed) == {**before, "dropped": before["dropped"] + 3}
    wanted = {**before, "dropped": before["dropped"] + 3, "compared": before["compared"] + 2}
    shadowed.wait_until(lambda: outcomes(shadowed) == wanted, f"{wanted}")


def test_the_shadow_waits_for_an_idle_thread_and_drops_what_it_cannot_score_in_time(shadowed: Operated) -> None:
    before = outcomes(shadowed)
    slow = {"query": "sofa", "items": ["sofa", "slow table"]}
    with ThreadPoolExecutor(3) as pool:
        url = f"{shadowed.gateway.address}/v1/rank"
        asked = [pool.submit(httpx.post, url, json=slow, headers=bearer(KEY), timeout=60) for _ in range(3)]
        assert [future.result().status_code for future in asked] == [200] * 3
    # the shadow waited while the only thread scored the next request, and ran after the last one
    wanted = {**before, "dropped": before["dropped"] + 2, "compared": before["compared"] + 1}
    shadowed.wait_until(lambda: outcomes(shadowed) == wanted, f"{wanted}")


def test_a_refused_request_is_not_shadowed(shadowed: Operated) -> None:
    assert ask(shadowed, {"query": "sofa", "items": [{"title": "sofa", "click": True}]}).status_code == 422
    assert ask(shadowed, b"{").status_code == 400


def test_the_shadow_version_takes_over_and_is_the_shadow_again_after_a_rollback(shadowed: Operated) -> None:
    loaded = len(shadowed.gateway.logged("serving"))
    (shadowed.folder / PIN).unlink()
    shadowed.wait_until(lambda: state(shadowed) == (2, None), "switched")
    assert len(shadowed.gateway.logged("serving")) == loaded + 1
    assert [result["index"] for result in ask(shadowed, SOFAS).json()["results"]] == [2, 1, 0]
    assert shadowed.admin.post("/admin/rollback").json()["model"]["version"] == 1
    shadowed.wait_until(lambda: state(shadowed) == (1, 2), "a shadow again")
    assert ask(shadowed, SOFAS, compared=1).json()["model"]["version"] == 1


def test_a_refused_version_does_not_become_the_shadow(shadowed: Operated) -> None:
    broken = shadowed.folder / "3" / "assets.extra"
    broken.mkdir(parents=True)
    (broken / "manifest.json").write_text("{}")
    assert "is no model manifest" in shadowed.gateway.wait_for_log("version-refused", version=3)["reason"]
    assert state(shadowed) == (1, 2)
    assert ask(shadowed, SOFAS, compared=1).status_code == 200
