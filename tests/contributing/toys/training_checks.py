"""The tests of the toys of `trainer`: a run whose task file names the toy loss, the toy metric and the toy key."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.shop import NUMBERS, data_of, write_shop, write_task
from trainer.config import load_config
from trainer.losses.distillation import objective_of
from trainer.losses.ranking import LOSSES
from trainer.pipeline.fit import fit

RECIPES: list[dict[str, Any]] = [
    {"name": "no_distillation"},
    {"name": "soft", "teachers": ["click"]},
    {"name": "hard", "teachers": ["click"], "hard_labels": True},
]


def test_a_run_trains_by_the_loss_and_the_key_and_measures_the_metric(tmp_path: Path) -> None:
    write_shop(tmp_path, NUMBERS)
    task = write_task(
        tmp_path,
        NUMBERS,
        teachers=[{"name": "click", "sees": ["click"]}],
        training={"loss": "toy_hinge", "batch_groups": 8, "steps": 2, "evaluate_every": 1, "warmup_steps": 0},
        evaluation={"metrics": ["ndcg", "toy_hits"], "cutoffs": [8, 100]},
        recipes=RECIPES,
        export={"recipe": "soft", "litert": []},
    )
    models = fit(load_config(str(task)), data_of(tmp_path, NUMBERS, relevance=False), str(tmp_path / "run"))["models"]
    kept = np.load(tmp_path / "run" / "metrics_per_group.npz", allow_pickle=False)
    for name in ("no_distillation", "soft", "hard", "random_order"):
        # every list is shorter than 100 items, and has one positive item or more
        assert models[name]["toy_hits@100"]["value"] >= 1.0
        assert models[name]["toy_hits@8"]["value"] == pytest.approx(kept[f"toy_hits@8/{name}"].mean(), rel=1e-6)


def test_the_key_reaches_the_teacher_loss(tmp_path: Path) -> None:
    teachers = [{"name": "click", "sees": ["click"]}]
    config = load_config(
        str(write_task(tmp_path, NUMBERS, teachers=teachers, recipes=RECIPES, export={"recipe": "soft"}))
    )
    logits, scores, mask = tf.constant([[2.0, -1.0]]), tf.constant([[0.5, 0.25]]), tf.constant([[True, True]])
    hard = objective_of(config.recipes["hard"], "toy_hinge").teacher_loss
    soft = objective_of(config.recipes["soft"], "toy_hinge").teacher_loss
    assert hard is not None
    assert soft is not None
    # labels 1 and 0: max(0, 1 - 0.5) + max(0, 1 + 0.25)
    assert hard(logits, scores, mask).numpy() == pytest.approx([1.75])
    assert soft(logits, scores, mask).numpy() == LOSSES["toy_hinge"](tf.sigmoid(logits), scores, mask).numpy()
