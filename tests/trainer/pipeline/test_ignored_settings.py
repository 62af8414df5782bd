"""A setting that no model would read is refused, with its value, what is expected and the remedy."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from features.errors import InputError
from tests.trainer.shop import FEATURES, NUMBERS, write_task
from trainer.config import load_config
from trainer.recipes import RankDistilConfig, settings_of_loss

TEACHERS = [{"name": "position", "sees": ["position"]}, {"name": "click", "sees": ["click"]}]
BASELINE = {"name": "no_distillation"}
TEXTS = {name: fields for name, fields in FEATURES.items() if fields["type"] in ("text", "bool")} | {
    "in_stock": {**FEATURES["in_stock"], "role": "id"}
}
Sections = dict[str, Any]


def with_teacher(**fields: Any) -> Sections:
    return {"teachers": [{"name": "position", "sees": ["position"], **fields}, TEACHERS[1]]}


def with_recipe(**fields: Any) -> Sections:
    return {"recipes": [BASELINE, {"name": "student", "teachers": ["click"]}, {"name": "tried", **fields}]}


IGNORED: dict[str, tuple[Sections, str]] = {
    "a recipe's precision": (
        with_recipe(training={"precision": "mixed_bfloat16"}),
        "recipes: 'tried' training.precision is 'mixed_bfloat16', expected precision in `training:` alone",
    ),
    "a recipe's devices": (with_recipe(training={"devices": "cpu"}), "expected devices in `training:` alone"),
    "a recipe's cache": (with_recipe(training={"cache": "none"}), "expected cache in `training:` alone"),
    "the teachers' precision": (
        {"teacher_training": {"precision": "mixed_bfloat16"}},
        "teacher_training.precision is 'mixed_bfloat16', expected",
    ),
    "a teacher's cache": (with_teacher(training={"cache": "none"}), "teachers: 'position' training.cache is 'none'"),
    "the teachers' tokens": (
        {"teacher_architecture": {"layers": 0, "max_item_tokens": 8}},
        "teacher_architecture.max_item_tokens is 8, expected max_item_tokens in `student:` alone",
    ),
    "a teacher's tokens": (
        with_teacher(architecture={"max_context_tokens": 4}),
        "teachers: 'position' architecture.max_context_tokens is 4, expected",
    ),
    "layers without titles": (
        {"features": NUMBERS, "student": {"layers": 1}},
        "student.layers is 1, expected 0: no regular feature of the items is a text",
    ),
    "a recipe's tokens": (
        with_recipe(architecture={"max_item_tokens": 8}),
        "recipes: 'tried' architecture.max_item_tokens is 8, expected max_item_tokens in `student:` alone",
    ),
    "a recipe's width without layers": (
        with_recipe(architecture={"layers": 0, "width": 32}),
        "recipes: 'tried' architecture.width is 32, but the model has no transformer",
    ),
    "split layers without layers": (
        {"student": {"layers": 0, "split_layers": 1}},
        "student.split_layers is 1, expected 0 beside `layers: 0`",
    ),
    "a pretrained encoder without texts": (
        with_teacher(sees_regular=False, architecture={"pretrained": "models/encoder"}),
        "teachers: 'position' architecture.pretrained is 'models/encoder', but the model has no transformer",
    ),
    "a width without layers": (
        with_teacher(architecture={"layers": 0, "width": 32}),
        "teachers: 'position' architecture.width is 32, but the model has no transformer",
    ),
    "layers of a teacher without titles": (
        with_teacher(sees_regular=False, architecture={"layers": 2}),
        "teachers: 'position' architecture.layers is 2, expected 0",
    ),
    "a category's width without one": (
        with_teacher(sees_regular=False, architecture={"category_width": 4}),
        "category_width is 4, but the model sees no category",
    ),
    "noise without numbers": (
        {"features": TEXTS, "teachers": [TEACHERS[1]], **with_recipe(training={"input_noise": 0.1})},
        "recipes: 'tried' has training.input_noise 0.1, expected 0",
    ),
    "values to impute without a teacher": (
        {"teachers": [], "recipes": [BASELINE, {"name": "student"}], "evaluation": {"impute": ["zero"]}},
        "evaluation.impute is ['zero'], expected none",
    ),
    "a teacher's loss without teachers": (with_recipe(teacher_loss="mse"), "so nothing uses teacher_loss"),
    "targets without teachers": (with_recipe(targets={"temperature": 2.0}), "so nothing uses targets"),
    "RankDistil without teachers": (with_recipe(rank_distil={"loss": "coupled"}), "so nothing uses rank_distil"),
    "teachers without weight": (
        with_recipe(teachers=["click"], alpha=1.0),
        "alpha 1.0 leaves nothing to teachers ['click']: lower it",
    ),
    "groups of a data loss without weight": (
        with_recipe(teachers=["click"], alpha=0.0, data_loss_groups="all"),
        "data_loss_groups 'all' has no effect with alpha 0",
    ),
    "how an average is trained": (
        with_recipe(averages=["student"], training={"steps": 3}, seed=2),
        "averages ['student'] trains nothing: remove seed, training",
    ),
    "a temperature of affine targets": (
        with_recipe(teachers=["click"], targets={"transform": "affine", "temperature": 2.0}, teacher_loss="mse"),
        "the transform 'affine' does not use temperature",
    ),
    "an offset of probabilities": (
        with_recipe(teachers=["click"], targets={"offset": 1.0}),
        "the transform 'probability' does not use offset",
    ),
    "a margin without a hinge": (
        with_recipe(teachers=["click"], rank_distil={"loss": "pairwise_logistic_logistic", "margin": 2.0}),
        "the loss 'pairwise_logistic_logistic' does not use margin",
    ),
    "places of an order that is not drawn": (
        with_recipe(teachers=["click"], rank_distil={"loss": "pairwise_hinge_hinge", "places": 3}),
        "the loss 'pairwise_hinge_hinge' does not use places",
    ),
}


@pytest.mark.parametrize(("sections", "complaint"), IGNORED.values(), ids=IGNORED)
def test_a_setting_without_effect_is_refused(tmp_path: Path, sections: Sections, complaint: str) -> None:
    task = write_task(tmp_path, **{"features": FEATURES, **sections})
    with pytest.raises(InputError) as refused:
        load_config(str(task))
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    "sections",
    [
        {"student": {"layers": 2, "split_layers": 1}, "teacher_architecture": {"layers": 0}},
        with_teacher(sees_regular=False, architecture={"hidden": [8]}),
        with_recipe(teachers=["click"], alpha=0.0),
        with_recipe(averages=["student"]),
        {"student": {"layers": 0}, "training": {"devices": "auto", "cache": "none", "precision": "float32"}},
    ],
    ids=["teachers inherit split layers", "a blind teacher", "teachers alone", "an average", "settings of the run"],
)
def test_a_setting_that_has_an_effect_or_is_inherited_is_not(tmp_path: Path, sections: Sections) -> None:
    load_config(str(write_task(tmp_path, **sections)))


def test_a_task_that_extends_another_may_take_its_layers_away(tmp_path: Path) -> None:
    write_task(tmp_path)
    child = tmp_path / "child.yaml"
    child.write_text(yaml.safe_dump({"extends": "task.yaml", "student": {"layers": 0}}))
    assert load_config(str(child)).student.layers == 0


def test_each_loss_of_rank_distil_takes_the_knobs_that_it_uses() -> None:
    defaults = {name: field.default for name, field in RankDistilConfig.model_fields.items() if name != "loss"}
    losses = RankDistilConfig.model_fields["loss"].annotation.__args__  # type: ignore[union-attr]
    for loss in losses:
        RankDistilConfig(loss=loss, **{name: defaults[name] for name in settings_of_loss(loss)})
    assert set().union(*(settings_of_loss(loss) for loss in losses)) == set(defaults)


@pytest.mark.parametrize("devices", ["gpu", "all_gpus"])
def test_a_gpu_that_is_not_there_is_refused(devices: str) -> None:
    import tensorflow as tf

    from trainer.training.fit_ranker import strategy_of

    if tf.config.list_logical_devices("GPU"):
        pytest.skip("this machine has a GPU")
    with pytest.raises(
        InputError, match=f"training.devices is '{devices}', expected a GPU, of which TensorFlow finds none"
    ):
        strategy_of(devices)
