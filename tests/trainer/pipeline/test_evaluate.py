"""Evaluation: the label on positive groups, true relevance on all, and the references beside every model."""

import numpy as np

from tests.trainer.conftest import Fitted
from tests.trainer.shop import SPLITS
from trainer.evaluation.bm25 import GRID, Bm25, Bm25Settings
from trainer.evaluation.metrics import ndcg
from trainer.pipeline.query_groups import distinct_titles, read_groups, relevance_of
from trainer.pipeline.run import Run


def test_relevance_judges_every_test_group_with_a_relevant_item(fitted: Fitted) -> None:
    kept = np.load(fitted.workdir / "metrics_per_group.npz", allow_pickle=False)
    run = Run(fitted.config, fitted.data, str(fitted.workdir))
    groups = read_groups(run, "test")
    relevance = relevance_of(run, groups)
    assert relevance is not None
    judged = (relevance > 0).any(axis=1)
    assert groups.positive.sum() < judged.sum()
    assert fitted.metrics["relevance_test_groups"] == judged.sum()
    expected = ndcg(relevance[judged], -groups.positions[judged], groups.mask[judged], 8)
    np.testing.assert_allclose(kept["relevance_ndcg@8/logged_order"], expected, atol=1e-6)
    by_label = ndcg(groups.labels, -groups.positions, groups.mask, 8)[groups.positive]
    np.testing.assert_allclose(kept["ndcg@8/logged_order"], by_label, atol=1e-6)


def test_bm25_has_the_settings_that_rank_the_validation_split_best(fitted: Fitted) -> None:
    run = Run(fitted.config, fitted.data, str(fitted.workdir))
    valid = read_groups(run, "valid")
    valid = valid.where(valid.positive)
    bm25 = Bm25(sorted(set().union(*(distinct_titles(run, split) for split in SPLITS))), "english")
    values = {
        settings: ndcg(
            valid.labels, valid.padded(bm25.scores(valid.queries, valid.titles, settings)), valid.mask, 8
        ).mean()
        for settings in GRID
    }
    tuned = fitted.metrics["bm25"]
    assert values[Bm25Settings(tuned["k1"], tuned["b"])] == max(values.values())
    assert tuned["trials"] == len(GRID)
