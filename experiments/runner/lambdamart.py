"""LightGBM's LambdaMART on a run's regular features, the usual baseline on LETOR sets."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from features.errors import InputError
from trainer.data.batches import DatasetSplit
from trainer.evaluation.metrics import Floats, ndcg
from trainer.pipeline.run import Run

try:
    import lightgbm
except (ImportError, OSError) as problem:  # OSError: a system library is missing
    raise InputError(
        f"cannot load LightGBM ({problem}), expected it with the development requirements, and the system's OpenMP: "
        "run `make setup`, and install libgomp1 (Debian, Ubuntu) or libgomp (Fedora)"
    ) from None


class Rows(NamedTuple):
    """A split's positive groups, one row a document."""

    features: NDArray[np.float32]  # [documents, regular features]
    labels: Floats  # [documents]
    sizes: NDArray[np.int64]  # [groups]

    def by_group(self, values: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """[documents] -> [groups, documents], 0 on padding, and the mask."""
        mask = np.arange(self.sizes.max()) < self.sizes[:, None]
        padded = np.zeros(mask.shape)
        padded[mask] = values
        return padded, mask


def ndcg_of_lambdamart(run: Run, parameters: dict[str, Any]) -> dict[str, Floats]:
    """Trains on the positive groups, stops by the validation split, and ranks the test split's positive groups.

    parameters: LightGBM's, with `rounds` (the maximum) and `patience` (rounds without a better validation NDCG).
    Returns metric -> [groups], in the order of `positive_test_groups`.
    """
    rounds, patience = parameters["rounds"], parameters["patience"]
    given = {k: v for k, v in parameters.items() if k not in ("rounds", "patience")}
    train, valid, test = (positive_rows(run, split) for split in (run.train, run.valid, run.test))
    training = lightgbm.Dataset(train.features, train.labels, group=train.sizes)
    booster = lightgbm.train(
        {
            "objective": "lambdarank",
            "metric": "ndcg",
            "eval_at": [run.config.evaluation.cutoffs[0]],
            "num_threads": 1,
            "deterministic": True,
            "seed": run.config.seed,
            "verbosity": -1,
            **given,
        },
        training,
        num_boost_round=rounds,
        valid_sets=[training.create_valid(valid.features, valid.labels, group=valid.sizes)],
        callbacks=[lightgbm.early_stopping(patience, verbose=False)],
    )
    scores, mask = test.by_group(np.asarray(booster.predict(test.features), np.float64))
    labels, _ = test.by_group(test.labels)
    return {f"ndcg@{cutoff}": ndcg(labels, scores, mask, cutoff) for cutoff in run.config.evaluation.cutoffs}


def positive_rows(run: Run, split: DatasetSplit) -> Rows:
    """The regular numbers of a split's positive groups, in file order."""
    spec = run.config.spec
    names = [feature.name for feature in spec.at("item", spec.regular) if feature.is_numeric]
    features, labels, sizes = [], [], []
    for raw, counts in split.raw((*names, spec.label.name)).as_numpy_iterator():
        for g in np.flatnonzero((raw[spec.label.name] > 0).any(axis=1)):
            n = counts[g]
            features.append(np.concatenate([raw[name][g, :n].reshape(n, -1) for name in names], axis=1))
            labels.append(raw[spec.label.name][g, :n].astype(np.float64))
            sizes.append(n)
    return Rows(np.concatenate(features).astype(np.float32), np.concatenate(labels), np.array(sizes))
