"""The imported encoder equals a plain NumPy BERT; both forms of a ranker's encoder are made of its very states."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from features.errors import InputError
from tests.trainer.data.test_bert_tokeniser import reference
from tests.trainer.models.bert_reference import ReferenceBert
from tests.trainer.models.texts import ODD_TEXTS
from trainer.architecture import StudentConfig
from trainer.data.bert_tokeniser import BertTokeniser
from trainer.models.encoder_directory import EncoderDirectory, read_encoder
from trainer.models.pretrained_encoder import PretrainedEncoder, check_fits, new_encoder
from trainer.models.token_matching import _OUT_OF_KERNEL_RANGE, TokenMatching

MAX_TOKENS = 40
QUERIES = ["red sofa", "xylophone", ""]
TITLES = [["sofa red lamp", "blue table", "Red!"], ["chair", "", "réd 12 x rugs"], ["sofa " * 50, "a b", "c"]]


class Imported:
    """An encoder with its weights, its tokeniser and the reference of both."""

    def __init__(self, directory: Path, heads: int, **config: Any) -> None:
        self.source: EncoderDirectory = read_encoder(str(directory))
        sizes = {"max_context_tokens": 10, "max_item_tokens": MAX_TOKENS}
        self.config = StudentConfig(pretrained=str(directory), **{**sizes, **config})
        self.encoder: PretrainedEncoder = new_encoder(self.config, self.source, dropout=0.3)
        self.tokeniser = BertTokeniser(self.source.vocabulary, self.source.lower_case)
        self.bert = ReferenceBert(directory, heads)
        self._cut = reference(directory, True)
        self.features([""], [[""]])
        self.encoder.assign(self.source)

    def features(self, queries: list[str], titles: list[list[str]], **options: Any) -> np.ndarray:
        """`call` on texts."""
        context = self.tokeniser.side([tf.constant(queries)], self.config.max_context_tokens)
        flat = self.tokeniser.side([tf.constant([t for row in titles for t in row])], self.config.max_item_tokens)
        item = tf.reshape(flat, [len(queries), len(titles[0]), -1])
        idf = tf.ones([self.tokeniser.size])
        return self.encoder(context, item, TokenMatching(context, item, idf), **options).numpy()

    def ids(self, text: str, limit: int) -> list[int]:
        """[CLS] text [SEP] as the reference cuts it."""
        return self.bert.ids(["[CLS]", *self._cut([text])[0][:limit], "[SEP]"])


@pytest.fixture(scope="module")
def late(tiny: Path) -> Imported:
    return Imported(tiny, heads=4, split_layers=3)


@pytest.fixture(scope="module")
def cross(tiny: Path) -> Imported:
    return Imported(tiny, heads=4)


def test_token_states_equal_the_reference(late: Imported) -> None:
    for text in ("red sofa", "", "Réd SOFAS, 12 x"):
        tokens = late.tokeniser.side([tf.constant([text])], MAX_TOKENS)
        padded = tf.pad(tokens, [[0, 0], [0, 3]])
        expected = late.bert.states(late.ids(text, MAX_TOKENS))
        np.testing.assert_allclose(late.encoder.item_states(padded)[0, : len(expected)], expected, atol=1e-5)


@pytest.mark.parametrize("directory", ["tiny", "minilm"])
def test_pooled_embeddings_of_odd_texts_have_the_references_cosines(
    request: pytest.FixtureRequest, directory: str
) -> None:
    path = request.getfixturevalue(directory)
    heads = {"tiny": 4, "minilm": 12}[directory]
    imported = Imported(path, heads, split_layers={"tiny": 3, "minilm": 6}[directory])
    tokens = imported.tokeniser.side([tf.constant(ODD_TEXTS)], MAX_TOKENS)
    found = imported.encoder.pooled(tokens, imported.encoder.item_states(tokens)).numpy()
    expected = np.stack([imported.bert.embedding(imported.ids(text, MAX_TOKENS)) for text in ODD_TEXTS])
    assert len(ODD_TEXTS) >= 100
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-4)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_minilm_knows_what_words_mean(minilm: Path) -> None:
    imported = Imported(minilm, 12, split_layers=6)
    cosines = imported.features(["angle bracket"], [["corner brace", "garden hose", "angle bracket"]])[0, :, -1]
    assert cosines[2] > 0.999
    assert cosines[0] > cosines[1] + 0.1


def test_cls_pooling_takes_the_first_state(tmp_path: Path) -> None:
    from tests.trainer.models.tiny_encoder import write_encoder

    write_encoder(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    imported = Imported(tmp_path, 4, split_layers=3)
    tokens = imported.tokeniser.side([tf.constant(["red sofa"])], MAX_TOKENS)
    expected = imported.bert.embedding(imported.ids("red sofa", MAX_TOKENS), pooling="cls")
    np.testing.assert_allclose(
        imported.encoder.pooled(tokens, imported.encoder.item_states(tokens))[0], expected, atol=1e-5
    )


def test_the_last_feature_of_late_interaction_is_the_cosine_of_both_sides(late: Imported) -> None:
    found = late.features(QUERIES, TITLES)
    assert found.shape == (3, 3, 5)
    for query, titles, row in zip(QUERIES, TITLES, found, strict=True):
        of_query = late.bert.embedding(late.ids(query, 10))
        expected = [of_query @ late.bert.embedding(late.ids(title, MAX_TOKENS)) for title in titles]
        np.testing.assert_allclose(row[:, -1], expected, atol=1e-5)


def test_similarities_are_how_well_each_sides_words_are_found_on_the_other(late: Imported) -> None:
    def words(text: str) -> np.ndarray:
        """Unit states of the words: neither special nor unknown."""
        ids = late.ids(text, MAX_TOKENS)
        states = late.bert.states(ids)[[late.bert.pieces[i][0] != "[" for i in ids]]
        return states / np.linalg.norm(states, axis=1, keepdims=True)

    titles = ("sofa red lamp", "blue table")
    found = late.features(["red sofa"], [[*titles, ""]])[0, :, :4]
    for row, title in zip(found, titles, strict=False):
        cosines = words("red sofa") @ words(title).T
        mean, weakest, back = cosines.max(axis=1).mean(), cosines.max(axis=1).min(), cosines.max(axis=0).mean()
        np.testing.assert_allclose(row, [mean, mean, weakest, back], atol=1e-5)  # every idf is 1
    np.testing.assert_allclose(found[2], [-1.0, -1.0, -1.0, 0.0], atol=1e-5)  # a title without words
    np.testing.assert_allclose(late.features([""], [["sofa"]])[0, 0, :4], [0.0, 0.0, 1.0, -1.0], atol=1e-5)
    assert _OUT_OF_KERNEL_RANGE > 2.0


def test_idf_weighs_the_words_of_both_sides(tiny: Path) -> None:
    idf = np.ones(1000, np.float32)
    imported = Imported(tiny, 4, split_layers=3)
    query, title = (imported.tokeniser.side([tf.constant([text])], MAX_TOKENS) for text in ("red sofa", "blue table"))
    idf[query[0, 0]], idf[title[0, 1]] = 3.0, 5.0
    states = [imported.encoder.context_states(tokens)[:, 1:] for tokens in (query, title)]
    matches = TokenMatching(query, title[:, tf.newaxis], idf[: int(max(query.numpy().max(), title.numpy().max())) + 1])
    unit = [(s / tf.norm(s, axis=-1, keepdims=True)).numpy()[0, :2] for s in states]
    cosines = unit[0] @ unit[1].T
    best, back = cosines.max(axis=1), cosines.max(axis=0)
    found = matches.similarities(*states)[0, 0]
    np.testing.assert_allclose(found, [best.mean(), best @ [0.75, 0.25], best.min(), back @ [1 / 6, 5 / 6]], atol=1e-5)


@pytest.mark.parametrize("split_layers", [1, 2, 3])
def test_states_computed_ahead_give_the_same_features(tiny: Path, split_layers: int) -> None:
    imported = Imported(tiny, 4, split_layers=split_layers)
    context = imported.tokeniser.side([tf.constant(QUERIES)], 10)
    flat = imported.tokeniser.side([tf.constant([t for row in TITLES for t in row])], MAX_TOKENS)
    each = [imported.encoder.item_states(flat[i : i + 1]) for i in range(len(flat))]  # by itself, as a cache has it
    ahead = imported.encoder.context_states(context), tf.concat(each, axis=0)
    together = imported.features(QUERIES, TITLES)
    np.testing.assert_allclose(imported.features(QUERIES, TITLES, states=ahead), together, atol=1e-5)
    other = ahead[0], ahead[1][::-1]
    assert np.abs(imported.features(QUERIES, TITLES, states=other) - together).max() > 1e-3


def test_joint_layers_read_both_sides_states_as_one_text(tiny: Path) -> None:
    imported = Imported(tiny, 4, split_layers=2)
    found = imported.features(["red sofa"], [["blue table"]])[0, 0, :16]
    query, title = (imported.bert.states(imported.ids(text, 10), layers=[0, 1]) for text in ("red sofa", "blue table"))
    expected = imported.bert._layer(np.concatenate([query, title[1:]]), "encoder.layer.2")[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_cross_encoder_is_bert_over_the_pair(cross: Imported) -> None:
    found = cross.features(QUERIES, TITLES)
    assert found.shape == (3, 3, 16 + 4)
    for query, titles, row in zip(QUERIES, TITLES, found, strict=True):
        for title, features in zip(titles, row, strict=True):
            first, second = cross.ids(query, 10), cross.ids(title, MAX_TOKENS)[1:]
            states = cross.bert.states(first + second, types=[0] * len(first) + [1] * len(second))
            np.testing.assert_allclose(features[:16], states[0], atol=1e-5)


@pytest.mark.parametrize("keep", [[0], [0, 2], [1, 2]])
@pytest.mark.parametrize("split", [False, True])
def test_kept_layers_run_in_their_order(tiny: Path, keep: list[int], split: bool) -> None:
    imported = Imported(tiny, 4, keep_layers=tuple(keep), split_layers=len(keep) if split else 0)
    features = imported.features(["red sofa"], [["blue table"]])[0, 0]
    if split:
        query, title = (imported.bert.embedding(imported.ids(t, 10), layers=keep) for t in ("red sofa", "blue table"))
        np.testing.assert_allclose(features[-1], query @ title, atol=1e-5)
    else:
        first, second = imported.ids("red sofa", 10), imported.ids("blue table", 10)[1:]
        states = imported.bert.states(first + second, [0] * len(first) + [1] * len(second), layers=keep)
        np.testing.assert_allclose(features[:16], states[0], atol=1e-5)


def test_hand_made_features_are_the_same_in_training_and_in_scoring(
    tiny: Path, late: Imported, cross: Imported
) -> None:
    partly = Imported(tiny, 4, split_layers=2)
    for imported, learned in ((late, 0), (partly, 16), (cross, 16)):
        scored, trained = (imported.features(QUERIES, TITLES, training=training) for training in (False, True))
        np.testing.assert_array_equal(trained[..., learned:], scored[..., learned:])
        if learned:  # dropout is on in the joint layers
            assert np.abs(trained[..., :learned] - scored[..., :learned]).max() > 1e-3


@pytest.mark.parametrize("split_layers", [0, 2, 3])
@pytest.mark.parametrize("freeze", [0, 1, 3])
def test_frozen_layers_have_no_trainable_weight(tiny: Path, split_layers: int, freeze: int) -> None:
    imported = Imported(tiny, 4, split_layers=split_layers, freeze=freeze)
    trained = {weight.name for weight in imported.encoder.trainable_variables}
    for place in range(3):
        assert any(f"block_{place}/" in name for name in trained) == (place >= freeze)
    assert any("embeddings/" in name for name in trained) == (freeze == 0)
    assert len(imported.encoder.weights) > 0


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"keep_layers": (0, 3)}, "student: keep_layers names layer 3, but .* has layers 0 to 2"),
        ({"split_layers": 4}, "split_layers is 4, expected at most 3"),
        ({"freeze": 4}, "freeze is 4, expected at most 3"),
        ({"max_context_tokens": 50, "max_item_tokens": 50}, "need 103 positions, but .* has 96"),
        ({"max_item_tokens": 95, "split_layers": 1}, "need 97 positions"),
    ],
)
def test_what_an_encoder_cannot_do_is_refused(tiny: Path, values: dict[str, Any], complaint: str) -> None:
    config = StudentConfig(pretrained=str(tiny), **values)
    with pytest.raises(InputError, match=complaint):
        check_fits("student", config, read_encoder(str(tiny)))
