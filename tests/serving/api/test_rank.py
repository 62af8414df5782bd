"""/rank against a real gateway process: what a shop sends, and what it gets."""

from concurrent.futures import ThreadPoolExecutor
from math import exp
from typing import Any

import pytest

from tests.serving.processes import GatewayProcess

SOFAS = {"query": "blue sofa", "items": ["oak table", "blue velvet sofa", "red sofa"]}


def sigma(logit: float) -> float:
    return 1 / (1 + exp(-logit))


def scores_of(answer: Any) -> dict[int, float]:
    """index -> score."""
    assert answer.status_code == 200, answer.text
    return {result["index"]: result["score"] for result in answer.json()["results"]}


def test_items_come_sorted_by_score(shop: GatewayProcess) -> None:
    answer = shop.post(SOFAS)
    # two, one and none of the query's two tokens: logits 1, 0 and -1
    assert [(r["index"], r["id"]) for r in answer.json()["results"]] == [(1, "1"), (2, "2"), (0, "0")]
    assert scores_of(answer) == {1: pytest.approx(sigma(1)), 2: pytest.approx(0.5), 0: pytest.approx(sigma(-1))}
    assert answer.json()["model"] == {"name": "overlap", "version": 3}
    assert answer.json()["usage"] == {"pairs": 3, "tokens": 2 + 2 + 3 + 2, "truncated": 0, "clipped": 0}


def test_rank_is_at_both_paths(shop: GatewayProcess) -> None:
    assert shop.post(SOFAS, "/rank").json()["results"] == shop.post(SOFAS, "/v1/rank").json()["results"]


def test_equal_scores_keep_the_order_of_the_request(shop: GatewayProcess) -> None:
    items = ["red sofa", "oak table", "navy sofa", "red table", "velvet sofa"]
    results = shop.post({"query": "blue sofa", "items": items}).json()["results"]
    assert [result["index"] for result in results] == [0, 2, 4, 1, 3]


def test_an_item_may_be_an_object_with_an_id_or_a_bare_title(shop: GatewayProcess) -> None:
    items = [{"id": "p1", "title": "oak table"}, "blue sofa", {"title": "red sofa"}, {"id": None, "title": "navy"}]
    results = shop.post({"query": "blue sofa", "items": items}).json()["results"]
    assert [result["id"] for result in results] == ["1", "2", "p1", "3"]


def test_top_n_answers_the_best_and_scores_all(shop: GatewayProcess) -> None:
    answer = shop.post({**SOFAS, "top_n": 1}).json()
    assert [result["index"] for result in answer["results"]] == [1]
    assert answer["usage"]["pairs"] == 3
    assert len(shop.post({**SOFAS, "top_n": 10**30}).json()["results"]) == 3
    assert shop.post({**SOFAS, "top_n": 1.0}).json()["results"] == answer["results"]  # JSON knows one kind of number


def test_return_titles_repeats_the_text_as_it_was_sent(shop: GatewayProcess) -> None:
    title = 'Blau: <b>"sofa"</b> \u2603 \U0001f6cb'
    [result] = shop.post({"query": "sofa", "items": [title], "return_titles": True}).json()["results"]
    assert result["title"] == title
    assert "title" not in shop.post({"query": "sofa", "items": [title]}).json()["results"][0]


def test_the_served_model_version_may_be_named_and_no_other(shop: GatewayProcess) -> None:
    assert shop.post({**SOFAS, "model_version": 3}).status_code == 200
    other = shop.post({**SOFAS, "model_version": 2})
    assert (other.status_code, other.json()["type"]) == (409, "/problems/model-version-not-served")


def test_debug_adds_logits_tokens_and_the_words_that_meet(shop: GatewayProcess) -> None:
    results = shop.post({**SOFAS, "debug": True}).json()["results"]
    assert [(result["debug"]["logit"], result["debug"]["tokens"]) for result in results] == [(1, 3), (0, 2), (-1, 2)]
    blue, red, oak = (result["debug"]["words"] for result in results)
    assert red["query"] == [
        {"text": "blue", "tokens": 1, "read": 1, "matched": 0},
        {"text": " sofa", "tokens": 1, "read": 1, "matched": 1},
    ]
    assert [word["matched"] for word in blue["query"]] == [1, 1]
    assert [word["matched"] for word in oak["title"]] == [0, 0]
    for result in results:
        text = "".join(word["text"] for word in result["debug"]["words"]["title"])
        assert text == SOFAS["items"][result["index"]]


