"""Rankers and query groups for tests that score by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.architecture import StudentConfig
from trainer.data.batches import DatasetSplit
from trainer.data.preprocessing import Tensors
from trainer.export import litert
from trainer.models.ranker import Ranker
from trainer.pipeline.run import Run

SMALL: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 32, "hidden": [16]}


def lively(model: Ranker, spread: float = 0.3) -> Ranker:
    """The ranker with weights large enough that whatever enters it shows in the scores."""
    generator = np.random.default_rng(8)
    model.frozen = None  # the states of frozen layers are not those of the new weights
    model.set_weights([w + generator.normal(0.0, spread, w.shape).astype(w.dtype) for w in model.get_weights()])
    return model


def new_ranker(
    run: Run, *sees: str, dropout: float = 0.3, noise: float = 0.0, spread: float = 0.3, **changes: Any
) -> Ranker:
    """A lively ranker of the run's spec; `changes` are to the student's config, `spread` says how lively."""
    config = StudentConfig.model_validate({**SMALL, **changes}, strict=False)
    tf.keras.utils.set_random_seed(1)
    sizes = {name: len(values) for name, values in run.preprocessor.categories.items()}
    spec = run.config.spec
    with run.strategy.scope():
        model = Ranker(
            spec, config, run.pieces, sizes, tuple(spec[name] for name in sees), dropout=dropout, noise=noise
        )
        model(*inputs_of(run.train))
    return lively(model, spread)


def written_litert(run: Run, model: Ranker, directory: Path) -> litert.LiteRtExport:
    """What `write_litert` returns for a ranker of the run, with the run's settings."""
    example, cutoff = run.train.example["regular"], run.config.evaluation.cutoffs[0]
    return litert.write_litert(model, run.config.export, example, run.validation, cutoff, str(directory))


def inputs_of(split: DatasetSplit, groups: int = 8) -> tuple[Tensors, Tensors, tf.Tensor]:
    """regular, privileged and mask of a split's first groups, as one batch."""
    batch = next(iter(split.groups.padded_batch(groups)))
    return batch["regular"], batch["privileged"], batch["mask"]
