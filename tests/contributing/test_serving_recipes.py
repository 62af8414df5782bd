"""The recipes of a backend, an endpoint and a metric of the gateway, followed with toys in one copy of the project."""

from dataclasses import dataclass
from subprocess import CompletedProcess

import pytest

from tests.contributing.house_copy import HouseCopy
from tests.contributing.recipe import recipes

FACTORY = """
def _toy() -> _Factory:
    from serving.backends.toy import ToyBackend

    return lambda model, settings: ToyBackend()


"""
HANDLER = '''

def toy(body: bytes, models: Models, record: RequestRecord) -> _Json:
    """/v1/toy: the id of the best item."""
    [ranking] = _rank_all([_read(body, models)], record)
    return {"best": _or_raise(ranking).results[0].id}


'''
DESCRIPTION = """
    answer = {"type": "object", "required": ["best"], "properties": {"best": {"type": "string"}}}
    endpoints.append(Endpoint("/v1/toy", "Name the best item", rank_schema, answer, example))
"""
ROUTE = """

    @app.get("/toyz")
    async def toyz() -> Response:
        return JSONResponse({"toy": True})
"""
WITHOUT_REGISTRY_LINES = """
from fastapi.testclient import TestClient

from features.errors import InputError
from serving.api.app import create_app
from serving.api.gateway import Gateway
from serving.backends.registry import create_backend
from serving.settings import Settings

settings = Settings(export_dir="", backend="toy")
print(TestClient(create_app(Gateway(settings))).post("/v1/toy", json={}).text)
try:
    create_backend(None, settings)
except InputError as error:
    print(error)
"""
BACKEND, ENDPOINT, METRIC = (recipes()[of] for of in ("A backend", "An endpoint", "A metric of the gateway"))
REGISTRY = BACKEND.step(2, "Add a function that imports it, and a line to {registry}, in {file}.")
RANKS = ENDPOINT.step(
    1,
    "An endpoint that ranks is a function in {handlers}, from a body to the members of its answer; a line in "
    "{registry} of {app}; and an {endpoint} in {described} of {openapi}.",
)
TESTED = ENDPOINT.step(
    2,
    "Test it in {file}. If it needs a key, add its path to {guarded} in {guarded_file}; if it takes a body, add one to "
    "{right} in {right_file}.",
)
CURL = """
```sh
curl -s http://127.0.0.1:8000/v1/toy -H 'Content-Type: application/json' -d '{"query": "sofa", "items": ["oak"]}'
```
"""
PANEL = """
  {
   "id": 99, "type": "stat", "title": "Toys",
   "datasource": {"type": "prometheus", "uid": "${datasource}"},
   "gridPos": {"x": 0, "y": 999, "w": 4, "h": 4},
   "targets": [{"expr": "sum(privrank_toys_total{job=~\\"$job\\"})", "legendFormat": "toys"}]
  },"""


@dataclass(frozen=True)
class Followed:
    house: HouseCopy
    without_registry_lines: CompletedProcess[str]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """A copy that has the toys, and what it did before their lines stood in the registries."""
    house = HouseCopy(tmp_path_factory.mktemp("house"))
    new = BACKEND.step(1, "Write {file} with a class that has the methods of {interface} ({base}).")
    house.write_toy(new["file"], "toy_backend")
    house.insert_before(REGISTRY["file"], REGISTRY["registry"], FACTORY)
    house.insert_before(RANKS["handlers"], "_read", HANDLER)
    without_registry_lines = house.run("-c", WITHOUT_REGISTRY_LINES)

    house.add_entry(REGISTRY["file"], REGISTRY["registry"], '"toy": _toy')
    house.add_entry(RANKS["app"], RANKS["registry"], '"/v1/toy": handlers.toy')
    house.insert_before_return(RANKS["openapi"], RANKS["described"], DESCRIPTION)
    other = ENDPOINT.step(1, "Any other is a route in one of the {prefix} functions of {app}, or in {admin} of {file}")
    house.insert_at_end(other["app"], f"{other['prefix']}health", ROUTE)
    metrics = METRIC.step(1, "Define it in {file}.")["file"]
    house.insert_at_end(metrics, "Metrics.__init__", '        self._toys = self._counter("toys", "Toys")')
    return Followed(house, without_registry_lines)


def test_a_backend_an_endpoint_and_a_metric_follow_their_recipes(followed: Followed) -> None:
    tests = followed.house.write_toy(TESTED["file"], "gateway_checks")
    done = followed.house.run_tests(str(tests))
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_without_its_registry_line_a_backend_is_refused_by_name_and_an_endpoint_not_found(followed: Followed) -> None:
    done = followed.without_registry_lines
    assert "backend 'toy' is unknown, expected one of embedded, litert, tf-serving" in done.stdout, done.stderr
    assert '"detail":"Nothing is served at this path"' in done.stdout


@pytest.mark.slow
def test_the_tests_that_the_endpoints_recipe_names_run_with_the_toy(followed: Followed) -> None:
    house = followed.house
    house.add_entry(TESTED["guarded_file"], TESTED["guarded"], '("POST", "/v1/toy")')
    house.add_entry(TESTED["right_file"], TESTED["right"], '"/v1/toy": {"query": "sofa", "items": ["oak"]}')
    examples = ENDPOINT.step(3, ", with a {curl} command: {file} runs it.")["file"]
    house.replace("docs/serving.md", "\n## Errors\n", f"{CURL}\n## Errors\n")
    files = (TESTED["guarded_file"], TESTED["right_file"], examples)
    done = house.run_tests(*files, "-v", "-k", "v1/toy")
    assert done.returncode == 0, done.stdout
    for file in files:
        assert f"{file}::" in done.stdout


@pytest.mark.slow
def test_the_dashboard_and_the_alerts_need_the_toys(followed: Followed) -> None:
    house = followed.house
    patterns = ENDPOINT.step(4, "If it ranks, add its path to the {label} patterns of {alerts} and {dashboard}")
    tests = METRIC.step(2, "and a panel to {dashboard}. {file} fails for a metric without a panel.")
    files = (tests["file"], "tests/serving/observability/test_alerts.py")
    run = (*files, "-k", "every_metric_of_the_gateway or ranking_endpoint")
    without = house.run_tests(*run)
    assert "3 failed" in without.stdout, without.stdout
    assert "'privrank_toys_total'" in without.stdout
    assert "'/v1/toy'" in without.stdout

    house.replace(tests["dashboard"], '\n "panels": [', f'\n "panels": [{PANEL}')
    house.replace(patterns["dashboard"], "(rank|rerank|rank/batch)", "(rank|rerank|rank/batch|toy)")
    house.replace(patterns["alerts"], "|/v1/rerank", "|/v1/rerank|/v1/toy")
    done = house.run_tests(*run)
    assert done.returncode == 0, done.stdout
