"""API keys: which are accepted, what is made, and who can reach a gateway that has none."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from features.errors import InputError
from serving.keys import ApiKey, name_of, new_key
from serving.listening import refuse_strangers
from serving.problems import Problem
from serving.settings import Settings, settings_of
from tests.serving.processes import ROOT, environment


def key(name: str, secret: str) -> ApiKey:
    return ApiKey(name=name, sha256=hashlib.sha256(secret.encode()).hexdigest())


KEYS = [key("old", "first secret"), key("new", "zweiter Schlüssel")]


def test_each_of_several_keys_is_known_by_its_name() -> None:
    assert name_of("Bearer first secret", KEYS) == "old"
    assert name_of("bearer  zweiter Schlüssel ", KEYS) == "new"


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer first", "Bearer FIRST SECRET", "Basic first secret", "first secret"]
)
def test_anything_else_is_401_with_the_scheme_that_is_expected(header: str) -> None:
    with pytest.raises(Problem) as refused:
        name_of(header, KEYS)
    assert (refused.value.status, refused.value.headers) == (401, {"WWW-Authenticate": "Bearer"})
    assert "secret" not in refused.value.detail
    with pytest.raises(Problem):
        name_of("Bearer first secret", [])


def test_a_hash_is_no_key() -> None:
    with pytest.raises(Problem):
        name_of(f"Bearer {KEYS[0].sha256}", KEYS)


def test_a_new_key_has_256_bits_and_fits_its_hash() -> None:
    secret, digest = new_key()
    assert len(secret) == 43  # 32 bytes in base 64
    assert name_of(f"Bearer {secret}", [ApiKey(name="a", sha256=digest)]) == "a"
    assert new_key()[0] != secret


def test_the_command_prints_a_line_that_the_settings_file_takes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "serving.keys", "--name", "shop-2026"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(), check=True).stdout
    secret = re.findall(r"^  (\S+)$", said, re.MULTILINE)[0]
    line = re.findall(r"^  - .*$", said, re.MULTILINE)[0]
    (tmp_path / "gateway.yaml").write_text(f"api_keys:\n{line}\n")
    settings = settings_of({"export_dir": "x"}, str(tmp_path / "gateway.yaml"))
    assert name_of(f"Bearer {secret}", settings.api_keys) == "shop-2026"
    assert secret not in line


def test_a_settings_file_holds_hashes_and_nothing_that_a_flag_says(tmp_path: Path) -> None:
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
def test_without_keys_this_machine_may_ask(host: str) -> None:
    refuse_strangers(settings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1"])
def test_without_keys_other_machines_may_ask_only_when_that_is_said(host: str) -> None:
    with pytest.raises(InputError, match=r"no API key is set.*or say --without-keys"):
        refuse_strangers(settings(host=host))
    refuse_strangers(settings(host=host, without_keys=True))
    refuse_strangers(settings(host=host, api_keys=(KEYS[0],)))
