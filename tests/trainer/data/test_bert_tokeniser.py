"""Tokens in the graph equal those of the tokenizers library, the reference for BERT's tokenisation."""

import csv
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from tests.trainer.models.texts import ODD_TEXTS
from trainer.data.bert_tokeniser import BertTokeniser
from trainer.models.encoder_directory import read_encoder

DATA = Path(os.environ.get("PRIVRANK_DATA", Path(__file__).parents[4] / "shared/data"))
TITLES = 10_000
Cut = Callable[[list[str]], list[list[str]]]


def reference(directory: Path, lower_case: bool) -> Cut:
    """Hugging Face's BertTokenizer over a vocab.txt, without special tokens."""
    pieces = (directory / "vocab.txt").read_text().removesuffix("\n").split("\n")
    tokenizer = Tokenizer(
        models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]", max_input_chars_per_word=100)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lower_case
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return lambda texts: [found.tokens for found in tokenizer.encode_batch(texts, add_special_tokens=False)]


def in_graph(directory: Path, lower_case: bool) -> Cut:
    vocabulary = read_encoder(str(directory)).vocabulary
    tokeniser = BertTokeniser(vocabulary, lower_case)
    cut = tf.function(tokeniser.tokenize, autograph=False)
    return lambda texts: [[vocabulary[token] for token in row] for row in cut(tf.constant(texts)).to_list()]


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def both(request: pytest.FixtureRequest, minilm: Path) -> tuple[Cut, Cut]:
    """The tokeniser, and its reference."""
    return in_graph(minilm, request.param), reference(minilm, request.param)


def test_odd_texts_have_the_reference_tokens(both: tuple[Cut, Cut]) -> None:
    assert len(ODD_TEXTS) >= 100
    for text, found, expected in zip(ODD_TEXTS, both[0](ODD_TEXTS), both[1](ODD_TEXTS), strict=True):
        assert found == expected, ascii(text[:60])


def test_real_titles_have_the_reference_tokens(both: tuple[Cut, Cut]) -> None:
    path = DATA / "home_depot/pairs.tsv.gz"
    if not path.exists():
        pytest.skip(f"{path} is missing: tokens of real titles are not tested (PRIVRANK_DATA names the folder)")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        titles = list(dict.fromkeys(row["title"] for row in rows))[:TITLES]
    assert len(titles) == TITLES
    differing = [t for t, a, b in zip(titles, both[0](titles), both[1](titles), strict=True) if a != b]
    assert differing == []


def test_every_assigned_character_has_the_reference_tokens_up_to_unicode_versions(both: tuple[Cut, Cut]) -> None:
    # between letters; what differs are marks that one library's Unicode tables have and the other's do not yet
    texts = [f"a{chr(code)}b" for code in range(1, 0x3_0000, 5) if not 0xD800 <= code < 0xE000]
    differing = sum(a != b for a, b in zip(both[0](texts), both[1](texts), strict=True))
    assert differing < 0.01 * len(texts)


def test_special_pieces_spelt_out_are_text(tiny: Path) -> None:
    cut = in_graph(tiny, True)
    assert not {"[PAD]", "[SEP]", "[CLS]", "[MASK]"} & {p for row in cut(["[PAD] [SEP]", "[CLS][MASK]"]) for p in row}
    assert cut(["Réd SOFAS"]) == [["red", "sofa", "##s"]]
