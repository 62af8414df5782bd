"""The transformer's two sides: computed apart where they are split, and the same whether together or ahead."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from features.errors import InputError
from features.task import parse
from trainer.architecture import StudentConfig
from trainer.models.token_matching import TokenMatching
from trainer.models.transformer import MASKED_LOGIT, TransformerBlock, TransformerEncoder

ITEMS, WIDTH = 3, 16
CONTEXT = tf.constant([[5, 6, 3, 0], [7, 3, 0, 0]])
ITEM = tf.constant([[[5, 8, 3], [9, 3, 0], [10, 11, 3]], [[6, 7, 3], [7, 3, 0], [12, 3, 0]]])
TITLES = tf.reshape(ITEM, [-1, 3])


def matches(context: tf.Tensor = CONTEXT, item: tf.Tensor = ITEM) -> TokenMatching:
    return TokenMatching(context, item, tf.ones([20]))


def new_encoder(layers: int, split_layers: int) -> TransformerEncoder:
    tf.keras.utils.set_random_seed(4)
    config = StudentConfig(layers=layers, split_layers=split_layers, width=WIDTH, heads=4, feed_forward=24)
    encoder = TransformerEncoder(config, 20, dropout=0.2)
    encoder(CONTEXT, ITEM, matches())
    generator = np.random.default_rng(8)
    encoder.set_weights([w + generator.normal(0, 0.3, w.shape) for w in encoder.get_weights()])
    return encoder


@pytest.mark.parametrize(("layers", "split_layers"), [(1, 0), (2, 0), (2, 1), (3, 1), (3, 2)])
def test_states_computed_ahead_give_the_same_state(layers: int, split_layers: int) -> None:
    encoder = new_encoder(layers, split_layers)
    together = encoder(CONTEXT, ITEM, matches())
    items = [encoder.item_states(TITLES[i : i + 1]) for i in range(len(TITLES))]  # each by itself, as a cache has it
    ahead = encoder.context_states(CONTEXT), tf.concat(items, axis=0)
    np.testing.assert_allclose(encoder(CONTEXT, ITEM, matches(), states=ahead), together, atol=1e-5)
    other = ahead[0], ahead[1][::-1]
    assert np.abs(encoder(CONTEXT, ITEM, matches(), states=other) - together).max() > 1e-3


def new_block() -> tuple[TransformerBlock, tf.Tensor, tf.Tensor]:
    """A block without dropout, and states of some tokens with their bias."""
    block = TransformerBlock(StudentConfig(width=WIDTH, heads=4, feed_forward=24), dropout=0.0, name="block")
    generator = np.random.default_rng(5)
    states = tf.constant(generator.normal(size=[6, 7, WIDTH]), tf.float32)
    bias = tf.where(tf.sequence_mask([7, 4, 5, 1, 7, 2], 7), 0.0, MASKED_LOGIT)
    block(states, bias, training=False)
    block.set_weights([w + generator.normal(0, 0.3, w.shape) for w in block.get_weights()])
    return block, states, bias


def test_attention_is_the_same_in_training_and_in_scoring() -> None:
    block, states, bias = new_block()
    trained, scored = block(states, bias, training=True), block(states, bias, training=False)
    np.testing.assert_allclose(trained, scored, atol=1e-5)


def test_the_first_state_alone_is_what_attention_over_all_tokens_gives_it() -> None:
    block, states, bias = new_block()
    every = block(states, bias, training=False)
    alone = block(states, bias, training=False, first_only=True)
    np.testing.assert_allclose(alone, every[:, 0], atol=1e-5)


@pytest.mark.parametrize(("layers", "split_layers"), [(1, 0), (2, 0), (2, 1), (3, 2)])
def test_both_sides_and_what_matched_matter_to_the_joint_state(layers: int, split_layers: int) -> None:
    encoder = new_encoder(layers, split_layers)
    before = encoder(CONTEXT, ITEM, matches()).numpy()[..., :WIDTH]
    for context, item, matched in (
        (CONTEXT[::-1], ITEM, matches()),
        (CONTEXT, ITEM[::-1], matches()),
        (CONTEXT, ITEM, matches(CONTEXT[::-1])),
    ):
        assert np.abs(encoder(context, item, matched).numpy()[..., :WIDTH] - before).max() > 1e-3


@pytest.mark.parametrize("split_layers", [0, 1])
def test_padding_tokens_change_no_real_state(split_layers: int) -> None:
    encoder = new_encoder(2, split_layers)
    states = encoder.item_states(TITLES)
    longer = encoder.item_states(tf.pad(TITLES, [[0, 0], [0, 5]]))
    real = TITLES.numpy() > 0
    np.testing.assert_allclose(longer.numpy()[:, :3][real], states.numpy()[real], atol=1e-5)


def test_the_longest_sides_have_positions() -> None:
    config = StudentConfig(layers=1, width=16, max_context_tokens=3, max_item_tokens=4)
    encoder = TransformerEncoder(config, 20, dropout=0.2)
    context, item = tf.fill([1, 4], 5), tf.fill([1, 1, 5], 6)  # the tokens and a [SEP]
    encoder(context, item, TokenMatching(context, item, tf.ones([20])))
    last = 3 + 2 + 4  # [CLS], three tokens, [SEP]; four tokens and the item's [SEP] begin at 5
    assert last < encoder.positions.input_dim


def test_padding_behind_the_longest_side_changes_no_state() -> None:
    config = StudentConfig(layers=1, width=16, max_context_tokens=3, max_item_tokens=4)
    encoder = TransformerEncoder(config, 20, dropout=0.2)
    longest = tf.constant([[5, 6, 7, 8, 3]])
    states = encoder.item_states(longest)
    padded = encoder.item_states(tf.pad(longest, [[0, 0], [0, 3]]))  # a bucket of 8
    np.testing.assert_allclose(padded[:, :5], states, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"width": 10, "heads": 4}, "width 10 must be a multiple of heads 4"),
        ({"layers": 2, "split_layers": 2}, "split_layers 2 must leave one joint layer of layers 2"),
        ({"layers": -1}, "greater than or equal to 0"),
        ({"category_width": 0}, "greater than or equal to 1"),
        ({"width": "64"}, "valid integer"),
        ({"depth": 3}, "unknown key, expected one of layers, width"),
    ],
)
def test_an_impossible_student_is_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        parse(values, "student", StudentConfig)
