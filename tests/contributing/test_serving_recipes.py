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
    house.insert_at_end(metrics, "Metrics.__init__", '        self._toys = self._counter("toy", "Toys")')
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
