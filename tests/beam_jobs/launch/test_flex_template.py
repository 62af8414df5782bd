"""What a Flex Template tells Dataflow of the command, held against the command itself."""

import argparse
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.build_elwc import build_elwc_parser

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "beam_jobs/launch/dataflow.Dockerfile"


@pytest.fixture(scope="module")
def parameters() -> dict[str, dict[str, Any]]:
    told = json.loads((ROOT / "beam_jobs/launch/flex_template.json").read_text())
    assert set(told) == {"name", "description", "parameters"}
    return {parameter["name"]: parameter for parameter in told["parameters"]}


def test_its_parameters_are_the_command_s_options(parameters: dict[str, dict[str, Any]]) -> None:
    own = {
        action.dest: action for action in build_elwc_parser()._actions if not isinstance(action, argparse._HelpAction)
    }
    assert parameters.keys() == own.keys()
    for name, action in own.items():
        assert parameters[name]["helpText"] == action.help
        assert parameters[name].get("isOptional", False) is not action.required


def test_each_parameter_says_what_dataflow_s_form_shows(parameters: dict[str, dict[str, Any]]) -> None:
    for parameter in parameters.values():
        assert set(parameter) - {"isOptional"} == {"name", "label", "helpText", "regexes"}
        assert parameter["label"]
        assert all(re.compile(regex) for regex in parameter["regexes"])


def fits(parameter: dict[str, Any], value: str) -> bool:
    return all(re.search(regex, value) for regex in parameter["regexes"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("config", "configs/product_search.yaml"),  # the launcher's working directory is its own
        ("config", "gs://BUCKET/task.yaml"),
        ("input", "logs/events-*.jsonl.gz"),
        ("input", "gs://BUCKET/logs/a.jsonl gs://BUCKET/logs/b.jsonl"),
        ("products", "gs://BUCKET"),
        ("output", "gs://BUCKET/{locale}"),  # two pipelines
        ("output", "gs://BUCKET/"),
        ("date", "yesterday"),
    ],
)
def test_values_that_the_job_cannot_take_are_refused_by_the_form(
    parameters: dict[str, dict[str, Any]], name: str, value: str
) -> None:
    assert not fits(parameters[name], value)


def test_the_guide_s_launch_command_gives_what_is_needed_in_forms_that_fit(
    parameters: dict[str, dict[str, Any]],
) -> None:
    guide = (ROOT / "docs/engines.md").read_text()
    block = next(block for block in guide.split("\n\n") if "gcloud dataflow flex-template run" in block)
    words = shlex.split(block.replace("\\\n", " "))
    given = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--parameters")
    beam_s = PipelineOptions([f"--{name}={value}" for name, value in given.items() if name not in parameters])
    assert beam_s.get_all_options(drop_default=True, retain_unknown_options=True) == {
        "sdk_container_image": "REGION-docker.pkg.dev/PROJECT/REPOSITORY/privrank-dataflow:1"
    }
    assert {name for name, told in parameters.items() if not told.get("isOptional")} <= given.keys()
    assert all(fits(told, given[name]) for name, told in parameters.items() if name in given)


def test_the_image_s_beam_is_the_locked_one() -> None:
    locked = re.search(r"^apache-beam\[.*\]==(\S+)", (ROOT / "locks/beam.txt").read_text(), re.M)
    image = re.search(r"^FROM apache/beam_python3\.11_sdk:(\S+)", DOCKERFILE.read_text(), re.M)
    assert locked
    assert image
    assert image[1] == locked[1]


def test_every_base_image_has_a_default() -> None:
    text = DOCKERFILE.read_text()
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.M))
    named = re.findall(r"^FROM (\S+)", text, re.M)
    assert named
    for image in named:
        variable = re.fullmatch(r"\$\{(\w+)\}", image)
        assert ":" in (defaults[variable[1]] if variable else image)  # a tag


def test_the_image_runs_the_command_as_a_file() -> None:
    (command,) = re.findall(r"FLEX_TEMPLATE_PYTHON_PY_FILE=/privrank/(\S+)", DOCKERFILE.read_text())
    environment = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, str(ROOT / command), "--help"], cwd="/", env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"--config CONFIG" in done.stdout


def test_hadolint_finds_nothing() -> None:
    done = subprocess.run([Path(sys.executable).parent / "hadolint", DOCKERFILE], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
