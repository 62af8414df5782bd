"""Dockerfile and docker-compose.yml, as far as files tell: no container engine is needed here."""

import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from serving.settings import Settings, settings_of

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
STEPS = ("logs", "elwc", "vocabulary", "train")
INSTALLING = ("beam", "vocabulary", "trainer", "trainer-gpu", "serving")  # targets; each installs the lock of its name
ENTRYPOINTS = {
    "beam": ["python", "-m"],
    "trainer": ["python", "-m", "trainer"],
    "trainer-gpu": ["python", "-m", "trainer"],
    "serving": ["python", "-m", "serving"],
}
MODULES = (
    "simulator",
    "beam_jobs.build_elwc",
    "beam_jobs.build_vocabulary",
    "trainer",
    "serving",
    "serving.smoke_test",
    "serving.api_keys",
    "beam_jobs.compare_datasets",
)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@cache
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return document


@cache
def stages() -> dict[str, list[str]]:
    """The Dockerfile's stages: name -> instructions, continuation lines joined."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            found[match[2]] = [line]
        elif found and line and not line.startswith("#"):
            found[list(found)[-1]].append(line)
    return found


def instruction(stage: str, keyword: str) -> list[str]:
    """The arguments of a stage's only instruction of a kind, in exec form."""
    (line,) = [line for line in stages()[stage] if line.startswith(f"{keyword} ")]
    arguments = yaml.safe_load(line.removeprefix(f"{keyword} "))
    assert isinstance(arguments, list), f"{line}: expected the exec form, in brackets"
    return arguments


def builders() -> dict[str, str]:
    """Image -> the one service that builds it."""
    services = compose()["services"]
    found = [(service["image"], name) for name, service in services.items() if "build" in service]
    assert len(found) == len(dict(found)), f"{found}: expected one service that builds an image"
    return dict(found)


def container_command(service: str) -> list[str]:
    services = compose()["services"]
    builder = services[builders()[services[service]["image"]]]
    target = builder["build"]["target"]
    return [*ENTRYPOINTS["beam" if target == "vocabulary" else target], *services[service]["command"]]


def make_commands(target: str) -> list[list[str]]:
    """The Python commands that a Make target runs, `python` for the environment's own."""
    lines = run("make", "--dry-run", "--no-print-directory", target).stdout.splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith(".venv/bin/python -m ")]
    return [["python", *command[1:]] for command in commands if command[2] != "pip"]


