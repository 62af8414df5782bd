"""Bodies that nobody thought of: whatever JSON comes, the answer is 200 or a 4xx problem, and never a 500."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serving.processes import GatewayProcess

NAMES = (
    "query", "items", "title", "id", "price", "brand", "in_stock", "colour", "hour", "top_n", "return_titles", "debug",
    "model_version", "queries", "documents", "text", "model", "return_documents", "click", "purchase",
)  # fmt: skip
# every character, lone surrogates and NUL too
texts = st.text(st.characters(), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
names = st.sampled_from(NAMES) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)
RIGHT: dict[str, Any] = {
    "/v1/rank": {"query": "sofa", "hour": 3, "items": [{"title": "oak", "price": 1.0, "colour": [0.0, 0.0, 0.0]}, "a"]},
    "/v1/rank/batch": {"queries": [{"query": "sofa", "items": ["oak"]}]},
    "/v1/rerank": {"query": "sofa", "documents": ["oak", {"text": "oak", "in_stock": True}]},
}


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """A right body with something else in some places of it."""
    if draw(st.integers(0, 5)) == 0:
        return draw(values)
    if isinstance(value, dict):
        kept = {name: draw(changed(inner)) for name, inner in value.items() if draw(st.integers(0, 9))}
        return kept | draw(st.dictionaries(names, values, max_size=1))
    if isinstance(value, list):
        return [draw(changed(inner)) for inner in value]
    return value


@pytest.mark.parametrize("path", RIGHT)
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_body_ends_in_a_500(rich: GatewayProcess, path: str, data: st.DataObject) -> None:
    body = json.dumps(data.draw(changed(RIGHT[path])), ensure_ascii=data.draw(st.booleans()))
    answer = rich.post(body.encode("utf-8", "surrogatepass"), path)
    assert answer.status_code < 500, answer.text
    if answer.status_code != 200:
        assert answer.headers["content-type"] == "application/problem+json"


HEADERS = ["X-Request-ID", "X-Request-Timeout-Ms", "traceparent", "Authorization", "Content-Type", "Accept"]
SENDABLE = st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters="\x7f")  # what HTTP lets through


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    path=st.sampled_from([*RIGHT, "/metrics", "/v2/models/overlap", "/docs"]),
    headers=st.dictionaries(
        st.sampled_from(HEADERS), st.text(SENDABLE, max_size=30).map(lambda t: t.encode("latin-1"))
    ),
)
def test_no_header_ends_in_a_500(rich: GatewayProcess, path: str, headers: dict[str, bytes]) -> None:
    method = "POST" if path in RIGHT else "GET"
    sent = {"Content-Type": b"application/json", **headers}
    content = json.dumps(RIGHT[path]).encode() if method == "POST" else None
    answer = rich.http.request(method, path, headers=sent, content=content)  # type: ignore[arg-type]
    # a deadline of a few milliseconds may well be too short
    assert answer.status_code < 500 or answer.status_code == 504, answer.text
