"""The pages for people, and the OpenAPI document: what they load, what they escape, and that they tell the truth."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from serving.problems import PROBLEM_TYPES
from tests.serving.api.test_bad_requests import INVALID
from tests.serving.processes import GatewayProcess

PAGES = ["/", "/docs", *(problem.uri for problem in PROBLEM_TYPES.values())]


class Loads(HTMLParser):
    """What a page loads or links to, and whether it holds script or style of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.addresses += [str(given[name]) for name in ("src", "href", "action") if name in given]
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        if (tag == "script" and "src" not in given) or tag == "style":
            self.inline.append(tag)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_loads_nothing_from_other_hosts(shop: GatewayProcess, path: str) -> None:
    page = shop.http.get(path)
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    loads = Loads()
    loads.feed(page.text)
    assert loads.inline == []
    for address in loads.addresses:
        assert re.fullmatch(r"/[^/].*|/", address), address
        assert shop.http.get(address).status_code == 200


def test_the_files_of_the_playground_name_no_other_host() -> None:
    for path in (Path(__file__).parents[3] / "serving" / "api" / "playground").iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")  # a namespace, which nothing loads
        assert "http:" not in text, path
        assert "https:" not in text, path


def test_the_sample_is_escaped(shop: GatewayProcess) -> None:
    page = shop.http.get("/").text
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page


def test_a_page_of_an_unknown_problem_is_404(shop: GatewayProcess) -> None:
    assert shop.http.get("/problems/unheard-of").status_code == 404
    assert shop.http.get("/playground/playground.py").status_code == 404


@pytest.mark.parametrize("fixture", ["shop", "rich", "numbers"])
def test_the_openapi_documents_example_is_accepted(request: pytest.FixtureRequest, fixture: str) -> None:
    gateway: GatewayProcess = request.getfixturevalue(fixture)
    document = gateway.http.get("/openapi.json").json()
    body = document["paths"]["/v1/rank"]["post"]["requestBody"]["content"]["application/json"]
    jsonschema.Draft202012Validator.check_schema(body["schema"])
    jsonschema.validate(body["example"], body["schema"])
    answer = gateway.post(body["example"])
    assert answer.status_code == 200
    responses = document["paths"]["/v1/rank"]["post"]["responses"]
    jsonschema.validate(answer.json(), responses["200"]["content"]["application/json"]["schema"])
    problem = gateway.post({"items": []}).json()
    jsonschema.validate(problem, responses["default"]["content"]["application/problem+json"]["schema"])
    assert gateway.http.get("/docs").status_code == 200


UNSAID = ("blank", "NUL", "surrogate")  # rules that the schema cannot say


@pytest.mark.parametrize(
    "body", [body for name, (body, _) in INVALID.items() if not any(rule in name for rule in UNSAID)]
)
def test_the_schema_refuses_what_the_gateway_refuses(shop: GatewayProcess, body: Any) -> None:
    document = shop.http.get("/openapi.json").json()
    schema = document["paths"]["/rank"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    if isinstance(body, dict) and body.get("top_n") == 1.0 and isinstance(body["top_n"], float):
        return  # JSON schema takes 1.0 for a whole number
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, schema)
