"""Raw values to the ranker's inputs, by hand."""

from typing import Any

import pytest
import tensorflow as tf

from features.manifest import FeatureStatistics
from features.spec import spec_from_json
from trainer.architecture import StudentConfig
from trainer.data.preprocessing import Preprocessor, scale_of

FEATURES: dict[str, Any] = {
    "hour": {"type": "int", "level": "context"},
    "price": {"type": "float", "level": "item"},
    "brand": {"type": "categorical", "level": "item"},
    "picture": {"type": "float", "level": "item", "length": 2},
    "in_stock": {"type": "bool", "level": "item"},
    "same": {"type": "float", "level": "item"},
    "click": {"type": "bool", "level": "item", "role": "privileged"},
    "purchase": {"type": "bool", "level": "item", "role": "label"},
}


def statistics(**values: Any) -> FeatureStatistics:
    return FeatureStatistics(count=10, **values)


STATISTICS = {
    "hour": statistics(minimum=0, maximum=23, mean=12, deviation=6),
    "price": statistics(minimum=2, maximum=10, mean=5, deviation=2),
    "brand": statistics(values={"acme": 6, "bolt": 4}),
    "picture": statistics(minimum=(-1, -2), maximum=(1, 0), mean=(0, -1), deviation=(0.5, 0.25)),
    "in_stock": statistics(minimum=0, maximum=1, mean=0.8, deviation=0.4),
    "same": statistics(minimum=0.1, maximum=0.1, mean=0.10000000000000002, deviation=1.4e-17),
    "click": statistics(minimum=0, maximum=1, mean=0.5, deviation=0.5),
}
RAW = {
    "hour": tf.constant([18], tf.int64),
    "price": tf.constant([[5.0, 9.0, 1e30]]),
    "brand": tf.constant([["bolt", "acme", "new"]]),
    "picture": tf.constant([[[0.5, -0.5], [2.0, -2.0], [0.0, 1.0]]]),
    "in_stock": tf.constant([[True, False, True]]),
    "same": tf.constant([[0.1, 7.0, -7.0]]),
}
SPEC = spec_from_json(FEATURES)
PREPROCESSOR = Preprocessor(SPEC, STATISTICS, StudentConfig(), None, SPEC.privileged)


def values(name: str) -> Any:
    return PREPROCESSOR.regular(RAW)[name].numpy()


def test_numbers_are_clipped_to_training_and_standardised() -> None:
    # (5 - 5) / 2, (9 - 5) / 2, and 1e30 clipped to 10: (10 - 5) / 2
    assert values("price")[0, :, 0] == pytest.approx([0.0, 2.0, 2.5])


def test_integers_and_context_features_too() -> None:
    assert values("hour").tolist() == [[1.0]]  # (18 - 12) / 6, as [groups, 1]


def test_booleans_are_0_and_1_before_they_are_scaled() -> None:
    assert values("in_stock")[0, :, 0] == pytest.approx([0.5, -2.0, 0.5])


def test_vectors_keep_their_length_and_are_clipped_element_by_element() -> None:
    # (0.5 - 0) / 0.5 and (-0.5 + 1) / 0.25; 2 clipped to 1, -2 is the second one's least; 1 clipped to 0
    assert values("picture").tolist() == [[[1.0, 2.0], [2.0, -4.0], [0.0, 4.0]]]


def test_an_element_that_never_varied_is_0_beside_one_that_did() -> None:
    scale = scale_of(statistics(minimum=(3, 0), maximum=(3, 2), mean=(3, 1), deviation=(0, 1)))
    assert scale(tf.constant([[9.0, 2.0]])).numpy().tolist() == [[0.0, 1.0]]


def test_known_categories_count_from_one_and_an_unseen_one_is_bucket_0() -> None:
    assert values("brand").tolist() == [[2, 1, 0]]


def test_a_feature_that_never_varied_is_0_whatever_serving_brings() -> None:
    assert values("same")[0, :, 0].tolist() == [0.0, 0.0, 0.0]


def test_a_constant_whose_mean_was_rounded_is_0_too() -> None:
    scale = scale_of(statistics(minimum=16777217.0, maximum=16777217.0, mean=16777216.9, deviation=1e-9))
    assert scale(tf.constant([16777217.0])).numpy().tolist() == [0.0]


def test_a_feature_without_numbers_in_training_is_0() -> None:
    assert scale_of(statistics())(tf.constant([5.0])).numpy().tolist() == [0.0]


def test_a_category_column_without_values_maps_to_bucket_0() -> None:
    empty = Preprocessor(SPEC, {**STATISTICS, "brand": statistics(values={})}, StudentConfig(), None)
    assert empty.regular(RAW)["brand"].numpy().tolist() == [[0, 0, 0]]


def test_the_student_gets_the_regular_features_and_nothing_else() -> None:
    smuggled = {**RAW, "click": tf.constant([[True, False, False]]), "purchase": tf.constant([[True, False, False]])}
    inputs = PREPROCESSOR.regular(smuggled)
    assert set(inputs) == {"hour", "price", "brand", "picture", "in_stock", "same"}


def test_teachers_get_the_privileged_ones_apart_and_never_the_label() -> None:
    raw = {"click": tf.constant([[True, False, False]]), "purchase": tf.constant([[True, False, False]])}
    inputs = PREPROCESSOR.privileged(raw)
    assert {name: value.numpy().tolist() for name, value in inputs.items()} == {"click": [[[1.0], [-1.0], [-1.0]]]}


def test_text_becomes_the_tokens_of_both_sides(run: Any) -> None:
    from tests.trainer.shop import PIECES

    raw = {
        "query": tf.constant(["red sofa"]),
        "title": tf.constant([["blue lamp table", ""]]),
        "price": tf.zeros([1, 2]),
        "brand": tf.constant([["acme", "bolt"]]),
        "picture": tf.zeros([1, 2, 3]),
        "reviews": tf.zeros([1, 2], tf.int64),
        "in_stock": tf.zeros([1, 2], tf.bool),
    }
    inputs = run.preprocessor.regular(raw)
    context, item = ([PIECES.index(p) for p in text.split()] for text in ("red sofa [SEP]", "blue lamp table [SEP]"))
    assert inputs["context_tokens"].numpy().tolist() == [context]
    assert inputs["item_tokens"].numpy().tolist() == [[item, [PIECES.index("[SEP]"), 0, 0, 0]]]
