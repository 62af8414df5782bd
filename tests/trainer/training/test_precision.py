"""Training in bfloat16: every kind of encoder trains a step, and its scores are near those of float32."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.models.tiny_encoder import write_encoder
from tests.trainer.shop import data_of, write_shop, write_task
from trainer.config import load_config
from trainer.pipeline.fit import train_and_evaluate
from trainer.pipeline.run import Run
from trainer.training.fit_ranker import score_batches

STEPS = {"batch_groups": 8, "steps": 2, "evaluate_every": 2, "warmup_steps": 1, "precision": "mixed_bfloat16"}
LIMITS = {"hidden": [8], "max_item_tokens": 7, "max_context_tokens": 7}
SCRATCH = {**LIMITS, "layers": 2, "width": 16, "heads": 2, "feed_forward": 32, "split_layers": 1}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Path]:
    write_shop(tmp_path)
    write_encoder(tmp_path / "encoder")
    yield tmp_path
    tf.keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(None, id="from scratch"),
        pytest.param({"keep_layers": [0, 1]}, id="cross-encoder"),
        pytest.param({"split_layers": 3, "freeze": 2}, id="late interaction"),
    ],
)
def test_a_student_trains_in_bfloat16(shop: Path, form: dict[str, Any] | None) -> None:
    student = SCRATCH if form is None else {**LIMITS, "pretrained": str(shop / "encoder"), **form}
    sections = {
        "student": student,
        "teachers": [],
        "recipes": [{"name": "student"}],
        "evaluation": {"baseline": "student"},
    }
    data = data_of(shop) if form is None else replace(data_of(shop), vocabulary=None)
    config = load_config(str(write_task(shop, training=STEPS, **sections)))
    run = Run(config, data, str(shop / "run"))
    metrics = train_and_evaluate(run)
    assert 0.0 < metrics["models"]["student"]["ndcg@8"]["value"] <= 1.0
    halved = score_batches(run.trained[f"{run.workdir}/students/student"], run.testing).scores
    exact = Run(
        load_config(str(write_task(shop, training={**STEPS, "precision": "float32"}, **sections))),
        data,
        str(shop / "run"),
    )
    same_weights = exact.load_ranker(f"{run.workdir}/students/student")
    expected = score_batches(same_weights, exact.testing).scores
    assert np.abs(halved - expected).max() < 0.05 * np.abs(expected).max()  # bfloat16 has 8 bits of precision
