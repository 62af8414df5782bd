"""Invalid requests get a 4xx problem that describes the error, never a 500."""

import json
import socket
from typing import Any

import pytest

from tests.serving.processes import GatewayProcess

TITLE = {"title": "oak table"}


def problem_of(answer: Any, status: int, slug: str) -> dict[str, Any]:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    problem: dict[str, Any] = answer.json()
    assert problem["type"] == f"/problems/{slug}"
    assert problem["status"] == status
    assert problem["detail"]
    assert problem["request_id"] == answer.headers["x-request-id"]
    return problem


MALFORMED = {
    "empty": b"",
    "cut short": b'{"query": "sofa", "items": [',
    "not JSON": b"query=sofa",
    "trailing comma": b'{"query": "sofa", "items": ["a"],}',
    "two values": b'{"query": "sofa", "items": ["a"]} {}',
    "NaN": b'{"query": "sofa", "items": ["a"], "top_n": NaN}',
    "Infinity": b'{"query": "sofa", "items": ["a"], "top_n": -Infinity}',
    "Latin-1": '{"query": "canapé", "items": ["a"]}'.encode("latin-1"),
    "UTF-16": '{"query": "sofa", "items": ["a"]}'.encode("utf-16"),
    "byte order mark": '\ufeff{"query": "sofa", "items": ["a"]}'.encode(),
    "control character": b'{"query": "so\x01fa", "items": ["a"]}',
    "raw NUL": b'{"query": "so\x00fa", "items": ["a"]}',
    "a high surrogate alone": b'{"query": "so\\ud800fa", "items": ["a"]}',
    "a low surrogate alone": b'{"query": "sofa", "items": [{"title": "\\udfff"}]}',
    "a surrogate in a name": b'{"query": "sofa", "items": ["a"], "\\ud800": 1}',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_invalid_json_is_400(shop: GatewayProcess, body: bytes) -> None:
    problem_of(shop.post(body), 400, "malformed-json")


INVALID: dict[str, tuple[Any, str]] = {
    "a list": ([], "#"),
    "null": (None, "#"),
    "text": ("sofa", "#"),
    "no items": ({"query": "sofa"}, "#/items"),
    "items null": ({"query": "sofa", "items": None}, "#/items"),
    "items empty": ({"query": "sofa", "items": []}, "#/items"),
    "items an object": ({"query": "sofa", "items": {"0": TITLE}}, "#/items"),
    "1,001 items": ({"query": "sofa", "items": ["a"] * 1001}, "#/items"),
    "item a number": ({"query": "sofa", "items": [3]}, "#/items/0"),
    "item a list": ({"query": "sofa", "items": ["a", ["b"]]}, "#/items/1"),
    "item null": ({"query": "sofa", "items": [None]}, "#/items/0"),
    "item without title": ({"query": "sofa", "items": [{"id": "a"}]}, "#/items/0/title"),
    "no query": ({"items": ["a"]}, "#/query"),
    "query null": ({"query": None, "items": ["a"]}, "#/query"),
    "query a number": ({"query": 5, "items": ["a"]}, "#/query"),
    "query a list": ({"query": ["sofa"], "items": ["a"]}, "#/query"),
    "query empty": ({"query": "", "items": ["a"]}, "#/query"),
    "query blank": ({"query": " \t\n\u3000", "items": ["a"]}, "#/query"),
    "query of 513 characters": ({"query": "x" * 513, "items": ["a"]}, "#/query"),
    "query with NUL": ({"query": "so\0fa", "items": ["a"]}, "#/query"),
    "title blank": ({"query": "sofa", "items": ["a", "  "]}, "#/items/1/title"),
    "title of 2,049 characters": ({"query": "sofa", "items": ["x" * 2049]}, "#/items/0/title"),
    "title with NUL": ({"query": "sofa", "items": ["a\0"]}, "#/items/0/title"),
    "title a boolean": ({"query": "sofa", "items": [{"title": True}]}, "#/items/0/title"),
    "title an object": ({"query": "sofa", "items": [{"title": {"text": "a"}}]}, "#/items/0/title"),
    "id a number": ({"query": "sofa", "items": [{"id": 5, **TITLE}]}, "#/items/0/id"),
    "id empty": ({"query": "sofa", "items": [{"id": "", **TITLE}]}, "#/items/0/id"),
    "id of 257 characters": ({"query": "sofa", "items": [{"id": "x" * 257, **TITLE}]}, "#/items/0/id"),
    "id with NUL": ({"query": "sofa", "items": [{"id": "a\0", **TITLE}]}, "#/items/0/id"),
    "top_n 0": ({"query": "sofa", "items": ["a"], "top_n": 0}, "#/top_n"),
    "top_n negative": ({"query": "sofa", "items": ["a"], "top_n": -1}, "#/top_n"),
    "top_n a fraction": ({"query": "sofa", "items": ["a"], "top_n": 1.5}, "#/top_n"),
    "top_n true": ({"query": "sofa", "items": ["a"], "top_n": True}, "#/top_n"),
    "top_n text": ({"query": "sofa", "items": ["a"], "top_n": "3"}, "#/top_n"),
    "return_titles a number": ({"query": "sofa", "items": ["a"], "return_titles": 1}, "#/return_titles"),
    "debug text": ({"query": "sofa", "items": ["a"], "debug": "yes"}, "#/debug"),
    "model_version text": ({"query": "sofa", "items": ["a"], "model_version": "3"}, "#/model_version"),
}


@pytest.mark.parametrize(("body", "pointer"), INVALID.values(), ids=INVALID)
def test_an_invalid_value_is_422_with_a_pointer(shop: GatewayProcess, body: Any, pointer: str) -> None:
    problem = problem_of(shop.post(json.dumps(body).encode()), 422, "invalid-request")
    assert problem["pointer"] == pointer


def test_the_error_names_the_value_and_what_is_expected(shop: GatewayProcess) -> None:
    told = {
        b"[]": "The body is a list, expected one JSON object",
        b'{"query": 5, "items": ["a"]}': "query is 5, expected text",
        b'{"query": ["sofa"], "items": ["a"]}': "query is a list, expected text",
        b'{"query": "sofa"}': "items is None, expected a list of 1 to 1000",
        b'{"query": "sofa", "items": []}': "items is an empty list, expected a list of 1 to 1000",
        b'{"query": "sofa", "items": [%b"a"]}'
        % (b'"a",' * 1000): "items is a longer list, expected a list of 1 to 1000",
        b'{"query": "sofa", "items": {}}': "items is an object, expected a list of 1 to 1000",
        b'{"query": "sofa", "items": [[]]}': "item 0 is a list, expected an object, or a bare title",
        b'{"query": "sofa", "items": [7]}': "item 0 is 7, expected an object, or a bare title",
        b'{"query": "sofa", "items": [{"title": {"a": 1}}]}': "title is an object, expected text",
        b'{"query": "sofa", "items": [{"id": [], "title": "a"}]}': "id is a list, expected text",
        b'{"query": "sofa", "items": ["a"], "top_n": [1]}': "top_n is a list, expected a whole number from 1",
        b'{"query": "sofa", "items": ["a"], "top_n": 1e999}': "top_n is inf, expected a whole number from 1",
        b'{"query": "sofa", "items": ["a"], "debug": {}}': "debug is an object, expected true or false",
    }
    assert {body: shop.post(body).json()["detail"] for body in told} == told


def test_a_lone_surrogate_is_named(shop: GatewayProcess) -> None:
    detail = problem_of(shop.post(MALFORMED["a high surrogate alone"]), 400, "malformed-json")["detail"]
    assert "\\ud800 to \\udfff are valid as pairs only" in detail


NOT_DECODED: dict[str, tuple[bytes, str, str]] = {
    "5,000 digits": (b'{"query": "sofa", "items": ["a"], "top_n": %b}' % (b"9" * 5000), "invalid-request", "#/top_n"),
    "100,000 levels": (b'{"query": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid-request", "#/query"),
    "100,000 objects deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "unknown-field", "#/a"),
    "no JSON behind an unknown field": (b'{"a": 1, [[', "unknown-field", "#/a"),
}


@pytest.mark.parametrize(("body", "slug", "pointer"), NOT_DECODED.values(), ids=NOT_DECODED)
def test_a_body_is_parsed_up_to_its_first_error(shop: GatewayProcess, body: bytes, slug: str, pointer: str) -> None:
    assert problem_of(shop.post(body), 422, slug)["pointer"] == pointer


@pytest.mark.parametrize("depth", [50, 500, *range(900, 1000, 10), 2000, 5000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth_is_never_a_500(shop: GatewayProcess, depth: int, opening: bytes) -> None:
    deep = opening * depth + b"1" + (b"]" if opening == b"[" else b"}") * depth
    for body in (deep, b'{"query": %b, "items": ["a"]}' % deep, b'{"query": "a", "items": [{"x": %b}]}' % deep):
        assert 400 <= shop.post(body).status_code < 500


def test_an_unknown_field_is_named(shop: GatewayProcess) -> None:
    problem = problem_of(shop.post({"query": "sofa", "items": ["a"], "topn": 3}), 422, "unknown-field")
    assert problem["pointer"] == "#/topn"
    assert "top_n" in problem["detail"]
    problem = problem_of(shop.post({"query": "sofa", "items": [{**TITLE, "a/b~c": 1}]}), 422, "unknown-field")
    assert problem["pointer"] == "#/items/0/a~1b~0c"


def test_a_feature_at_the_wrong_level_gets_an_error_with_the_right_level(shop: GatewayProcess) -> None:
    problem = problem_of(shop.post({"query": "sofa", "title": "oak", "items": ["a"]}), 422, "unknown-field")
    assert "into each of `items`" in problem["detail"]
    problem = problem_of(shop.post({"query": "sofa", "items": [{**TITLE, "query": "sofa"}]}), 422, "unknown-field")
    assert "once a request" in problem["detail"]
    problem = problem_of(shop.post({"query": "sofa", "items": [{**TITLE, "item_id": "p1"}]}), 422, "unknown-field")
    assert "`id`" in problem["detail"]


def test_the_last_value_of_a_repeated_key_counts(shop: GatewayProcess) -> None:
    answer = shop.post(
        b'{"query": "oak", "query": "blue sofa", "items": [{"title": "oak", "t\\u0069tle": "blue sofa"}]}'
    )
    assert answer.json()["results"] == shop.post({"query": "blue sofa", "items": ["blue sofa"]}).json()["results"]


def test_a_long_name_and_a_long_value_are_not_echoed(shop: GatewayProcess) -> None:
    named = problem_of(shop.post({"query": "sofa", "items": [{"x" * 100_000: 1}]}), 422, "unknown-field")
    assert named["pointer"] == "#/items/0"
    valued = problem_of(shop.post({"query": "sofa", "items": ["a"], "top_n": "x" * 100_000}), 422, "invalid-request")
    assert max(len(named["detail"]), len(valued["detail"])) < 200


def test_a_duplicate_id_is_refused(shop: GatewayProcess) -> None:
    same = [{"id": "p", **TITLE}, {"id": "p", **TITLE}]
    problem = problem_of(shop.post({"query": "sofa", "items": same}), 422, "duplicate-id")
    assert problem["pointer"] == "#/items/1/id"
    # the second item's id is its index, "1"
    problem_of(shop.post({"query": "sofa", "items": [{"id": "1", **TITLE}, "oak"]}), 422, "duplicate-id")


def test_limits_are_inclusive(shop: GatewayProcess) -> None:
    longest = {"query": "\U0001f6cb" * 512, "items": [{"id": "\U0001f6cb" * 256, "title": "é" * 2048}]}
    assert shop.post(longest).status_code == 200
    assert shop.post({"query": "sofa", "items": ["a"] * 1000}).status_code == 200


NUMBERS = {
    "1e39": b"1e39",
    "1e999": b"1e999",
    "-1e999": b"-1e999",
    "400 digits": b"9" * 400,
    "text": b'"5"',
    "true": b"true",
    "a list": b"[1]",
    "an object": b"{}",
}


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
def test_a_number_that_is_not_finite_as_float32_is_422(rich: GatewayProcess, number: bytes) -> None:
    body = b'{"query": "sofa", "items": [{"title": "a", "price": %b}]}' % number
    assert problem_of(rich.post(body), 422, "invalid-request")["pointer"] == "#/items/0/price"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("colour", [1.0, 2.0]),
        ("colour", [1.0, 2.0, 3.0, 4.0]),
        ("colour", [1.0, 2.0, None]),
        ("colour", [1.0, 2.0, 1e39]),
        ("colour", 1.0),
        ("in_stock", 2),
        ("in_stock", "yes"),
        ("brand", 1.5),
        ("brand", "a\0"),
        ("brand", "x" * 2049),
    ],
)
def test_a_value_of_another_type_is_422(rich: GatewayProcess, name: str, value: Any) -> None:
    answer = rich.post({"query": "sofa", "items": [{"title": "a", name: value}]})
    assert problem_of(answer, 422, "invalid-request")["pointer"] == f"#/items/0/{name}"


@pytest.mark.parametrize("hour", [1.5, 2**63, -(2**63) - 1, "7", True])
def test_a_whole_number_of_64_bits_is_expected(rich: GatewayProcess, hour: Any) -> None:
    problem_of(rich.post({"query": "sofa", "hour": hour, "items": ["a"]}), 422, "invalid-request")


@pytest.mark.parametrize("media_type", ["text/plain", "", "application/x-www-form-urlencoded", "application/jsonx"])
def test_another_media_type_is_415(shop: GatewayProcess, media_type: str) -> None:
    answer = shop.post(b'{"query": "sofa", "items": ["a"]}', headers={"Content-Type": media_type})
    problem_of(answer, 415, "unsupported-media-type")


def test_utf8_may_be_named_and_no_other_encoding(shop: GatewayProcess) -> None:
    body = b'{"query": "sofa", "items": ["a"]}'
    named = {"Content-Type": 'Application/JSON; charset="UTF-8"'}
    assert shop.post(body, headers=named).status_code == 200
    other = shop.post(body, headers={"Content-Type": "application/json; charset=latin-1"})
    problem_of(other, 415, "unsupported-media-type")
    problem_of(shop.post(body, headers={"Content-Encoding": "gzip"}), 415, "unsupported-media-type")


def test_another_path_and_another_method_are_problems(shop: GatewayProcess) -> None:
    problem_of(shop.http.get("/v2/nowhere"), 404, "not-found")
    problem_of(shop.http.get("/playground/../settings.py"), 404, "not-found")
    refused = shop.http.get("/v1/rank")
    problem_of(refused, 405, "method-not-allowed")
    assert refused.headers["allow"] == "POST"


def test_a_declared_length_over_the_limit_is_refused_before_the_body_comes(shop: GatewayProcess) -> None:
    head = b"POST /rank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9999999999\r\n\r\n"
    with socket.create_connection(("127.0.0.1", shop.port), timeout=10) as raw:
        raw.sendall(head)
        assert raw.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_is_counted_as_it_comes(shop: GatewayProcess) -> None:
    head = b"POST /rank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", shop.port), timeout=10) as raw:
        raw.sendall(head)
        try:
            for _ in range(64):  # far more than is ever read
                raw.sendall(chunk)
        except (BrokenPipeError, ConnectionResetError):
            return  # cut off: it was not read on
        assert raw.recv(4096).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "sent", [b"nonsense\r\n\r\n", b"POST /rank HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"\0\0\0\0\r\n\r\n"]
)
def test_invalid_http_does_not_stop_the_gateway(shop: GatewayProcess, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", shop.port), timeout=10) as raw:
        raw.sendall(sent)
        assert not raw.recv(4096).startswith(b"HTTP/1.1 5")
    assert shop.http.get("/readyz").status_code == 200


def test_a_disconnect_in_the_middle_of_a_body_does_no_harm(shop: GatewayProcess) -> None:
    head = b"POST /rank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", shop.port), timeout=10) as raw:
        raw.sendall(head)
    assert shop.post({"query": "sofa", "items": ["a"]}).status_code == 200
    assert not any('"event": "failed"' in line for line in shop.log)