def test_the_dockerfile_passes_the_linter():
    done = run(str(BIN / "hadolint"), "Dockerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_linter_notices_a_bad_dockerfile(tmp_path: Path):
    (tmp_path / "Dockerfile").write_text("FROM python\nRUN cd /srv && apt-get install curl\n")
    done = run(str(BIN / "hadolint"), str(tmp_path / "Dockerfile"))
    assert done.returncode == 1
    assert "DL3006" in done.stdout  # an image without a version


def test_the_compose_files_follow_the_compose_schema():
    schema = ("--builtin-schema", "vendor.compose-spec")
    done = run(str(BIN / "check-jsonschema"), *schema, *sorted(path.name for path in ROOT.glob("docker-compose*.yml")))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_notices_a_bad_compose_file(tmp_path: Path):
    text = (ROOT / "docker-compose.yml").read_text()
    (tmp_path / "docker-compose.yml").write_text(text.replace("service_completed_successfully", "service_done"))
    schema = ("--builtin-schema", "vendor.compose-spec")
    done = run(str(BIN / "check-jsonschema"), *schema, str(tmp_path / "docker-compose.yml"))
    assert done.returncode == 1
    assert "service_done" in done.stdout


def test_containers_run_exactly_what_make_demo_runs():
    demo = make_commands("demo")
    assert [container_command(step) for step in STEPS] == demo[: len(STEPS)]


def test_the_gateway_s_container_runs_what_make_serve_runs_but_listens_to_its_port_mapping():
    (serve,) = make_commands("serve")
    gateway = container_command("gateway")
    host = gateway.index("--host")
    assert gateway[host + 1] == "0.0.0.0"
    # who reaches the port is decided by what it is published to: this machine
    assert gateway[-1] == "--allow-unauthenticated"
    assert gateway[:host] + gateway[host + 2 : -1] == serve


def test_the_serving_image_s_default_command_refuses_to_answer_everyone():
    command = [*instruction("serving", "ENTRYPOINT"), *instruction("serving", "CMD")]
    assert "--host" in command  # in a container, nobody would reach loopback
    done = run(sys.executable, *command[1:])
    assert done.returncode == 2
    assert done.stderr.startswith("error: --host is 0.0.0.0, which other machines can reach, and no API key is set; ")
    assert "--allow-unauthenticated" in done.stderr
    assert done.stdout == ""  # it has not listened
    # all that Compose's demo adds is the consent
    assert compose()["services"]["gateway"]["command"] == [*instruction("serving", "CMD"), "--allow-unauthenticated"]


@pytest.mark.parametrize(("stage", "entrypoint"), ENTRYPOINTS.items())
def test_entry_points_are_modules_in_exec_form(stage: str, entrypoint: list[str]):
    assert instruction(stage, "ENTRYPOINT") == entrypoint
    assert stages()[stage][0] == f"FROM base AS {stage}"


def test_vocabulary_is_the_image_beam_and_tensorflow():
    assert stages()["vocabulary"][0] == "FROM beam AS vocabulary"
    assert not [line for line in stages()["vocabulary"] if line.startswith("ENTRYPOINT")]  # inherited


@pytest.mark.parametrize("stage", INSTALLING)
def test_the_lock_is_installed_with_hashes_and_nothing_else_is(stage: str):
    (install,) = [line for line in stages()[stage] if "pip install" in line]
    # without build isolation, the build tools of the base image build the source distributions, and none is fetched
    options = "--no-cache-dir --no-deps --require-hashes --no-build-isolation"
    assert install.endswith(f"pip install {options} -r locks/{stage}.txt")


@pytest.mark.parametrize("stage", INSTALLING)
def test_the_index_s_address_and_certificate_are_secrets_of_the_build(stage: str):
    (install,) = [line for line in stages()[stage] if "pip install" in line]
    assert "--mount=type=secret,id=pip.conf,target=/etc/pip.conf" in install
    assert "--mount=type=secret,id=index.pem" in install
    assert "required" not in install  # a public index needs neither


def test_only_the_locks_are_installed():
    assert len([line for lines in stages().values() for line in lines if "pip install" in line]) == len(INSTALLING)


def test_the_base_image_is_pinned_to_a_patch_release_and_can_be_pinned_to_a_digest():
    (base,) = re.findall(r"^ARG BASE=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", base)
    assert stages()["base"][0] == "FROM ${BASE} AS base"


@pytest.mark.parametrize("stage", INSTALLING)
def test_processes_are_not_root_and_cannot_change_the_code(stage: str):
    users = [line for line in stages()[stage] if line.startswith("USER ")]
    assert users[-1] == "USER 10001:10001"
    assert "--chown" not in " ".join(stages()[stage])


@pytest.mark.parametrize(
    ("stage", "rooms"),
    [
        ("base", []),
        ("beam", ["configs", "protos", "features", "simulator", "beam_jobs"]),
        ("vocabulary", []),  # those of beam
        ("trainer", ["configs", "protos", "features", "inference", "trainer"]),
        ("trainer-gpu", ["configs", "protos", "features", "inference", "trainer"]),
        ("serving", ["configs", "protos", "features", "inference", "serving"]),
    ],
)
def test_an_image_holds_only_its_lock_and_the_rooms_it_needs(stage: str, rooms: list[str]):
    copied = [line.split()[1] for line in stages()[stage] if line.startswith("COPY ")]
    assert copied == [*([f"locks/{stage}.txt"] if stage in INSTALLING else []), *rooms]


def test_the_build_context_holds_what_is_copied_and_nothing_more():
    ignore = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignore[0] == "*"
    copied = {line.split()[1] for lines in stages().values() for line in lines if line.startswith("COPY ")}
    assert {line.removeprefix("!") for line in ignore if line.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)


def test_each_step_waits_for_the_one_before():
    services = compose()["services"]
    assert list(services) == [*STEPS, "gateway"]
    before = None
    for name, service in services.items():
        expected = {before: {"condition": "service_completed_successfully"}} if before else None
        assert service.get("depends_on") == expected
        before = name


def test_one_service_builds_an_image_and_the_others_wait_for_it():
    services = compose()["services"]
    assert set(builders()) == {service["image"] for service in services.values()}
    for name, service in services.items():
        if "build" in service:
            assert "pull_policy" not in service  # it would be pulled, or built anew at each start
            continue
        assert service["pull_policy"] == "never"
        assert builders()[service["image"]] in before(name)


def before(service: str) -> set[str]:
    """The services that a service waits for, and those that they wait for."""
    waited_for = set(compose()["services"][service].get("depends_on", {}))
    return waited_for.union(*map(before, waited_for))


def test_a_stopped_gateway_has_the_time_that_draining_takes():
    defaults = Settings(export_dir="x")
    grace = compose()["services"]["gateway"]["stop_grace_period"]
    assert float(grace.removesuffix("s")) >= defaults.drain_seconds + defaults.finish_seconds + 1


@pytest.mark.parametrize("service", [*STEPS, "gateway"])
def test_containers_have_no_privileges(service: str):
    description = compose()["services"][service]
    assert description["read_only"] is True
    assert description["cap_drop"] == ["ALL"]
    assert description["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "devices", "user", "pid", "ipc"} & set(description)


def test_every_container_has_a_platform_and_limits():
    tf_serving = yaml.safe_load((ROOT / "docker-compose.tf-serving.yml").read_text())["services"]["model-server"]
    for description in (*compose()["services"].values(), tf_serving):
        assert description["platform"] == "linux/amd64"
        assert description["mem_limit"] == "${PRIVRANK_MEMORY:-8g}"
        assert description["pids_limit"] == 4096
        assert description["logging"] == {"driver": "local", "options": {"max-size": "10m", "max-file": "3"}}


@pytest.mark.parametrize("service", [*STEPS, "gateway"])
def test_containers_write_to_the_volume_alone(service: str):
    description = compose()["services"][service]
    assert all(volume.startswith("build:/privrank/build") for volume in description["volumes"])


def test_only_the_gateway_has_a_network_and_only_this_machine_reaches_it():
    services = compose()["services"]
    assert services["gateway"]["ports"] == ["127.0.0.1:8000:8000"]
    assert services["gateway"]["volumes"] == ["build:/privrank/build:ro"]
    for step in STEPS:
        assert services[step]["network_mode"] == "none"
        assert "ports" not in services[step]


def test_the_model_server_holds_the_demo_s_model_and_the_gateway_asks_it():
    services = yaml.safe_load((ROOT / "docker-compose.tf-serving.yml").read_text())["services"]
    server, gateway = services["model-server"], services["gateway"]["command"]
    plain = compose()["services"]["gateway"]["command"]
    assert gateway == [*plain, "--settings", "configs/tf_serving/gateway.yaml"]
    assert (server["read_only"], server["cap_drop"], "ports" in server) == (True, ["ALL"], False)
    settings = settings_of({"export_dir": plain[1]}, str(ROOT / gateway[-1]))
    assert (settings.backend, settings.tf_serving.address) == ("tf-serving", "model-server:8500")
    assert "--port=8500" in server["command"]
    [listed] = [argument for argument in server["command"] if "model_config_file" in argument]
    path = ROOT / listed.removeprefix("--model_config_file=/privrank/")
    [model] = text_format.Parse(path.read_text(), ModelServerConfig()).model_config_list.config
    task = yaml.safe_load((ROOT / "configs/product_search.yaml").read_text())
    assert (model.name, model.base_path) == (task["name"], f"/privrank/{plain[1]}")
    assert model.model_version_policy.latest.num_versions == settings.reloading.resident


def test_the_gpu_override_trains_on_every_gpu_and_changes_nothing_else():
    services = yaml.safe_load((ROOT / "docker-compose.gpu.yml").read_text())["services"]
    assert list(services) == ["train"]
    train = services["train"]
    assert train["build"]["target"] == "trainer-gpu"
    [device] = train["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    # compiled kernels are cached where the container may write
    assert "CUDA_CACHE_PATH=/privrank/build/" in " ".join(stages()["trainer-gpu"])


@contextmanager
def rest_api(answer: str) -> Iterator[int]:
    """An HTTP server that knows one model's state; yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/v1/models/product_search" else 404)
            self.end_headers()
            self.wfile.write(answer.encode() if self.path == "/v1/models/product_search" else b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_the_gateway_waits_until_the_model_server_has_the_model():
    services = yaml.safe_load((ROOT / "docker-compose.tf-serving.yml").read_text())["services"]
    server, gateway = services["model-server"], services["gateway"]
    assert gateway["depends_on"] == {"model-server": {"condition": "service_healthy"}}
    check = server["healthcheck"]["test"]
    assert check[:3] == ["CMD", "bash", "-c"]
    [port] = [argument.partition("=")[2] for argument in server["command"] if "rest_api_port" in argument]
    assert check[3].count(f"/{port}\n") == 1

    def checked(at: int) -> int:
        return run(*check[1:3], check[3].replace(port, str(at))).returncode

    states = {
        state: f'{{"model_version_status": [{{"version": "1",\n "state": "{state}"}}]}}'
        for state in ("AVAILABLE", "LOADING")
    }
    with rest_api(states["AVAILABLE"]) as available:
        assert checked(available) == 0
    with rest_api(states["LOADING"]) as loading:
        assert checked(loading) != 0
    assert checked(1) != 0  # nobody listens


def test_the_health_check_asks_whether_the_gateway_is_ready():
    (line,) = [line for line in stages()["serving"] if line.startswith("HEALTHCHECK")]
    command = yaml.safe_load(line[line.index("CMD") + 3 :])
    assert command[:2] == ["python", "-c"]
    assert "/readyz" in command[2]
    compile(command[2], "HEALTHCHECK", "exec")
    # nobody listens on port 1: the check must fail, not pass or hang
    assert run(sys.executable, "-c", command[2].replace("8000", "1")).returncode != 0


@pytest.mark.parametrize("module", MODULES)
def test_every_command_explains_itself_with_an_example(module: str):
    done = run(sys.executable, "-m", module, "--help")
    assert done.returncode == 0, done.stderr
    assert re.search(rf"python -m {module} .*--", done.stdout), "expected an example"


def test_every_module_that_make_and_compose_run_is_explained():
    commands = [*make_commands("demo"), *make_commands("serve"), *(container_command(step) for step in STEPS)]
    assert {command[2] for command in commands} <= set(MODULES)
