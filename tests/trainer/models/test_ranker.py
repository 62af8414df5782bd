"""A pair's score depends on its own regular features alone: not on padding, neighbours, or what is privileged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from features.elwc import decode_group, encode_group
from tests.trainer.rankers import inputs_of, new_ranker
from tests.trainer.shop import FEATURES, data_of, write_shop
from trainer.config import load_config
from trainer.data.batches import parse_elwc
from trainer.data.preprocessing import Tensors
from trainer.models.ranker import Ranker
from trainer.models.token_matching import KERNEL_CENTRES
from trainer.pipeline.run import Run
from trainer.training.fit_ranker import score

VARIANTS: dict[str, dict[str, Any]] = {
    "no encoder": {"layers": 0},
    "joint": {"layers": 2},
    "split": {"layers": 2, "split_layers": 1},
    "no hidden layer": {"layers": 1, "hidden": []},
}


@pytest.fixture(scope="module", params=VARIANTS, ids=list(VARIANTS))
def model(run: Run, request: pytest.FixtureRequest) -> Ranker:
    return new_ranker(run, **VARIANTS[request.param])


def scores(model: Ranker, regular: Tensors, mask: tf.Tensor, privileged: Tensors | None = None) -> np.ndarray:
    return model(regular, privileged or {}, mask).numpy()


def padded(values: tf.Tensor, axis: int, size: int) -> tf.Tensor:
    paddings = [[0, size if dim == axis else 0] for dim in range(values.shape.rank)]
    return tf.pad(values, paddings)


def test_scores_differ_between_items_and_are_0_on_padding(run: Run, model: Ranker) -> None:
    regular, _, mask = inputs_of(run.train)
    found = scores(model, regular, mask)
    assert (found[~mask.numpy()] == 0.0).all()
    assert np.unique(found[mask.numpy()].round(4)).size > 0.8 * mask.numpy().sum()


def test_a_score_does_not_depend_on_the_bucket_it_was_padded_to(run: Run, model: Ranker) -> None:
    regular, _, mask = inputs_of(run.train)
    wider = {name: padded(v, 1, 8) if FEATURES.get(name, {"level": ""})["level"] == "item" else v
             for name, v in regular.items()}  # fmt: skip
    wider["item_tokens"] = padded(padded(regular["item_tokens"], 1, 8), 2, 4)
    wider["context_tokens"] = padded(regular["context_tokens"], 1, 6)
    found = scores(model, wider, padded(mask, 1, 8))
    np.testing.assert_allclose(found[:, : mask.shape[1]], scores(model, regular, mask), atol=1e-5)
    assert (found[:, mask.shape[1] :] == 0.0).all()


def test_a_score_does_not_depend_on_the_other_items(run: Run, model: Ranker) -> None:
    regular, _, mask = inputs_of(run.train)
    found = scores(model, regular, mask)
    for place in (0, 1):
        alone = {name: v if name == "context_tokens" else v[:, place : place + 1] for name, v in regular.items()}
        np.testing.assert_allclose(scores(model, alone, mask[:, place : place + 1])[:, 0], found[:, place], atol=1e-5)


def test_items_in_another_order_have_the_same_scores(run: Run, model: Ranker) -> None:
    regular, _, mask = inputs_of(run.train)
    order = np.random.default_rng(2).permutation(mask.shape[1])
    shuffled = {name: v if name == "context_tokens" else tf.gather(v, order, axis=1) for name, v in regular.items()}
    found = scores(model, shuffled, tf.gather(mask, order, axis=1))
    np.testing.assert_allclose(found, scores(model, regular, mask)[:, order], atol=1e-5)


def test_the_query_and_every_item_feature_matter(run: Run, model: Ranker) -> None:
    regular, _, mask = inputs_of(run.train)
    before = scores(model, regular, mask)
    for name, values in regular.items():
        changed = {**regular, name: tf.roll(values, 1, axis=0) if values.dtype == tf.int32 else values + 1.0}
        assert np.abs(scores(model, changed, mask) - before).max() > 1e-3, name


def test_dropout_is_off_unless_training(run: Run, model: Ranker) -> None:
    regular, _, mask = inputs_of(run.train)
    np.testing.assert_array_equal(scores(model, regular, mask), scores(model, regular, mask))
    drawn = [model(regular, {}, mask, training=True).numpy() for _ in range(2)]
    assert not model.hidden or np.abs(drawn[0] - drawn[1]).max() > 1e-4


HANDMADE = {"titles alone": 0, "joint": 1, "split": 2}  # layers


@pytest.mark.parametrize("layers", HANDMADE.values(), ids=HANDMADE)
@pytest.mark.parametrize("sees", [(), ("position", "click")], ids=["student", "teacher"])
def test_every_handmade_feature_is_the_same_in_training_and_in_scoring(
    run: Run, sees: tuple[str, ...], layers: int
) -> None:
    model = new_ranker(run, *sees, dropout=0.5, layers=layers, split_layers=max(layers - 1, 0))
    if model.encoder:
        model.encoder.positions.set_weights([np.zeros(model.encoder.positions.embeddings.shape)])  # so words are equal
    regular, privileged, mask = inputs_of(run.train)
    head, inputs = model.hidden[0], []

    def recorded(states: tf.Tensor) -> tf.Tensor:
        inputs.append(states.numpy())
        return head(states)

    model.hidden = [recorded]
    for training in (False, True, True):
        model(regular, privileged, mask, training=training)
    shares, encoded = 4, model.encoder.config.width if model.encoder else 0
    state = slice(shares, shares + encoded)  # of [CLS], which the transformer learns and dropout thins out
    scored, *trained = (np.delete(values, state, axis=2)[mask.numpy()] for values in inputs)
    kernels = len(KERNEL_CENTRES) if layers else 0
    assert scored.shape[1] == shares + kernels + sum(f.length if f.type == "float" else 1 for f in model.others) + 7
    for values in trained:
        np.testing.assert_allclose(values, scored, atol=1e-5)
    if kernels:
        spread = scored[:, shares : shares + kernels].std(axis=0)
        assert (spread[layers > 1 :] > 1e-3).all()  # none is constant; behind a split layer no two states are equal
        assert np.abs(inputs[1] - inputs[2])[:, :, state].max() > 1e-2  # dropout was at work


def test_the_student_ignores_privileged_values_wherever_they_stand(run: Run, model: Ranker) -> None:
    regular, privileged, mask = inputs_of(run.train)
    plain = scores(model, regular, mask)
    np.testing.assert_array_equal(scores(model, regular, mask, privileged), plain)
    inverted = {name: -7.0 * values for name, values in privileged.items()}
    np.testing.assert_array_equal(scores(model, regular, mask, inverted), plain)
    np.testing.assert_array_equal(scores(model, {**regular, **inverted}, mask), plain)


def test_the_student_has_no_layer_for_a_privileged_feature(run: Run, model: Ranker) -> None:
    hidden = {f.name for f in run.config.spec if f.role != "regular"}
    assert model.sees == ()
    assert not hidden & {feature.name for feature in model.others}
    assert not [
        v.name for v in model.weights if any(part.removeprefix("category_") in hidden for part in v.name.split("/"))
    ]


def test_a_teacher_sees_its_own_privileged_feature_and_no_other(run: Run) -> None:
    teacher = new_ranker(run, "click")
    regular, privileged, mask = inputs_of(run.train)
    before = scores(teacher, regular, mask, privileged)
    for name, matters in (("click", True), ("position", False)):
        changed = {**privileged, name: privileged[name] + 1.0}
        assert bool(np.abs(scores(teacher, regular, mask, changed) - before).max() > 1e-3) is matters


def test_rewritten_privileged_values_in_the_dataset_change_no_student_score(run: Run, model: Ranker) -> None:
    spec = run.config.spec
    records = list(run.test.records().take(8).as_numpy_iterator())
    rewritten = []
    for record in records:
        group = decode_group(record, spec)
        for place, item in enumerate(group.items):
            item.update({"click": not item["click"], "position": 99 - place, "purchase": not item["purchase"]})
        rewritten.append(encode_group(group, spec, "training"))
    assert rewritten != records

    def by_the_student(serialised: list[bytes]) -> np.ndarray:
        raw, counts = parse_elwc(tf.constant(serialised), tuple(f for f in spec if f.role != "id"))
        mask = tf.sequence_mask(counts)
        return scores(model, run.preprocessor.regular(raw), mask, run.preprocessor.privileged(raw))

    np.testing.assert_array_equal(by_the_student(records), by_the_student(rewritten))


SPECS: dict[str, tuple[str, ...]] = {
    "numbers alone": ("price", "picture", "reviews"),
    "one bool": ("in_stock",),
    "categories alone": ("brand",),
    "titles without a query": ("title", "price"),
    "a query without titles": ("query", "price"),
    "query and title": ("query", "title"),
}


@pytest.mark.parametrize("regular", SPECS.values(), ids=SPECS)
def test_any_mix_of_features_can_be_ranked_and_exported(tmp_path: Path, regular: tuple[str, ...]) -> None:
    from trainer.export.saved_model import ExportedRanker

    behind = ("item_id", "position", "click", "purchase")
    features = {name: FEATURES[name] for name in FEATURES if name in (*regular, *behind)}
    task = write_shop(tmp_path, features)
    run = Run(load_config(str(task)), data_of(tmp_path, features, relevance=False), str(tmp_path / "run"))
    model = run.new_ranker(seed=1)
    from trainer.data.batches import with_label

    scored = score(model, with_label(run.test.groups.take(4), "purchase"))
    assert np.isfinite(scored.scores).all()
    texts = {"query", "title"} & set(regular)
    expected = {
        "rank",
        "serving_default",
        *(["tokenize"] if texts else []),
        *(["prepare"] if {*regular} - texts else []),
    }
    assert set(ExportedRanker(run.preprocessor, model).signatures()) == expected
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(model(*inputs_of(run.train)))
    assert all(g is not None for g in tape.gradient(total, model.trainable_variables))
