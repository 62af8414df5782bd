"""A student that starts from a pretrained encoder: trained, measured, exported, and served by both local backends."""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.models.tiny_encoder import write_encoder
from tests.trainer.shop import write_shop, write_task

STEPS = {"batch_groups": 8, "steps": 2, "evaluate_every": 2, "warmup_steps": 1}
FORMS: dict[str, dict[str, Any]] = {
    "late interaction": {"split_layers": 3, "freeze": 2},
    "cross-encoder": {"keep_layers": [0, 1]},
}


@pytest.fixture(scope="module", params=["late interaction", pytest.param("cross-encoder", marks=pytest.mark.slow)])
def fitted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], str]:
    """The export directory, the metrics, and what `fit` printed."""
    from trainer.config import load_config
    from trainer.pipeline.fit import fit
    from trainer.pipeline.inputs import DataPaths

    root = tmp_path_factory.mktemp("pretrained")
    write_shop(root)
    encoder = write_encoder(root / "encoder")
    task = write_task(
        root,
        student={
            "pretrained": str(encoder),
            "hidden": [16],
            "max_item_tokens": 7,
            "max_context_tokens": 7,
            **FORMS[request.param],
        },
        # a text teacher: the encoder in the other form, and what the student may not see
        teachers=[
            {"name": "click", "sees": ["click"], "architecture": {"pretrained": str(encoder), "keep_layers": [0]}}
        ],
        teacher_architecture={},
        training=STEPS,
        recipes=[{"name": "student", "teachers": ["click"]}],
        evaluation={"baseline": "student"},
    )
    with contextlib.redirect_stdout(io.StringIO()) as output:
        data = DataPaths(str(root / "dataset"), None, str(root / "relevance.tsv"))
        metrics = fit(load_config(str(task)), data, str(root / "run"))
    return root / "run/export", metrics, output.getvalue()


def test_the_encoders_own_ranking_is_a_row(fitted: tuple[Path, dict[str, Any], str]) -> None:
    row = fitted[1]["models"]["zero_shot_cosine"]
    assert row["kind"] == "reference"
    assert 0.0 < row["ndcg@8"]["value"] <= 1.0
    assert "zero-shot cosine" in fitted[2]


def test_both_backends_serve_the_student(fitted: tuple[Path, dict[str, Any], str]) -> None:
    from serving.backends.embedded import EmbeddedBackend
    from serving.backends.litert import LiteRtBackend
    from serving.exports.store import verified_copy
    from serving.settings import LiteRt

    with verified_copy(str(fitted[0]), 1) as model:  # hashes, operations and signatures
        backend = EmbeddedBackend(model)
        litert = LiteRtBackend(model, LiteRt(precision="float"), threads=1)
    assert model.manifest.litert is not None
    assert {"pretrained_0", "dataset", "student"} <= set(model.manifest.parents)
    titles = ["red sofa", "blue lamp table", "", "réd SOFAS x²", "sofa " * 30]
    inputs = {
        "query": np.array([b"red sofa"], object),
        "title": np.array([[title.encode() for title in titles]], object),
        "price": np.full((1, 5), 9.0, np.float32),
        "brand": np.array([[b"acme"] * 5], object),
        "picture": np.zeros((1, 5, 3), np.float32),
        "reviews": np.arange(5)[np.newaxis],
        "in_stock": np.ones((1, 5), bool),
    }
    count = np.array([5], np.int32)
    embedded = backend.score(inputs, count, 5.0)
    for _ in range(2):  # then from kept states
        np.testing.assert_allclose(litert.score(inputs, count, 5.0), embedded, atol=1e-4)
    assert np.unique(embedded.round(4)).size > 2
    if model.manifest.litert.split:
        assert litert.caches["states"].hits == 5


def test_privileged_features_do_not_reach_the_export(fitted: tuple[Path, dict[str, Any], str]) -> None:
    loaded = tf.saved_model.load(str(fitted[0] / "1"))
    _, inputs = loaded.signatures["rank"].structured_input_signature
    assert not {"click", "position", "purchase"} & set(inputs)
