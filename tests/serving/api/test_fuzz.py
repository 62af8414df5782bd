"""Generated bodies and headers: the response is 200 or a 4xx problem, never a 500."""

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serving.api.hostile_bodies import LARGEST
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


# bytes that are repeated: elements of a list or members of an object, or what a number or a text is made of
LISTED = [
    b"0",
    b"-1.5e9",
    b"null",
    b'"a"',
    b'"\\u0131"',
    b"[]",
    b"{}",
    b"[0]",
    b'{"a":0}',
    b'{"title":"a"}',
    b'"\xef\xb7\xba"',
]
DIGITS = [b"9", b"0", b"1234567890"]
TEXTS = [b"a", b"\\n", b"\\u00e9", b"\\ud83d\\ude00", b"\\ud800", b"\xef\xb7\xba", b" ", b"\\u0000"]
sizes = st.integers(0, 100) | st.integers(0, LARGEST - 2000)  # bytes


@st.composite
def large_values(draw: st.DrawFn) -> bytes:
    """JSON of up to the largest body's size, of one kind throughout."""
    size, depth = draw(sizes), draw(st.sampled_from([0, 0, 1, 5, 900, 100_000]))
    kind = draw(st.sampled_from(["list", "object", "same name", "digits", "fraction", "text"]))
    if kind == "list":
        element = draw(st.sampled_from(LISTED))
        value = b"[" + (element + b",") * (size // (len(element) + 1)) + element + b"]"
    elif kind == "object":
        value = b"{" + b",".join(b'"%x":0' % number for number in range(size // 9)) + b"}"
    elif kind == "same name":
        name = draw(st.sampled_from(NAMES)).encode()
        value = b"{" + b'"%b":0,' % name * (size // (len(name) + 5)) + b'"%b":0}' % name
    elif kind == "text":
        text = draw(st.sampled_from(TEXTS))
        value = b'"' + text * (size // len(text)) + b'"'
    else:
        digits = draw(st.sampled_from(DIGITS))
        value = (b"1" if kind == "digits" else b"0.1") + digits * (size // len(digits))
    depth = min(depth, (LARGEST - 2000 - len(value)) // 2)
    return b"[" * depth + value + b"]" * depth if depth > 0 else value


@pytest.mark.parametrize("path", RIGHT)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_large_body_ends_in_a_500_or_takes_long(rich: GatewayProcess, path: str, data: st.DataObject) -> None:
    body = json.dumps(data.draw(changed(RIGHT[path]))).encode()
    places = [place for place in range(len(body)) if body[place : place + 1] in (b"[", b"{", b",")] or [len(body)]
    place, value = data.draw(st.sampled_from(places)) + 1, data.draw(large_values())
    member = b'"%b":%b' % (data.draw(st.sampled_from(NAMES)).encode(), value)
    grown = body[:place] + data.draw(st.sampled_from([value + b",", member + b",", member, value])) + body[place:]
    began = time.perf_counter()
    answer = rich.post(grown[:LARGEST], path)
    assert answer.status_code < 500, answer.text
    assert time.perf_counter() - began < 5.0  # on a busy machine; tests.serving.api.test_hostile_bodies is strict


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
