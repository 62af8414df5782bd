"""Token matches against hand counts, and that splitting a text into words does not change its tokens."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.elwc import QueryGroup
from serving.ranking.token_matches import MatchedWord, TokenMatches, words_of

SIDES = {"context": ["query"], "item": ["title"]}


class Letters:
    """A tokeniser: every letter is a token, its code point; `?` is the unknown token."""

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]:
        return [[1 if letter == "?" else ord(letter) for letter in text.replace(" ", "")] for text in texts]

    def token_counts(self, texts: list[str], seconds: float) -> list[int]:
        return [len(tokens) for tokens in self.tokens(texts, seconds)]


def matches_of(query: str, title: str, **limits: int) -> dict[str, list[tuple[str, int, int, int]]]:
    group = QueryGroup({"query": query}, [{"title": title}])
    matches = TokenMatches(group, SIDES, limits, Letters(), 1.0).of(0)
    return {name: [(w.text, w.tokens, w.read, w.matched) for w in words] for name, words in matches.items()}


def test_a_words_tokens_are_counted_and_those_that_the_other_side_has() -> None:
    assert matches_of("ab cd", "abc, xd") == {
        "query": [("ab", 2, 2, 2), (" cd", 2, 2, 2)],
        "title": [("abc", 3, 3, 3), (",", 1, 1, 0), (" xd", 2, 2, 1)],
    }


def test_the_unknown_token_matches_nothing_not_even_itself() -> None:
    assert matches_of("? a", "? a") == {side: [("?", 1, 1, 0), (" a", 1, 1, 1)] for side in ("query", "title")}


def test_text_behind_the_token_limit_is_one_last_word_without_matches() -> None:
    found = matches_of("abcd", "ab cd e f", max_context_tokens=3, max_item_tokens=3)
    assert found["query"] == [("abcd", 4, 3, 3)]
    assert found["title"] == [("ab", 2, 2, 2), (" cd", 2, 1, 1), (" e f", 2, 0, 0)]


def test_texts_of_one_side_share_its_limit_with_a_separator_between_them() -> None:
    group = QueryGroup({}, [{"title": "ab", "brand": "cd"}])
    names = {"context": [], "item": ["title", "brand"]}
    found = TokenMatches(group, names, {"max_item_tokens": 4}, Letters(), 1.0).of(0)
    assert found == {"title": [MatchedWord("ab", 2, 2, 0)], "brand": [MatchedWord("cd", 2, 1, 0)]}


CUTS = {
    "": [],
    " ": [" "],
    "blue  sofa ": ["blue", "  sofa", " "],
    "half-price (new)": ["half", "-", "price", " ", "(", "new", ")"],
    "$5\u00a0off\tnow": ["$", "5", "\u00a0off", "\tnow"],
    "“Größe”": ["“", "Größe", "”"],
    "青いソファ": ["青", "いソファ"],
    "e\u0301te\u0301 x": ["e\u0301te\u0301", " x"],
}


@pytest.mark.parametrize(("text", "words"), CUTS.items())
def test_a_text_is_split_before_spaces_and_around_punctuation_and_chinese(text: str, words: list[str]) -> None:
    assert list(words_of(text)) == words


@pytest.fixture(scope="module")
def tokenise() -> Any:
    """The tokeniser of an exported model, with one-letter pieces, so that any difference shows."""
    from tests.serving.exported_models import tf, tokeniser_of, tokens_of

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokeniser = tokeniser_of([*special, *(mark + letter for letter in LETTERS for mark in ("", "##"))])
    return lambda texts: tokens_of(tokeniser, tf.constant(texts)).to_list()


LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,-'()!?/&%$+<=>_“”’、。ßøいソファー青椅子漢한국ع"
HARD = st.one_of(
    st.sampled_from(LETTERS + LETTERS.upper() + " \t\n\u00a0\u3000\u0301\u0338\u200b\u200d\x1cﬁ⑴½…Éé②％＄～"),
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
)


@settings(max_examples=100, deadline=None)
@given(text=st.text(HARD, max_size=24))
def test_the_tokens_of_the_words_concatenate_to_the_tokens_of_the_text(tokenise: Any, text: str) -> None:
    words = list(words_of(text))
    assert "".join(words) == text
    whole, *parts = tokenise([text, *words])
    assert [token for part in parts for token in part] == whole
