"""A recipe's `architecture`: students of other sizes in one run, trained, evaluated and exported."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from features.errors import InputError
from features.manifest import ModelManifest, parse_manifest
from tests.trainer.models.tiny_encoder import write_encoder
from tests.trainer.shop import NUMBERS, data_of, write_shop, write_task
from trainer.config import load_config
from trainer.pipeline.fit import fit
from trainer.pipeline.inputs import DataPaths
from trainer.pipeline.run import Run
from trainer.pipeline.students import load_student

STEPS = {"batch_groups": 8, "steps": 2, "evaluate_every": 2, "warmup_steps": 1}


def test_students_of_several_sizes_are_rows_of_one_table_and_the_chosen_one_is_exported(tmp_path: Path) -> None:
    write_shop(tmp_path, NUMBERS)
    recipes = [{"name": "wide"}, {"name": "narrow", "architecture": {"hidden": [3]}}]
    recipes.append({"name": "tuned", "starts_from": "narrow", "architecture": {"hidden": [3]}})
    sections = {"training": STEPS, "teachers": [], "recipes": recipes, "export": {"recipe": "tuned"}}
    evaluation = {"baseline": "wide", "bootstrap_samples": 100}
    config = load_config(str(write_task(tmp_path, NUMBERS, **sections, evaluation=evaluation)))
    data = data_of(tmp_path, NUMBERS)
    metrics = fit(config, data, str(tmp_path / "run"))
    assert {"wide", "narrow", "tuned"} <= set(metrics["models"])
    run = Run(config, data, str(tmp_path / "run"))
    widths = {name: load_student(run, recipe).hidden[0].units for name, recipe in config.recipes.items()}
    assert widths == {"wide": 16, "narrow": 3, "tuned": 3}
    (version,) = (tmp_path / "run" / "export").glob("[0-9]*")
    path = version / "assets.extra" / "manifest.json"
    assert parse_manifest(path.read_bytes(), str(path), ModelManifest).options["student"]["hidden"] == [3]
    shapes = [shape for _, shape in tf.train.list_variables(str(version / "variables" / "variables"))]
    assert [3, 1] in shapes  # the score of the narrow head


def test_a_head_without_the_encoder_stands_beside_a_pretrained_student(tmp_path: Path) -> None:
    write_shop(tmp_path)
    student = {
        "pretrained": str(write_encoder(tmp_path / "encoder")),
        "split_layers": 3,
        "freeze": 3,
        "hidden": [4],
        "max_item_tokens": 7,
        "max_context_tokens": 7,
    }
    recipes = [{"name": "student"}, {"name": "head_alone", "architecture": {"pretrained": None, "layers": 0}}]
    sections: dict[str, Any] = {"student": student, "training": STEPS, "teachers": [], "recipes": recipes}
    task = write_task(tmp_path, **sections, evaluation={"baseline": "student"}, export={"litert": []})
    data = DataPaths(str(tmp_path / "dataset"), None, str(tmp_path / "relevance.tsv"))
    config = load_config(str(task))
    metrics = fit(config, data, str(tmp_path / "run"))
    assert {"student", "head_alone", "zero_shot_cosine"} <= set(metrics["models"])
    run = Run(config, data, str(tmp_path / "run"))
    assert load_student(run, config.recipes["head_alone"]).encoder is None
    assert load_student(run, config.recipes["student"]).encoder is not None


def test_a_recipe_does_not_start_from_another_architecture(tmp_path: Path) -> None:
    recipes = [{"name": "student"}, {"name": "tuned", "starts_from": "student", "architecture": {"hidden": [3]}}]
    task = write_task(tmp_path, NUMBERS, recipes=recipes, teachers=[], evaluation={"baseline": "student"})
    with pytest.raises(InputError, match="'tuned' starts from 'student', which has another architecture"):
        load_config(str(task))
