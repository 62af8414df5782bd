"""API keys: which are accepted, what is made, and who can reach a gateway that has none."""

import hashlib
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

import pytest

from features.errors import InputError
from serving.api_keys import ApiKey, authenticate, bearer_secret, new_key, page_secret, require_role
from serving.problems import Problem
from serving.server.sockets import check_authentication
from serving.settings import Settings, settings_of
from tests.serving.processes import ROOT, environment


def key(name: str, secret: str) -> ApiKey:
    return ApiKey(name=name, sha256=hashlib.sha256(secret.encode()).hexdigest())


KEYS = [key("old", "first secret"), key("new", "zweiter Schlüssel")]


def name_of(authorization: str, keys: Sequence[ApiKey]) -> str:
    return authenticate(bearer_secret(authorization), keys)[0].name


def test_each_of_several_keys_is_identified_by_name() -> None:
    assert name_of("Bearer first secret", KEYS) == "old"
    assert name_of("bearer  zweiter Schlüssel ", KEYS) == "new"


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer first", "Bearer FIRST SECRET", "Basic first secret", "first secret"]
)
def test_any_other_header_is_401_with_the_expected_scheme(header: str) -> None:
    with pytest.raises(Problem) as refused:
        name_of(header, KEYS)
    assert (refused.value.status, refused.value.headers) == (401, {"WWW-Authenticate": "Bearer"})
    assert "secret" not in refused.value.detail
    with pytest.raises(Problem):
        name_of("Bearer first secret", [])


def test_a_hash_is_not_accepted_as_a_key() -> None:
    with pytest.raises(Problem):
        name_of(f"Bearer {KEYS[0].sha256}", KEYS)


def test_a_new_key_has_256_bits_and_fits_its_hash() -> None:
    secret, digest = new_key()
    assert len(secret) == 43  # 32 bytes in base 64
    assert name_of(f"Bearer {secret}", [ApiKey(name="a", sha256=digest)]) == "a"
    assert new_key()[0] != secret


def test_the_command_prints_a_valid_line_for_the_settings_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "serving.api_keys", "--name", "shop-2026"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(), check=True).stdout
    secret = re.findall(r"^  (\S+)$", said, re.MULTILINE)[0]
    line = re.findall(r"^  - .*$", said, re.MULTILINE)[0]
    (tmp_path / "gateway.yaml").write_text(f"api_keys:\n{line}\n")
    settings = settings_of({"export_dir": "x"}, str(tmp_path / "gateway.yaml"))
    assert name_of(f"Bearer {secret}", settings.api_keys) == "shop-2026"
    assert secret not in line
    assert settings.api_keys[0].roles == ("rank",)


def test_the_command_prints_the_roles_that_it_is_given() -> None:
    command = [sys.executable, "-m", "serving.api_keys", "--name", "x", "--role", "metrics", "--role", "admin"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(), check=True).stdout
    assert said.endswith("roles: [metrics, admin]}\n")


def test_a_key_without_roles_has_the_roles_rank_and_metrics() -> None:
    require_role("rank", [KEYS[0]])
    require_role("metrics", [KEYS[0]])
    with pytest.raises(Problem, match="rank") as refused:
        require_role("admin", [KEYS[0]])
    assert (refused.value.status, refused.value.slug) == (403, "forbidden")
    assert refused.value.detail.startswith("the API key has the roles metrics, rank; this path needs `admin`: ")


def test_a_key_listed_twice_has_the_roles_of_both_entries() -> None:
    twice = [key("a", "secret"), key("b", "secret").model_copy(update={"roles": ("admin",)})]
    for role in ("rank", "metrics", "admin"):
        require_role(role, authenticate("secret", twice))


def basic(user_and_key: str) -> str:
    return "Basic " + b64encode(user_and_key.encode()).decode()


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        (basic("anyone:first secret"), "first secret"),
        (basic(":zweiter Schlüssel"), "zweiter Schlüssel"),
        (basic("a:b:c"), "b:c"),
        ("Bearer first secret", "first secret"),
        (basic("first secret"), ""),
        ("Basic first secret", ""),
        ("Basic", ""),
        ("Basic /w==", ""),  # no UTF-8
        ("", ""),
    ],
)
def test_a_browser_sends_the_key_as_a_password(header: str, secret: str) -> None:
    assert page_secret(header) == secret


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("api_keys: [{name: a, sha256: HASH, roles: [metrics]}]", "none has the role rank"),
        ("api_keys: [{name: a, sha256: HASH, roles: []}]", r"api_keys\.0\.roles"),
        ("api_keys: [{name: a, sha256: HASH, roles: [root]}]", r"api_keys\.0\.roles\.0"),
        ("admin: {keys: [{name: a, sha256: HASH, roles: [rank]}]}", r"admin\.keys\.0\.roles"),
        ("pages: key", "pages is 'key': there are no api_keys that could open the pages"),
        ("pages: hidden", "pages is 'hidden'"),
    ],
)
def test_settings_that_lock_out_all_clients_or_have_no_effect_are_refused(
    tmp_path: Path, content: str, told: str
) -> None:
    (tmp_path / "gateway.yaml").write_text(content.replace("HASH", "a" * 64))
    with pytest.raises(InputError, match=told):
        settings_of({"export_dir": "x"}, str(tmp_path / "gateway.yaml"))


def test_a_settings_file_with_a_plain_key_or_a_flag_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("api_keys: [{name: a, sha256: the-key-itself}]")
    with pytest.raises(InputError, match=r"api_keys\.0\.sha256"):
        settings_of({"export_dir": "x"}, str(path))
    path.write_text("port: 80")
    with pytest.raises(InputError, match="unknown key 'port', expected one of api_keys, "):
        settings_of({"export_dir": "x"}, str(path))


def settings(**members: object) -> Settings:
    return Settings.model_validate({"export_dir": "x", **members})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1"])
def test_without_keys_a_loopback_host_is_allowed(host: str) -> None:
    check_authentication(settings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1"])
def test_without_keys_a_public_host_needs_allow_unauthenticated(host: str) -> None:
    with pytest.raises(
        InputError, match=rf"--host is {host}, .*no API key is set; expected api_keys.*give --allow-unauthenticated"
    ):
        check_authentication(settings(host=host))
    check_authentication(settings(host=host, allow_unauthenticated=True))
    check_authentication(settings(host=host, api_keys=(KEYS[0],)))
