"""The recipe of an experiment, followed with a toy."""

import re
from pathlib import Path

from tests.contributing.house_copy import HouseCopy
from tests.contributing.recipe import recipes


def test_an_experiment_follows_the_recipe(tmp_path: Path) -> None:
    recipe, house = recipes()["An experiment"], HouseCopy(tmp_path / "house")
    written = recipe.step(
        1, "Write {module} ({pfd}, {sdr} or {rank_distil}) with an {name}, an {type} of {file}, and {settings}."
    )
    module = house.write_toy(written["module"], "toy_experiment")
    house.write(written["settings"], "numbers: [2, 3]\n")
    assert house.existing(written["file"])
    run = ("-m", "experiments", "toy", "--out", str(tmp_path / "out"))
    without_line = house.run(*run)
    assert without_line.returncode == 2
    assert "invalid choice: 'toy' (choose from 'linear'" in without_line.stderr

    registry = recipe.step(2, "Add the module to {registry} in {file}.")
    house.add_entry(registry["file"], registry["registry"], "toy")
    package = ".".join(module.relative_to(house.root).parent.parts)
    house.insert_before(registry["file"], registry["registry"], f"from {package} import toy")
    done = house.run(*run)
    assert done.stdout == f"1 of 1 claims held; wrote {tmp_path}/out/toy.md\n", done.stderr

    [page] = re.findall(r"\]\(([^)]+)\)", recipe.steps[3])
    head = "| name | what it reproduces |\n|---|---|\n"
    house.replace(page, head, f"{head}| `toy` | squares |\n")
    tests = house.run_tests("tests/experiments/test_main.py", "-k", "registered or help")
    assert tests.returncode == 0, tests.stdout
