"""Finds the words that a query and an item have in common, by the model's own tokens. `debug` shows them."""

import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from features.elwc import QueryGroup
from features.values import Value

SPECIAL_TOKENS = 4  # [PAD] [UNK] [CLS] [SEP] have the ids 0 to 3 in every vocabulary; they never match

_SplitTexts = dict[str, tuple[list[str], str]]
"""Feature -> its words that may fit the token limit, and the rest of the text, which the model does not read."""

_TokenisedWords = dict[str, list[tuple[str, int, list[int]]]]
"""Feature -> for each word: its text, its number of tokens, and the ids of those that the model reads."""


class TokenSource(Protocol):
    """Tokenises texts, without special tokens and without truncation."""

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]: ...

    def token_counts(self, texts: list[str], seconds: float) -> Iterable[Any]: ...


@dataclass(frozen=True, slots=True)
class MatchedWord:
    """A part of a text, with the space before it. The words of a text concatenate to the text.

    tokens: its number of tokens.
    read: how many of them the model reads. The text behind the token limit is one last word with read = 0.
    matched: how many of the read tokens the model also reads on the other side (query or item).
    """

    text: str
    tokens: int
    read: int
    matched: int


class TokenMatches:
    """Token matches between the query and the items of one query group.

    names: level -> its text features, in the order in which the model reads them.
    limits: `max_context_tokens` and `max_item_tokens`, if the model has them; separators between texts count.
    """

    def __init__(
        self,
        group: QueryGroup,
        names: Mapping[str, Sequence[str]],
        limits: Mapping[str, int],
        tokeniser: TokenSource,
        seconds: float,
    ) -> None:
        self._limits = {level: limits.get(f"max_{level}_tokens", sys.maxsize) for level in names}
        self._context = _split(group.context, names["context"], self._limits["context"])
        self._items = [_split(item, names["item"], self._limits["item"]) for item in group.items]
        texts = [text for side in (self._context, *self._items) for text in side.values()]
        words = list({word: None for split, _ in texts for word in split})
        rests = list({rest: None for _, rest in texts if rest})
        self._tokens = dict(zip(words, tokeniser.tokens(words, seconds) if words else [], strict=True))
        self._unread = dict(zip(rests, map(int, tokeniser.token_counts(rests, seconds)) if rests else [], strict=True))

    def of(self, item: int) -> dict[str, list[MatchedWord]]:
        """Returns the words of each text feature of the query and of the item at this index."""
        query, title = self._words(self._context, "context"), self._words(self._items[item], "item")
        return _matched_words(query, _read_tokens(title)) | _matched_words(title, _read_tokens(query))

    def _words(self, side: _SplitTexts, level: str) -> _TokenisedWords:
        tokenised: _TokenisedWords = {}
        left = self._limits[level]
        for place, (name, (words, rest)) in enumerate(side.items()):
            left -= place > 0  # the separator
            tokenised[name] = []
            remaining = iter(words)
            while left > 0 and (word := next(remaining, None)) is not None:
                tokens = self._tokens[word]
                tokenised[name].append((word, len(tokens), tokens[:left]))
                left -= len(tokens)
            unread = list(remaining)
            if unread or rest:
                count = sum(len(self._tokens[word]) for word in unread) + self._unread.get(rest, 0)
                tokenised[name].append(("".join(unread) + rest, count, []))
        return tokenised


def _split(values: Mapping[str, Value], names: Sequence[str], limit: int) -> _SplitTexts:
    """Splits each text into words, at most as many as can fit the limit: a word with a letter has a token."""
    split: _SplitTexts = {}
    for name in names:
        text, words, at, lettered = str(values[name]), list[str](), 0, 0
        for word in words_of(text):
            if lettered >= limit:
                break
            words.append(word)
            at += len(word)
            lettered += word[-1].isalnum() or _stands_alone(word[-1])
        split[name] = words, text[at:]
    return split


def _read_tokens(side: _TokenisedWords) -> set[int]:
    """Returns the ids of the tokens that the model reads and that can match."""
    return {token for words in side.values() for _, _, read in words for token in read if token >= SPECIAL_TOKENS}


def _matched_words(side: _TokenisedWords, others: set[int]) -> dict[str, list[MatchedWord]]:
    return {
        name: [
            MatchedWord(word, tokens, len(read), sum(token in others for token in read)) for word, tokens, read in words
        ]
        for name, words in side.items()
    }


def words_of(text: str) -> Iterator[str]:
    """Splits a text where every tokeniser splits it: before spaces, and around punctuation and Chinese characters.

    The tokens of the words therefore concatenate to the tokens of the text.
    Source: the basic tokeniser of BERT (Devlin et al. 2019), on which the pieces are learned.
    """
    start = 0
    for at in range(1, len(text)):
        before, here = text[at - 1], text[at]
        if _stands_alone(here) or _stands_alone(before) or (_is_space(here) and not _is_space(before)):
            yield text[start:at]
            start = at
    if text:
        yield text[start:]


def _is_space(character: str) -> bool:
    return character in "\t\n\r" or unicodedata.category(character) == "Zs"


def _stands_alone(character: str) -> bool:
    if character.isascii():
        return not character.isalnum() and character.isprintable() and character != " "
    return unicodedata.category(character)[0] == "P" or any(low <= character <= high for low, high in _CHINESE)


_CHINESE = (("\u3400", "\u4dbf"), ("\u4e00", "\u9fff"))
