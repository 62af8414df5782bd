"""Attention among a query group's items: what it may depend on, and what not."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from serving.exports.graph.allowed_operations import refusal_of
from tests.trainer.rankers import inputs_of, lively, new_ranker
from trainer.export.saved_model import ExportedRanker
from trainer.models.ranker import Ranker
from trainer.pipeline.run import Run

INTERACTION = {"layers": 2, "heads": 2, "width": 4, "dropout": 0.5}


@pytest.fixture(scope="module")
def model(run: Run) -> Ranker:
    return new_ranker(run, layers=0, interaction=INTERACTION)


def test_an_items_score_depends_on_the_others_of_its_group(run: Run, model: Ranker) -> None:
    regular, privileged, mask = inputs_of(run.train)
    price = regular["price"].numpy()
    price[:, 1] += 5.0  # of the second item alone
    before, after = (
        model({**regular, "price": tf.constant(p)}, privileged, mask).numpy() for p in (regular["price"], price)
    )
    assert not np.allclose(before[:, 0], after[:, 0], atol=1e-4)
    alone = new_ranker(run, layers=0)
    before, after = (
        alone({**regular, "price": tf.constant(p)}, privileged, mask).numpy() for p in (regular["price"], price)
    )
    np.testing.assert_allclose(before[:, 0], after[:, 0], atol=1e-6)


def test_neither_the_items_order_nor_padding_changes_a_score(run: Run, model: Ranker) -> None:
    regular, privileged, mask = inputs_of(run.train, groups=4)
    at_items = {f.name for f in run.config.spec.at("item")} | {"item_tokens"}

    def changed(change: Any) -> Any:
        return model({n: change(v) if n in at_items else v for n, v in regular.items()}, privileged, change(mask))

    scores = model(regular, privileged, mask).numpy()
    turned = changed(lambda values: tf.reverse(values, axis=[1])).numpy()
    np.testing.assert_allclose(turned[:, ::-1], scores, atol=1e-5)
    padded = changed(lambda v: tf.pad(v, [[0, 0], [0, 3], *[[0, 0]] * (v.shape.rank - 2)])).numpy()
    np.testing.assert_allclose(padded[:, : scores.shape[1]], scores, atol=1e-5)
    assert (padded[:, scores.shape[1] :] == 0.0).all()


def test_before_training_the_group_says_nothing(run: Run) -> None:
    untrained = new_ranker(run, layers=0, interaction=INTERACTION, spread=0.0)
    plain = new_ranker(run, layers=0, spread=0.0)
    for weight, same in zip([*plain.hidden, plain.score], [*untrained.hidden, untrained.score], strict=True):
        weight.set_weights(same.get_weights())
    inputs = inputs_of(run.train)
    np.testing.assert_allclose(untrained(*inputs).numpy(), plain(*inputs).numpy(), atol=1e-6)


def test_it_can_be_exported_and_served(run: Run, model: Ranker) -> None:
    rank = ExportedRanker(run.preprocessor, model).signatures()["rank"]
    graph = rank.graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    assert [refusal for node in nodes if (refusal := refusal_of(node))] == []


def test_noise_moves_numbers_while_training_only(run: Run) -> None:
    noisy = lively(new_ranker(run, layers=0, dropout=0.0, noise=0.5))
    inputs = inputs_of(run.train)
    assert not np.allclose(noisy(*inputs, training=True), noisy(*inputs, training=True), atol=1e-4)
    np.testing.assert_array_equal(noisy(*inputs, training=False), noisy(*inputs, training=False))
