"""/v1/rerank: /rank in the words that clients of other rerankers use."""

from typing import Any

import pytest

from tests.serving.api.test_bad_requests import problem_of
from tests.serving.processes import GatewayProcess

PATH = "/v1/rerank"
TITLES = ["oak table", "blue velvet sofa", "red sofa"]


def test_documents_are_ranked_as_items_are(shop: GatewayProcess) -> None:
    answer = shop.post({"model": "overlap", "query": "blue sofa", "documents": TITLES, "top_n": 2}, PATH)
    assert answer.status_code == 200
    ranked = shop.post({"query": "blue sofa", "items": TITLES, "top_n": 2}).json()
    expected = [{"index": result["index"], "relevance_score": result["score"]} for result in ranked["results"]]
    assert answer.json() == {
        "id": answer.headers["x-request-id"],
        "model": "overlap",
        "results": expected,
        "usage": {"total_tokens": 2 + 2 + 3 + 2},
    }


def test_a_document_may_be_an_object_with_its_text(shop: GatewayProcess) -> None:
    documents = [{"text": "oak table"}, "blue sofa"]
    answer = shop.post({"query": "blue sofa", "documents": documents, "return_documents": True}, PATH).json()
    found = [(result["index"], result["document"]) for result in answer["results"]]
    assert found == [(1, {"text": "blue sofa"}), (0, {"text": "oak table"})]


def test_further_features_keep_their_names(rich: GatewayProcess) -> None:
    documents = [{"text": "oak", "price": 50.0, "brand": "acme"}, {"text": "oak", "price": 100.0}, "oak"]
    answer = rich.post({"query": "sofa", "hour": 7, "documents": documents}, PATH).json()
    items = [{"title": "oak", "price": 50.0, "brand": "acme"}, {"title": "oak", "price": 100.0}, "oak"]
    ranked = rich.post({"query": "sofa", "hour": 7, "items": items}).json()
    assert [(r["index"], r["relevance_score"]) for r in answer["results"]] == [
        (r["index"], r["score"]) for r in ranked["results"]
    ]


WRONG: dict[str, tuple[Any, int, str, str]] = {
    "no query": ({"documents": ["a"]}, 422, "invalid-request", "#/query"),
    "a blank query": ({"query": " ", "documents": ["a"]}, 422, "invalid-request", "#/query"),
    "no documents": ({"query": "a"}, 422, "invalid-request", "#/documents"),
    "documents empty": ({"query": "a", "documents": []}, 422, "invalid-request", "#/documents"),
    "1,001 documents": ({"query": "a", "documents": ["a"] * 1001}, 422, "invalid-request", "#/documents"),
    "a document a number": ({"query": "a", "documents": ["a", 5]}, 422, "invalid-request", "#/documents/1"),
    "a blank document": ({"query": "a", "documents": ["a", ""]}, 422, "invalid-request", "#/documents/1/text"),
    "a document without text": ({"query": "a", "documents": [{}]}, 422, "invalid-request", "#/documents/0/text"),
    "a title": ({"query": "a", "documents": [{"title": "a"}]}, 422, "unknown-field", "#/documents/0/title"),
    "a click": (
        {"query": "a", "documents": [{"text": "a", "click": 1}]}, 422, "privileged-feature", "#/documents/0/click"
    ),
    "a click at the top": ({"query": "a", "documents": ["a"], "click": 1}, 422, "privileged-feature", "#/click"),
    "items": ({"query": "a", "items": ["a"]}, 422, "unknown-field", "#/items"),
    "top_n 0": ({"query": "a", "documents": ["a"], "top_n": 0}, 422, "invalid-request", "#/top_n"),
    "a wrong flag": (
        {"query": "a", "documents": ["a"], "return_documents": 1}, 422, "invalid-request", "#/return_documents"
    ),
    "another model": ({"query": "a", "documents": ["a"], "model": "other"}, 404, "model-not-served", "#/model"),
    "a list": ([], 422, "invalid-request", "#"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "status", "slug", "pointer"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_pointed_at_in_this_shapes_words(
    shop: GatewayProcess, body: Any, status: int, slug: str, pointer: str
) -> None:
    assert problem_of(shop.post(body, PATH), status, slug)["pointer"] == pointer


def test_a_model_without_texts_does_not_speak_it(numbers: GatewayProcess) -> None:
    problem = problem_of(numbers.post({"query": "a", "documents": ["a"]}, PATH), 404, "not-found")
    assert "use /v1/rank" in problem["detail"]
    assert PATH not in numbers.http.get("/openapi.json").json()["paths"]
