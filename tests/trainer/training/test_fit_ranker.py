"""Training one ranker: that it learns, which weights it keeps, when it stops, and that devices do not matter."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from features.errors import InputError
from features.spec import spec_from_json
from tests.trainer.rankers import lively, new_ranker
from trainer.architecture import InteractionConfig, StudentConfig
from trainer.config import TrainingConfig
from trainer.data.batches import positive_only, scoring_batches, training_batches, with_label
from trainer.evaluation.metrics import ndcg
from trainer.losses.distillation import Objective, objective_of
from trainer.losses.ranking import rank_bce
from trainer.models.ranker import Ranker
from trainer.pipeline.run import Run
from trainer.recipes import Recipe
from trainer.training.fit_ranker import GroupScores, HalvingSchedule, History, Training, mean_loss, score, strategy_of

ROOT = Path(__file__).parents[3]


def train(run: Run, batches: Any = None, **changes: Any) -> tuple[Any, History]:
    """An encoder-less ranker trained on the tiny shop's clicks, which titles that hold both query words got."""
    config = TrainingConfig(**{"batch_groups": 8, "warmup_steps": 5, "learning_rate": 0.02, **changes})
    model = new_ranker(run, layers=0, dropout=0.0)
    if batches is None:
        batches = training_batches(positive_only(with_label(run.train.groups, "click")), 8, seed=1)
    validation = scoring_batches(positive_only(with_label(run.valid.groups, "click")))
    history = Training(model, config, Objective(rank_bce), run.strategy).train(batches, validation, lambda _: None)
    return model, history


def validation_scores(run: Run, model: Any) -> GroupScores:
    return score(model, positive_only(with_label(run.valid.groups, "click")))


@pytest.fixture(scope="module")
def learned(run: Run) -> tuple[Any, History]:
    return train(run, steps=150, evaluate_every=30)


def test_an_easy_rule_is_learned_to_perfection(run: Run, learned: tuple[Any, History]) -> None:
    scored = validation_scores(run, learned[0])
    assert float(np.mean(ndcg(scored.labels, scored.scores, scored.mask, 8))) > 0.995
    assert learned[1].training_loss[-1] < 0.3 * learned[1].training_loss[0]


def test_the_kept_weights_are_those_of_the_best_validation(run: Run, learned: tuple[Any, History]) -> None:
    model, history = learned
    scored = validation_scores(run, model)
    kept = history.steps.index(history.best_step)
    assert history.validation_ndcg[kept] == max(history.validation_ndcg)
    assert float(np.mean(ndcg(scored.labels, scored.scores, scored.mask, 8))) == history.validation_ndcg[kept]
    assert mean_loss(rank_bce, scored) == pytest.approx(history.validation_loss[kept], rel=1e-6)


def test_the_history_counts_real_items(run: Run, learned: tuple[Any, History]) -> None:
    _, history = learned
    assert history.steps == [30, 60, 90, 120, 150][: len(history.steps)]
    assert 2 * 8 * history.steps[-1] <= history.pairs <= 11 * 8 * history.steps[-1]
    assert json.loads(json.dumps(history.to_json())) == history.to_json()


def test_the_history_tells_what_part_of_the_loss_the_teachers_made(run: Run) -> None:
    # a ranker of zeros, which a learning rate of nothing leaves so, scores 0: every cross-entropy is log 2, whatever
    # the target. Every group has a click, so the data term is 0.3 log 2 an item and the teachers' is 0.7 log 2
    model = new_ranker(run, layers=0, dropout=0.0)
    model.set_weights([np.zeros_like(weights) for weights in model.get_weights()])
    clicked = with_label(run.train.groups, "click")

    def taught(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "teacher_logits": tf.random.normal([*tf.unstack(tf.shape(batch["mask"])), 2])}

    config = TrainingConfig(steps=60, evaluate_every=30, learning_rate=1e-12, warmup_steps=0)
    objective = objective_of(Recipe(name="student", teachers=("one", "two"), alpha=0.3), "rank_bce")
    training = Training(model, config, objective, run.strategy)
    batches = training_batches(clicked, 8, seed=1).map(taught)
    history = training.train(batches, scoring_batches(clicked), lambda _: None)
    assert history.training_loss == pytest.approx([np.log(2.0)] * 2, rel=1e-5)
    assert history.teacher_term == pytest.approx([0.7 * np.log(2.0)] * 2, rel=1e-5)


