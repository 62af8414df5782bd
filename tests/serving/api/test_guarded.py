"""A gateway with API keys: authentication, and what unauthenticated clients see."""

import httpx
import pytest

from tests.serving.api.test_bad_requests import problem_of
from tests.serving.operated import KEY, NEW_KEY, Operated
from tests.serving.processes import bearer, run_serving

SOFAS = {"query": "blue sofa", "items": ["oak table", "red sofa"]}


def stranger(operated: Operated, headers: dict[str, str] | None = None) -> httpx.Client:
    return httpx.Client(base_url=operated.gateway.address, headers=headers or {})


def test_every_key_in_the_settings_is_answered_and_named_in_the_log(operated: Operated) -> None:
    for key, name in ((KEY, "shop-2025"), (NEW_KEY, "shop-2026")):
        with stranger(operated, bearer(key)) as http:
            answer = http.post("/v1/rank", json=SOFAS, headers={"X-Request-ID": name})
            assert answer.status_code == 200
        assert operated.gateway.wait_for_log("request", request_id=name)["key"] == name


GUARDED = [
    ("POST", "/rank"),
    ("POST", "/v1/rank"),
    ("POST", "/v1/rank/batch"),
    ("POST", "/v1/rerank"),
    ("GET", "/metrics"),
    ("GET", "/v2"),
    ("GET", "/v2/models/overlap"),
    ("GET", "/v2/models/overlap/versions/1/ready"),
]


@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_requests_without_a_known_key_are_refused(operated: Operated, method: str, path: str) -> None:
    for headers in ({}, bearer("guessed"), {"X-API-Key": KEY}, {"Authorization": f"Basic {KEY}"}):
        with stranger(operated, headers) as http:
            refused = http.request(method, path, json=SOFAS if method == "POST" else None)
        problem_of(refused, 401, "unauthorized")
        assert refused.headers["www-authenticate"] == "Bearer"


def test_an_unauthenticated_request_is_refused_before_its_body_is_read(operated: Operated) -> None:
    with stranger(operated) as http:
        problem_of(http.post("/v1/rank", content=b"no JSON"), 401, "unauthorized")


def test_health_and_pages_are_open_and_show_nothing_of_the_data(operated: Operated) -> None:
    with stranger(operated) as http:
        for path in ("/livez", "/readyz", "/v2/health/live", "/v2/health/ready", "/problems/unauthorized"):
            assert http.get(path).status_code == 200
        for path in ("/", "/docs", "/openapi.json"):
            page = http.get(path)
            assert page.status_code == 200
            assert "Velvet sofa" not in page.text  # the samples' titles
        assert 'id="key"' in http.get("/").text
        document = http.get("/openapi.json").json()
    assert document["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
    assert document["paths"]["/v1/rerank"]["post"]["security"] == [{"key": []}]
    assert "security" not in document["paths"]["/livez"]["get"]


def test_the_log_contains_no_key(operated: Operated) -> None:
    with stranger(operated, bearer("guessed at random")) as http:
        http.post("/v1/rank", json=SOFAS, headers={"X-Request-ID": "guess"})
    operated.gateway.wait_for_log("request", request_id="guess")
    for secret in (KEY, NEW_KEY, "guessed at random"):
        assert not any(secret in line for line in operated.gateway.log)


def test_without_a_key_the_command_refuses_a_public_host() -> None:
    ended = run_serving("--export-dir", "x", "--host", "0.0.0.0", "--port", "0")
    assert ended.returncode == 2
    assert "error: --host is 0.0.0.0, which other machines can reach, and no API key is set; " in ended.stderr
    allowed = run_serving("--export-dir", "nowhere", "--host", "0.0.0.0", "--port", "0", "--allow-unauthenticated")
    assert "error: cannot list export directory nowhere" in allowed.stderr
