"""The trainer's sections: what they mean when they are left out."""

from pathlib import Path
from typing import Any

import pytest

from features.errors import InputError
from features.task import parse
from tests.trainer.shop import write_shop, write_task
from trainer.config import load_config
from trainer.recipes import Recipe

DEMO = Path(__file__).parents[2] / "configs" / "product_search.yaml"


@pytest.mark.parametrize(
    ("recipe", "alpha"),
    [
        (Recipe(name="plain"), 1.0),
        (Recipe(name="distilled", teachers=("click",)), 0.5),
        (Recipe(name="heavy", teachers=("click",), alpha=0.9), 0.9),
        (Recipe(name="teachers_alone", teachers=("click",), alpha=0.0), 0.0),
    ],
)
def test_alpha_is_half_with_teachers_and_one_without(recipe: Recipe, alpha: float) -> None:
    assert recipe.data_weight == alpha


def test_a_teacher_is_trained_as_the_student_but_for_what_the_teachers_and_it_alone_override(tmp_path: Path) -> None:
    write_shop(tmp_path)
    teachers = [{"name": "click", "sees": ["click"]}, {"name": "pairs", "sees": [], "training": {"loss": "rank_net"}}]
    recipes = [{"name": "no_distillation"}, {"name": "student"}]
    overrides = {"training": {"steps": 7, "batch_groups": 3}, "teacher_training": {"steps": 5}}
    config = load_config(str(write_task(tmp_path, teachers=teachers, recipes=recipes, **overrides)))
    click, pairs = (config.teacher_training[name] for name in ("click", "pairs"))
    assert (config.training.steps, click.steps, pairs.steps) == (7, 5, 5)
    assert config.training.batch_groups == click.batch_groups == pairs.batch_groups == 3
    assert (config.training.loss, click.loss, pairs.loss) == ("rank_bce", "rank_bce", "rank_net")


def test_a_teacher_is_built_as_the_student_but_for_what_the_teachers_and_it_alone_override(tmp_path: Path) -> None:
    write_shop(tmp_path)
    teachers = [
        {"name": "click", "sees": ["click"]},
        {"name": "self", "sees": [], "architecture": {"layers": 1}},
    ]
    overrides = {
        "teacher_architecture": {"layers": 0, "hidden": [8]},
        "recipes": [{"name": "student", "teachers": ["self"]}],
    }
    names = {"evaluation": {"baseline": "student"}}
    config = load_config(str(write_task(tmp_path, teachers=teachers, **overrides, **names)))
    built = {name: (a.layers, a.hidden, a.width) for name, a in config.teacher_architecture.items()}
    assert built == {"click": (0, (8,), 16), "self": (1, (8,), 16)}
    assert (config.student.layers, config.student.hidden) == (1, (16,))


@pytest.mark.parametrize(
    ("recipe", "complaint"),
    [
        ({"teacher_weights": [1, 1]}, "expected one number for each of teachers"),
        ({"teacher_weights": [1, -1, 1]}, "greater than or equal to 0"),
        ({"teacher_weights": [0, 0, 0]}, "not all 0"),
        ({"teacher_weights": "heavy"}, "valid array"),
    ],
)
def test_weights_that_do_not_fit_the_teachers_are_refused(recipe: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        parse({"name": "student", "teachers": ["position", "click", "add"], **recipe}, "recipes.0", Recipe)


def test_every_task_file_of_the_project_is_valid() -> None:
    for path in DEMO.parent.glob("*.yaml"):
        load_config(str(path))