def test_without_teachers_their_part_is_nothing(learned: tuple[Any, History]) -> None:
    assert learned[1].teacher_term == [0.0] * len(learned[1].steps)


def test_training_stops_after_its_patience_and_returns_to_the_best(run: Run) -> None:
    # with labels turned around, every step makes validation worse: the first validation stays the best
    def upside_down(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "label": 1.0 - batch["label"]}

    batches = training_batches(positive_only(with_label(run.train.groups, "click")), 8, seed=1).map(upside_down)
    model, history = train(run, batches, steps=500, evaluate_every=25, patience=2, select_by="loss")
    best = history.steps.index(history.best_step)
    assert history.validation_loss[best] == min(history.validation_loss)
    assert len(history.steps) == best + 1 + 2 < 20
    assert mean_loss(rank_bce, validation_scores(run, model)) == pytest.approx(history.validation_loss[best], rel=1e-6)


def test_weight_decay_shortens_weights_and_none_leaves_them(run: Run) -> None:
    lengths = []
    for decay in (0.0, 5.0):
        model, _ = train(run, steps=20, evaluate_every=20, averaging=0.0, weight_decay=decay)
        lengths.append(sum(float(np.square(weight.numpy()).sum()) for weight in model.trainable_variables))
    assert lengths[1] < 0.5 * lengths[0]


BARGAINS = {
    "title": {"type": "text", "level": "item"},
    "bargain": {"type": "categorical", "level": "item"},  # "gain" is part of it, and of no weight's role
    "purchase": {"type": "bool", "level": "item", "role": "label"},
}


def test_kernels_decay_and_gains_biases_norms_and_embeddings_do_not() -> None:
    spec = spec_from_json(BARGAINS)
    student = StudentConfig(layers=2, width=16, heads=2, feed_forward=8, hidden=(8,), interaction=InteractionConfig())
    model = Ranker(spec, student, 20, {"bargain": 2})
    regular = {"item_tokens": tf.constant([[[5, 3], [6, 3]]]), "bargain": tf.constant([[1, 2]])}
    model(regular, {}, tf.constant([[True, True]]))
    lively(model)  # no weight is 0, so that each could shrink
    variables = model.trainable_variables
    before = [variable.numpy() for variable in variables]
    # no gradient: what moves, moves by decay
    config = TrainingConfig(weight_decay=0.5, learning_rate=0.1, warmup_steps=0, averaging=0.0)
    training = Training(model, config, Objective(rank_bce), tf.distribute.get_strategy())
    training.optimiser.apply_gradients(zip(map(tf.zeros_like, variables), variables, strict=True))
    decayed = {v.ref() for v, old in zip(variables, before, strict=True) if np.abs(v.numpy() - old).max() > 1e-4}
    interaction = model.interaction.attention
    kernels = [layer.kernel for layer in (*model.hidden, model.score, model.interaction.projection)]
    for block in model.encoder.blocks:
        kernels += [block.queries, block.keys, block.values]
        kernels += [layer.kernel for layer in (block.mixed, block.inner, block.outer)]
    dense = [v for v in interaction.trainable_variables if v.name.endswith("/kernel:0")]
    assert len(dense) == 1 + 2 * 4  # the projection of the inputs; queries, keys, values and output of two layers
    assert decayed == {v.ref() for v in (*kernels, *dense)}
    names = {v.name.rsplit("/", 1)[-1] for v in variables if v.ref() not in decayed}
    assert names == {
        "bias:0", "gain:0", "attention_gain:0", "query_bias:0", "value_bias:0", "gamma:0", "beta:0", "embeddings:0",
        "matched:0",
    }  # fmt: skip
    assert {v.ref() for v in model.decayed} == decayed


def test_a_diverging_training_says_so(run: Run) -> None:
    def poisoned(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "label": batch["label"] * float("inf")}

    batches = training_batches(positive_only(with_label(run.train.groups, "click")), 8, seed=1).map(poisoned)
    with pytest.raises(InputError, match=r"training diverged: the loss is (nan|inf) at step 10.*Lower learning_rate"):
        train(run, batches, steps=20, evaluate_every=10)


def test_mean_loss_is_over_real_items() -> None:
    scored = GroupScores(np.array([[1.0, 0.0]]), np.array([[0.0, 99.0]]), np.array([[True, False]]))
    assert mean_loss(rank_bce, scored) == pytest.approx(np.log(2.0))


