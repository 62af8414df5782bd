"""The recipe of a log format, followed with a toy."""

from pathlib import Path

import yaml

from tests.contributing.house_copy import HouseCopy
from tests.contributing.recipe import recipes
from tests.features.specs import DEMO


def test_a_log_format_follows_the_recipe(tmp_path: Path) -> None:
    recipe, house = recipes()["A log format"], HouseCopy(tmp_path / "house")
    new = recipe.step(1, "Write {file}: functions that turn a record into events")
    house.existing(recipe.step(1, "and a {reader} ({file}) that holds them.")["file"])
    house.write_toy(new["file"], "toy_log")
    registry = recipe.step(2, "Add a line to {registry} in {file}. Task files name it in {setting}.")
    section, key = registry["setting"].split(".")
    task = tmp_path / "task.yaml"
    task.write_text(yaml.safe_dump({"name": "toy", "seed": 1, "features": DEMO, section: {key: "toy"}}))

    flags = ("--config", str(task), "--input", "toy.jsonl", "--output", str(tmp_path / "dataset"))
    without_line = house.run("-m", "beam_jobs.build_elwc", *flags)
    assert without_line.returncode == 2
    assert f"{registry['setting']} is 'toy': expected one of native, ubi, ga4" in without_line.stderr

    house.add_entry(registry["file"], registry["registry"], '"toy": TOY')
    house.insert_before(registry["file"], registry["registry"], "from beam_jobs.sources.toy_log import TOY")
    tests = house.write_toy(recipe.step(3, "Test it in {file}: every event gets one fate")["file"], "log_checks")
    done = house.run_tests(str(tests))
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
