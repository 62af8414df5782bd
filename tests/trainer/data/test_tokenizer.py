"""The tokeniser, and one side of the encoder's input."""

import pytest
import tensorflow as tf

from features.errors import InputError
from tests.trainer.shop import PIECES
from trainer.data.tokenizer import WordPieceTokeniser, read_vocabulary

TOKENISER = WordPieceTokeniser(PIECES)
SEPARATOR = PIECES.index("[SEP]")


def pieces(text: str) -> list[str]:
    return [PIECES[token] for token in TOKENISER.tokenize(tf.constant([text])).to_list()[0]]


@pytest.mark.parametrize(
    "text",
    ["red sofa", "RED Sofa", "réd sôfa", "re\u0301d sofa", "ｒｅｄ　ｓｏｆａ", "  red\tsofa\n", "red so\u00adfa"],
    ids=["plain", "capitals", "accents", "combining accent", "full width", "white space", "soft hyphen"],
)
def test_spellings_of_one_text_have_the_same_tokens(text: str) -> None:
    assert pieces(text) == ["red", "sofa"]


def test_nfkc_takes_ligatures_and_superscripts_apart() -> None:
    assert pieces("ﬁ") == ["f", "##i"]


def test_words_are_cut_into_the_longest_known_pieces() -> None:
    assert pieces("sofas") == ["sofa", "##s"]


def test_unknown_characters_are_the_unknown_piece() -> None:
    assert pieces("沙 red") == ["[UNK]", "red"]


@pytest.mark.parametrize("text", ["[PAD]", "[SEP]", "[CLS] red [SEP]", "[MASK]"])
def test_text_cannot_forge_special_pieces(text: str) -> None:
    assert not {"[PAD]", "[SEP]", "[CLS]"} & set(pieces(text))


def side(max_tokens: int, *texts: list[str]) -> list[list[int]]:
    rows: list[list[int]] = TOKENISER.side([tf.constant(text) for text in texts], max_tokens).numpy().tolist()
    return rows


def ids(*names: str) -> list[int]:
    return [PIECES.index(name) for name in names]


def test_a_side_is_the_tokens_a_separator_and_padding() -> None:
    assert side(8, ["red sofa", "lamp"]) == [ids("red", "sofa", "[SEP]"), [*ids("lamp", "[SEP]"), 0]]


def test_several_texts_are_parted_by_separators() -> None:
    assert side(8, ["red"], ["lamp table"]) == [ids("red", "[SEP]", "lamp", "table", "[SEP]")]


def test_truncation_keeps_the_last_separator() -> None:
    assert side(2, ["red blue green", "lamp"]) == [ids("red", "blue", "[SEP]"), [*ids("lamp", "[SEP]"), 0]]


def test_several_texts_are_truncated_together() -> None:
    assert side(2, ["red"], ["lamp table"]) == [ids("red", "[SEP]", "[SEP]")]


def test_an_empty_text_is_its_separator() -> None:
    assert side(8, [""]) == [[SEPARATOR]]


def test_a_vocabulary_must_begin_with_the_special_pieces() -> None:
    with pytest.raises(InputError, match=r"vocabulary begins with .*'red'.*expected \['\[PAD\]', '\[UNK\]'"):
        WordPieceTokeniser(["red", "[PAD]", "[UNK]", "[CLS]", "[SEP]"])


def test_a_vocabulary_file_has_one_piece_a_line() -> None:
    assert read_vocabulary("[PAD]\n[UNK]\nred\n") == ["[PAD]", "[UNK]", "red"]
