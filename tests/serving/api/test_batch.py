"""/v1/rank/batch: several queries at once, each with an answer or a problem of its own."""

from typing import Any

import pytest

from tests.serving.api.test_bad_requests import problem_of
from tests.serving.processes import GatewayProcess

PATH = "/v1/rank/batch"
SOFA = {"query": "blue sofa", "items": ["oak table", "blue velvet sofa", "red sofa"]}
TABLE = {"query": "oak table", "items": [{"id": "t", "title": "oak table"}], "debug": True}


def answers_to(gateway: GatewayProcess, *queries: Any) -> list[Any]:
    answer = gateway.post({"queries": list(queries)}, PATH)
    assert answer.status_code == 200, answer.text
    answers: list[Any] = answer.json()["answers"]
    return answers


def alone(gateway: GatewayProcess, query: Any) -> Any:
    answer = gateway.post(query).json()
    del answer["request_id"]
    return answer


def test_each_answer_is_the_one_that_rank_gives(shop: GatewayProcess) -> None:
    queries = [SOFA, TABLE, {**SOFA, "top_n": 1, "return_titles": True}, {"query": "x", "items": ["y"] * 40}, SOFA]
    assert answers_to(shop, *queries) == [alone(shop, query) for query in queries]


def test_every_type_of_feature_reaches_the_model_of_every_query(rich: GatewayProcess) -> None:
    items = [{"title": "oak", "price": 50.0, "brand": "acme", "colour": [0.5, 2.0, 0.0]}, "sofa"]
    queries = [{"query": "sofa", "hour": hour, "items": items[: 1 + hour % 2]} for hour in range(30)]
    assert answers_to(rich, *queries) == [alone(rich, query) for query in queries]


def test_usage_is_the_sum_of_the_answers(shop: GatewayProcess) -> None:
    answer = shop.post({"queries": [SOFA, TABLE, {"query": "", "items": ["a"]}]}, PATH).json()
    assert answer["usage"] == {"pairs": 3 + 1, "tokens": (2 + 2 + 3 + 2) + (2 + 2), "truncated": 0, "clipped": 0}
    parts = [entry["usage"] for entry in answer["answers"] if "usage" in entry]
    assert answer["usage"] == {name: sum(part[name] for part in parts) for name in answer["usage"]}


WRONG: dict[str, tuple[Any, str, str]] = {
    "no object": (5, "invalid-request", "#/queries/1"),
    "no query": ({"items": ["a"]}, "invalid-request", "#/queries/1/query"),
    "no items": ({"query": "sofa"}, "invalid-request", "#/queries/1/items"),
    "a blank title": ({"query": "sofa", "items": ["a", " "]}, "invalid-request", "#/queries/1/items/1/title"),
    "an unknown field": ({**SOFA, "topn": 1}, "unknown-field", "#/queries/1/topn"),
    "a privileged feature": (
        {"query": "sofa", "items": [{"title": "a", "click": 1}]}, "privileged-feature", "#/queries/1/items/0/click"
    ),
    "an id twice": (
        {"query": "sofa", "items": [{"id": "1", "title": "a"}, "b"]}, "duplicate-id", "#/queries/1/items/1/id"
    ),
    "another version": ({**SOFA, "model_version": 9}, "model-version-not-served", "#/queries/1/model_version"),
    "1,001 items": ({"query": "sofa", "items": ["a"] * 1001}, "invalid-request", "#/queries/1/items"),
    "a list as a query": ({"query": ["sofa"], "items": ["a"]}, "invalid-request", "#/queries/1/query"),
    "a model's NaN": ({"query": "sofa", "items": ["oak", "broken", "a"]}, "non-finite-score", "#/queries/1"),
    "a failing model": ({"query": "sofa", "items": ["oak", "crash", "a"]}, "model-failed", "#/queries/1"),
}  # fmt: skip


@pytest.mark.parametrize(("entry", "slug", "pointer"), WRONG.values(), ids=WRONG)
def test_one_invalid_entry_gets_a_problem_and_the_others_get_answers(
    shop: GatewayProcess, entry: Any, slug: str, pointer: str
) -> None:
    body = b'{"queries": [%b]}' % b", ".join(shop.json_of(query) for query in (SOFA, entry, SOFA))
    answer = shop.post(body, PATH)
    assert answer.status_code == 200, answer.text
    before, problem, behind = answer.json()["answers"]
    assert before == behind == alone(shop, SOFA)
    assert (problem["problem"]["type"], problem["problem"]["pointer"]) == (f"/problems/{slug}", pointer)
    assert "request_id" not in problem["problem"]


def test_all_entries_may_be_invalid(shop: GatewayProcess) -> None:
    answer = shop.post({"queries": [{}, {}]}, PATH)
    assert [set(entry) for entry in answer.json()["answers"]] == [{"problem"}, {"problem"}]
    assert answer.json()["usage"]["pairs"] == 0


def test_the_batch_itself_has_limits(shop: GatewayProcess) -> None:
    one = {"query": "sofa", "items": ["a"]}
    assert len(answers_to(shop, *[one] * 32)) == 32
    for queries in ([], [one] * 33, None, {"0": one}, "sofa"):
        assert problem_of(shop.post({"queries": queries}, PATH), 422, "invalid-request")["pointer"] == "#/queries"
    assert len(answers_to(shop, {"query": "a", "items": ["a"] * 600}, {"query": "a", "items": ["a"] * 400})) == 2
    many = [{"query": "a", "items": ["a"] * 600}, {"query": "a", "items": ["a"] * 401}]
    assert "1001 items together" in problem_of(shop.post({"queries": many}, PATH), 422, "invalid-request")["detail"]


def test_an_invalid_batch_body_is_refused(shop: GatewayProcess) -> None:
    problem_of(shop.post(b"{", PATH), 400, "malformed-json")
    problem_of(shop.post([SOFA], PATH), 422, "invalid-request")
    problem_of(shop.post(SOFA, PATH), 422, "unknown-field")
    problem_of(shop.post({"queries": [SOFA], "click": [1]}, PATH), 422, "privileged-feature")
    problem_of(shop.post(b'{"queries": [{"query": "\\ud800", "items": ["c"]}]}', PATH), 400, "malformed-json")
    problem_of(shop.post(b'{"queries": [{"query": "\xff", "items": ["c"]}]}', PATH), 400, "malformed-json")
    problem_of(shop.post(b'{"queries": [' + b"[" * 100_000, PATH), 400, "malformed-json")