def test_a_score_does_not_depend_on_the_other_items(shop: GatewayProcess) -> None:
    titles = ["blue sofa", "red sofa and a very long tail of words", "oak", "navy blue table"] * 250
    together = scores_of(shop.post({"query": "blue sofa", "items": titles}))
    for index in (0, 1, 2, 999):
        alone = scores_of(shop.post({"query": "blue sofa", "items": [titles[index]]}))[0]
        assert alone == pytest.approx(together[index], abs=1e-6)


def test_truncated_counts_items_with_too_long_a_text(shop: GatewayProcess) -> None:
    # the model reads 6 tokens of a title and 4 of a query
    items = ["sofa " * 6, "sofa " * 7, "sofa " * 8]
    assert shop.post({"query": "sofa", "items": items}).json()["usage"]["truncated"] == 2
    assert shop.post({"query": "sofa " * 5, "items": items}).json()["usage"]["truncated"] == 3


def test_a_request_id_comes_back_and_a_bad_one_is_replaced(shop: GatewayProcess) -> None:
    answer = shop.post(SOFAS, headers={"X-Request-ID": "abc-1.2:3"})
    assert answer.headers["X-Request-ID"] == answer.json()["request_id"] == "abc-1.2:3"
    for bad in ("a b", "x" * 129, '"<script>'):
        replaced = shop.post(SOFAS, headers={"X-Request-ID": bad}).headers["X-Request-ID"]
        assert replaced != bad
        assert len(replaced) == 32


def test_a_score_that_is_not_a_number_is_never_sent(shop: GatewayProcess) -> None:
    answer = shop.post({"query": "sofa", "items": ["sofa", "broken"]})
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/non-finite-score")
    assert "item 1" in answer.json()["detail"]
    assert scores_of(shop.post({"query": "sofa", "items": ["sofa"]}))  # and the gateway goes on


def test_health_answers_while_a_model_call_runs(shop: GatewayProcess) -> None:
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(shop.post, {"query": "sofa", "items": ["slow sofa"]})
        answered = 0
        while not slow.done():
            assert shop.http.get("/livez").status_code == 200
            answered += 1
        assert slow.result().status_code == 200
    assert answered > 3


def test_many_clients_get_their_own_answers(shop: GatewayProcess) -> None:
    def ask(number: int) -> bool:
        items = [{"id": f"{number}-{i}", "title": "blue sofa" if i == number % 7 else "oak"} for i in range(7)]
        answer = shop.post({"query": "blue sofa", "items": items, "top_n": 1}).json()
        return bool(answer["results"][0]["id"] == f"{number}-{number % 7}")

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(80)))


def test_every_type_of_feature_reaches_the_model(rich: GatewayProcess) -> None:
    items = [
        {"title": "oak", "price": 50.0, "brand": "acme", "in_stock": False, "colour": [0.1, 0.2, 0.3]},
        {"title": "oak", "price": 50},
        {"title": "oak", "brand": "unseen"},
        "oak",
    ]
    # no token of the query: -1; price / 100: 0.5; the brand acme: 0.25
    expected = [sigma(-1 + 0.5 + 0.25), sigma(-1 + 0.5), sigma(-1), sigma(-1)]
    found = scores_of(rich.post({"query": "sofa", "hour": 7, "items": items}))
    assert [found[i] for i in range(4)] == [pytest.approx(score) for score in expected]


def test_null_and_absent_take_the_default(rich: GatewayProcess) -> None:
    given = {"title": "oak", "price": None, "brand": None, "in_stock": None, "colour": None}
    found = scores_of(rich.post({"query": "sofa", "hour": None, "items": [given, {"title": "oak"}]}))
    assert found[0] == found[1]


def test_numbers_outside_of_trainings_range_are_clipped_and_counted(rich: GatewayProcess) -> None:
    # ranges: price 0 to 100, hour 0 to 23, each element of colour 0 to 1
    items = [{"title": "oak", "price": 1e9, "colour": [-1.0, 0.5, 2.0]}, {"title": "oak", "price": 100.0}]
    answer = rich.post({"query": "sofa", "hour": 24, "items": items})
    assert answer.json()["usage"]["clipped"] == 1 + 2 + 1
    assert scores_of(answer)[0] == scores_of(answer)[1] == pytest.approx(sigma(-1 + 1))


def test_a_spec_without_text_is_served(numbers: GatewayProcess) -> None:
    answer = numbers.post({"items": [{"vector": [0.0, 0.0]}, {"vector": [1.0, 1.0]}]})
    assert scores_of(answer) == {1: pytest.approx(sigma(2)), 0: 0.5}
    assert answer.json()["usage"]["tokens"] == 0
    assert numbers.post({"items": ["a title"]}).status_code == 422
