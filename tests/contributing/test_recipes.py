"""Every path, name and link of the recipes exists, and a wrong one would fail the tests that follow them."""

import ast
import re
from pathlib import Path

import pytest

from tests.contributing.house_copy import HouseCopy, defined_by
from tests.contributing.recipe import CONTRIBUTING, ROOT, Recipe, recipes

PATH = re.compile(r"[\w/]+/[\w.]*\w")
NAME = re.compile(r"_*[A-Za-z]\w*")
COLLECTIONS = """
from typing import Literal

A: dict[str, list[int]] = {
    "é": [1],
    "b": [2],
}
B = Literal["x", "y"]
C = {name: 1 for name in (
    "p",
    "q",
)}
D = [3]
"""
NOT_OURS = {"curl", "route"}  # a command, and a label in a query


def spans(recipe: Recipe) -> set[str]:
    return set(re.findall(r"`([^`]+)`", recipe.text))


def files_of(path: str) -> list[Path]:
    """The files of a path in a recipe, where NAME and PAPER stand for any."""
    return list(ROOT.glob(re.sub("NAME|PAPER", "*", path)))


def unknown(recipe: Recipe) -> set[str]:
    """The paths that do not exist, and the names that are neither defined in a file of the others nor its folder's."""
    paths = {span for span in spans(recipe) if PATH.fullmatch(span)}
    files = [file for path in paths for file in files_of(path)]
    known = {name for file in files for name in (*names_in(file), file.parent.name)}
    names = {span for span in spans(recipe) - NOT_OURS if NAME.fullmatch(span)}
    prefixes = {name for name in names if name.endswith("_") and any(each.startswith(name) for each in known)}
    return {path for path in paths if not files_of(path)} | names - known - prefixes


def names_in(path: Path) -> set[str]:
    if path.suffix != ".py":
        return set()
    return {name for node in ast.parse(path.read_text()).body for name in defined_by(node)}


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("recipe", recipes().values(), ids=list(recipes()))
def test_every_path_name_and_link_of_a_recipe_exists(recipe: Recipe) -> None:
    assert recipe.steps
    assert not unknown(recipe)
    for page, anchor in re.findall(r"\]\(([\w/.]+)#?([\w-]*)\)", recipe.text):
        assert not anchor or anchor in anchors(ROOT / page), f"{page}#{anchor}"


def test_an_unknown_path_or_name_would_be_noticed() -> None:
    text = "1. Add a line to `LOSSES`, `LOSES`, `_re` or `_none_` in `trainer/losses/ranking.py` and to `trainer/x.py`."
    assert unknown(Recipe("A toy", text)) == {"LOSES", "_re", "_none_", "trainer/x.py"}


def test_a_step_with_other_words_fails_with_both_sentences() -> None:
    recipe = Recipe("A toy", "\n1. Write the function in\n   `a/b.py`.\n2. Test it in `c.py`.\n")
    assert recipe.steps == ("Write the function in `a/b.py`.", "Test it in `c.py`.")
    assert recipe.step(1, "the function in {file}.") == {"file": "a/b.py"}
    with pytest.raises(
        AssertionError, match=r"step 2 of 'A toy' is 'Test it in `c.py`.', expected 'Add it to {file}.'"
    ):
        recipe.step(2, "Add it to {file}.")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("trainer/losses/ranking.py", "trainer/losses/rank.py", "the file trainer/losses/rank.py, which the project"),
        ("`LOSSES`", "`ALL_LOSSES`", "names ALL_LOSSES in trainer/losses/ranking.py, which does not define it"),
    ],
)
def test_a_wrong_path_or_name_in_a_recipe_fails(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    recipe = recipes(CONTRIBUTING.read_text().replace(right, wrong))["A ranking loss"]
    file = recipe.step(1, "Write the function in {file}, with")["file"]
    registry = recipe.step(2, "Add a line to {registry} in the same file")["registry"]
    with pytest.raises(AssertionError, match=message):
        HouseCopy(tmp_path).add_entry(file, registry, '"toy": toy')


def test_a_wrong_folder_in_a_recipe_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="the folder of beam_jobs/readers/toy_log"):
        HouseCopy(tmp_path).write("beam_jobs/readers/NAME_log.py", "")


def test_an_entry_goes_behind_the_last_one_of_any_collection(tmp_path: Path) -> None:
    house = HouseCopy(tmp_path)
    house.write("docs/registries.py", COLLECTIONS)
    for name, entry in (("A", '"c": [3]'), ("B", '"z"'), ("C", "'r'"), ("D", "4")):
        house.add_entry("docs/registries.py", name, entry)
    printed = house.run("-c", "from docs.registries import *; print(A, B.__args__, C, D)").stdout
    assert printed == "{'é': [1], 'b': [2], 'c': [3]} ('x', 'y', 'z') {'p': 1, 'q': 1, 'r': 1} [3, 4]\n"
