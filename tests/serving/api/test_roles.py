"""Roles of keys, and access to the pages by the setting `pages`."""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.serving.api.test_bad_requests import problem_of
from tests.serving.operated import hashed
from tests.serving.processes import GatewayProcess, bearer

SOFAS = {"query": "blue sofa", "items": ["oak table", "red sofa"]}
PAGES = ("/", "/docs", "/openapi.json")
KEYS = {"shop": ["rank"], "prometheus": ["metrics"], "operator": ["admin"], "all": ["rank", "metrics", "admin"]}
OLD = "a key without roles"
SETTINGS = {
    "pages": "key",
    "api_keys": [*(hashed(name, name) | {"roles": roles} for name, roles in KEYS.items()), hashed("old", OLD)],
    "admin": {"port": 0},
}


@dataclass(frozen=True)
class Guarded:
    """A gateway whose keys have roles, and the address of its administration."""

    gateway: GatewayProcess
    admin: str

    def ask(self, kind: str, key: str) -> httpx.Response:
        headers = bearer(key) if key else {}
        if kind == "admin":
            return httpx.get(f"{self.admin}/admin/versions", headers=headers, timeout=60)
        if kind == "rank":
            return httpx.post(f"{self.gateway.address}/v1/rank", json=SOFAS, headers=headers, timeout=60)
        return httpx.get(f"{self.gateway.address}/{kind}", headers=headers, timeout=60)


@pytest.fixture(scope="module")
def guarded(shop_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    settings = tmp_path_factory.mktemp("roles") / "gateway.yaml"
    settings.write_text(yaml.safe_dump(SETTINGS))
    with GatewayProcess(shop_export, settings) as gateway:
        with gateway.admin("operator") as admin:
            address = str(admin.base_url)
        yield Guarded(gateway.wait_until_ready(), address)


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [
        ("rank", {"shop", "all", OLD}),
        ("v2", {"shop", "all", OLD}),
        ("metrics", {"prometheus", "all", OLD}),
        ("admin", {"operator", "all"}),
        ("docs", {"shop", "all", OLD}),
    ],
)
def test_a_key_gives_access_to_the_paths_of_its_roles_only(guarded: Guarded, kind: str, allowed: set[str]) -> None:
    for key in (*KEYS, OLD):
        answer = guarded.ask(kind, key)
        if key in allowed:
            assert answer.status_code == 200, key
        else:
            role = {"metrics": "metrics", "admin": "admin"}.get(kind, "rank")
            assert f"this path needs `{role}`" in problem_of(answer, 403, "forbidden")["detail"]
    for stranger in ("", "guessed"):
        problem_of(guarded.ask(kind, stranger), 401, "unauthorized")


def test_a_refused_role_is_logged_with_the_keys_name(guarded: Guarded) -> None:
    headers = bearer("prometheus") | {"X-Request-ID": "curious"}
    httpx.post(f"{guarded.gateway.address}/v1/rank", json=SOFAS, headers=headers, timeout=60)
    line = guarded.gateway.wait_for_log("request", request_id="curious")
    assert (line["key"], line["problems"]) == ("prometheus", ["forbidden"])


@pytest.mark.parametrize("path", PAGES)
def test_pages_behind_a_key_open_in_a_browser(guarded: Guarded, path: str) -> None:
    refused = httpx.get(f"{guarded.gateway.address}{path}")
    problem_of(refused, 401, "unauthorized")
    assert refused.headers["www-authenticate"] == 'Basic realm="PrivRank", charset="UTF-8"'
    password = {"Authorization": "Basic " + b64encode(b"anyone:shop").decode()}
    assert httpx.get(f"{guarded.gateway.address}{path}", headers=password).status_code == 200
    assert httpx.get(f"{guarded.gateway.address}/problems/forbidden").status_code == 200


@pytest.fixture(scope="module")
def without_pages(shop_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    settings = tmp_path_factory.mktemp("without-pages") / "gateway.yaml"
    settings.write_text(yaml.safe_dump({"pages": "off"}))
    with GatewayProcess(shop_export, settings) as gateway:
        yield gateway.wait_until_ready()


def test_disabled_pages_are_404_and_no_page_links_to_them(without_pages: GatewayProcess) -> None:
    for path in PAGES:
        problem_of(without_pages.http.get(path), 404, "not-found")
    assert without_pages.post(SOFAS).status_code == 200
    explained = without_pages.http.get("/problems/overloaded")
    assert explained.status_code == 200
    assert 'href="/"' not in explained.text
    assert "/docs" not in explained.text


def cpu_seconds(gateway: GatewayProcess, path: str, times: int = 300) -> float:
    """CPU time of the gateway for so many requests of a path."""

    def used() -> float:
        fields = Path(f"/proc/{gateway.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100  # user and system time, in hundredths of a second

    before = used()
    for _ in range(times):
        assert gateway.http.get(path).status_code == 200
    return used() - before


@pytest.mark.parametrize("path", PAGES)
def test_a_page_costs_no_more_than_a_file_once_it_was_rendered(shop: GatewayProcess, path: str) -> None:
    shop.http.get(path)
    plain = min(cpu_seconds(shop, "/playground/page.css") for _ in range(2))
    assert min(cpu_seconds(shop, path) for _ in range(2)) < 2 * plain + 0.1, f"a file: {plain} s"


def test_pages_follow_the_versions_in_memory(tmp_path: Path) -> None:
    from tests.serving import exported_models

    exported_models.export(tmp_path, version=1)
    settings: dict[str, Any] = {"reloading": {"every_seconds": 0.1}}
    (tmp_path / "gateway.yaml").write_text(yaml.safe_dump(settings))
    with GatewayProcess(tmp_path, tmp_path / "gateway.yaml") as gateway:
        gateway.wait_until_ready()
        assert "version 1</span>" in gateway.http.get("/docs").text
        exported_models.export(tmp_path, version=2)
        gateway.wait_for_log("serving", version=2)
        assert "version 2</span>" in gateway.http.get("/docs").text
        assert "<option>1</option>" in gateway.http.get("/").text
