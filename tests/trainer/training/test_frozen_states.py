"""States of frozen layers: computed once a text, the same scores and steps as without them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from features.errors import InputError
from tests.trainer.models.test_pretrained_ranker import new_run
from tests.trainer.shop import write_shop
from trainer.data.batches import InMemoryBatches, scoring_batches, with_label
from trainer.models.ranker import ITEM_FROZEN, Ranker
from trainer.pipeline.run import Run
from trainer.training.fit_ranker import score_batches
from trainer.training.frozen_states import FrozenStates, text_hashes


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny shop."""
    folder = tmp_path_factory.mktemp("frozen_shop")
    write_shop(folder)
    return folder


# (layers apart, frozen layers)
FORMS = {"all frozen": (3, 3), "lowest frozen": (3, 1), "joint layer frozen too": (2, 3)}


@pytest.fixture(scope="module", params=FORMS)
def run(request: pytest.FixtureRequest, root: Path, tiny: Path) -> Run:
    """A run of a late-interaction student."""
    split_layers, freeze = FORMS[request.param]
    return new_run(root, tiny, student={"split_layers": split_layers, "freeze": freeze})


def trained(run: Run) -> Ranker:
    """A ranker whose trainable weights moved; the frozen ones are those of the kept states."""
    model, generator = run.new_ranker(), np.random.default_rng(3)
    for variable in model.trainable_variables:
        variable.assign_add(generator.normal(0.0, 0.01, variable.shape))
    return model


def test_scores_equal_those_of_every_layer_but_for_rounding_to_float16(run: Run) -> None:
    model = trained(run)
    batches = scoring_batches(with_label(run.test.groups, "purchase"))
    assert model.frozen is not None
    for kept in (batches, InMemoryBatches(batches)):
        found = score_batches(model, kept).scores
        frozen, model.frozen = model.frozen, None
        expected = score_batches(model, kept).scores
        model.frozen = frozen
        np.testing.assert_allclose(found, expected, atol=5e-3)
        assert np.abs(expected).max() > 0.1


def test_a_step_has_the_gradient_that_every_layer_gives(run: Run) -> None:
    model = trained(run)
    batch = next(iter(scoring_batches(with_label(run.train.groups, "purchase"))))

    def gradients(batch: dict[str, Any]) -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(batch["regular"], {}, batch["mask"], training=False)))
        return [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, model.trainable_variables)]

    (attached,) = model.frozen.attached(InMemoryBatches(tf.data.Dataset.from_tensors(batch)))
    assert ITEM_FROZEN in attached["regular"]
    for found, expected in zip(gradients(attached), gradients(batch), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-2 * max(1.0, np.abs(expected).max()))


def test_states_are_computed_once_for_a_run_and_its_models(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.new_ranker()
    capsys.readouterr()
    run.new_ranker()
    again = Run(run.config, run.data, run.workdir)
    again.new_ranker()
    assert "states of every distinct text" not in capsys.readouterr().out


def test_a_text_whose_states_are_not_kept_is_refused(run: Run) -> None:
    states = run.new_ranker().frozen
    assert isinstance(states, FrozenStates)
    known = run.train.example["regular"]["item_tokens"].numpy()[0]
    assert states.of(known).shape == (len(known), known.shape[1] + 1, 16)
    unknown = known.copy()
    unknown[0, 0] = 10_000  # of no vocabulary
    with pytest.raises(InputError, match=r"states of 1 of .* texts are not kept, .* remove frozen_states"):
        states.of(unknown)


def test_hashes_do_not_depend_on_padding_and_differ_by_place() -> None:
    rows = np.array([[5, 7, 0], [7, 5, 0], [5, 0, 7], [5, 7, 7]], np.int32)
    assert len(set(text_hashes(rows).tolist())) == 4
    np.testing.assert_array_equal(text_hashes(rows), text_hashes(np.pad(rows, ((0, 0), (0, 9)))))


def test_a_cross_encoder_and_an_encoder_that_trains_whole_keep_no_states(root: Path, tiny: Path) -> None:
    for student in ({"split_layers": 0, "freeze": 2}, {"split_layers": 3, "freeze": 0}):
        assert new_run(root, tiny, student=student).new_ranker().frozen is None