def test_scores_are_in_file_order_and_padded_to_the_widest_group(run: Run) -> None:
    model = new_ranker(run, layers=0)
    everything = score(model, with_label(run.train.groups, "click"))
    assert len(everything.scores) == 96
    for index, group in enumerate(with_label(run.train.groups, "click").take(5)):
        alone = model({n: v[None] for n, v in group["regular"].items()}, {}, group["mask"][None]).numpy()[0]
        real = group["mask"].numpy()
        np.testing.assert_allclose(everything.scores[index][everything.mask[index]], alone[real], atol=1e-5)


def test_without_a_gpu_models_are_on_the_cpu() -> None:
    if tf.config.list_logical_devices("GPU"):
        pytest.skip("this machine has a GPU")
    for devices in ("auto", "cpu"):
        strategy = strategy_of(devices)
        assert strategy.num_replicas_in_sync == 1
        with strategy.scope():
            assert tf.Variable(0.0).device.endswith("CPU:0")


def test_the_rate_warms_up_and_then_halves() -> None:
    rate = HalvingSchedule(TrainingConfig(learning_rate=0.8, warmup_steps=4, halve_every=10))
    steps = [0, 2, 4, 9, 10, 19, 20, 35]
    assert [float(rate(tf.constant(step))) for step in steps] == pytest.approx([0.0, 0.4, 0.8, 0.8, 0.4, 0.4, 0.2, 0.1])


ONE_STEP = """
import json, sys
import numpy as np
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
from features.spec import spec_from_json
from trainer.architecture import StudentConfig
from trainer.config import TrainingConfig
from trainer.losses.distillation import objective_of
from trainer.models.ranker import Ranker
from trainer.recipes import Recipe
from trainer.training.fit_ranker import Training

OBJECTIVE = objective_of(Recipe(name="student", teachers=("one", "two"), alpha=0.4), "rank_bce")

spec = spec_from_json({
    "picture": {"type": "float", "level": "item", "length": 3},
    "brand": {"type": "categorical", "level": "item"},
    "purchase": {"type": "bool", "level": "item", "role": "label"}})
generator = np.random.default_rng(0)
groups, items = 8, 5
batch = {
    "regular": {
        "picture": tf.constant(generator.normal(size=(groups, items, 3)), tf.float32),
        "brand": tf.constant(generator.integers(0, 3, (groups, items)), tf.int32)},
    "privileged": {},
    "label": tf.constant(generator.integers(0, 2, (groups, items)), tf.float32),
    # the halves have unequal numbers of items: a replica that divided by its own would be seen
    "mask": tf.sequence_mask([5, 5, 5, 5, 1, 2, 1, 2], items),
    "weight": tf.constant(generator.uniform(0.5, 2.0, groups), tf.float32),
    "teacher_logits": tf.constant(generator.normal(size=(groups, items, 2)), tf.float32)}

def two_steps(strategy):
    tf.keras.utils.set_random_seed(3)
    config = StudentConfig(hidden=(4,), category_width=2)
    with strategy.scope():
        model = Ranker(spec, config, 0, {"brand": 2})
        model(batch["regular"], {}, batch["mask"])
    config = TrainingConfig(steps=10, warmup_steps=0, clip_norm=0.05, l2=0.1)
    training = Training(model, config, OBJECTIVE, strategy)
    batches = tf.data.Dataset.from_tensors(batch).unbatch().batch(8).repeat()
    iterator = iter(strategy.experimental_distribute_dataset(batches))
    terms, counted = tf.function(training._several_steps)(iterator, tf.constant(2))
    return terms.numpy().tolist(), int(counted), np.concatenate([w.ravel() for w in model.get_weights()]).tolist()

print(json.dumps([
    two_steps(tf.distribute.OneDeviceStrategy("/cpu:0")),
    two_steps(tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]))]))
"""


@pytest.mark.slow
def test_two_devices_take_the_same_steps_as_one() -> None:
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [sys.executable, "-c", ONE_STEP], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout.splitlines()[-1])
    assert one[1] == two[1] == 2 * 26  # real items
    assert two[0] == pytest.approx(one[0], rel=1e-5)
    np.testing.assert_allclose(two[2], one[2], atol=1e-6)
