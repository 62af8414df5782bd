"""Which words of a query and of an item meet, told in the tokens of the model that scored them: what `debug` shows."""

import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from features.elwc import QueryGroup
from features.values import Value

SPECIAL_TOKENS = 4  # [PAD] [UNK] [CLS] [SEP], the first of every vocabulary: they match nothing

Cut = dict[str, tuple[list[str], str]]
"""A query's or an item's texts by feature: the words that may be read, and the rest, which is not."""

Side = dict[str, list[tuple[str, int, list[int]]]]
"""The same in tokens: each word, how many it has, and those of them that the model reads."""


class Tokeniser(Protocol):
    """Tokens of texts, special ones not counted and not truncated."""

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]: ...

    def token_counts(self, texts: list[str], seconds: float) -> Iterable[Any]: ...


@dataclass(frozen=True, slots=True)
class Word:
    """A part of a text, the space before it included: a text's words, one after another, are the text.

    tokens: how many it has. read: how many of them the model reads; all that lies behind its limit is one last word.
    matched: how many of the read ones are among those read of the other side, the item for the query's words.
    """

    text: str
    tokens: int
    read: int
    matched: int


class Matches:
    """One query group's words.

    names: the text features of each level, in the order in which the model reads them.
    limits: `max_context_tokens` and `max_item_tokens`, where there are such; a separator between two texts counts.
    """

    def __init__(
        self,
        group: QueryGroup,
        names: Mapping[str, Sequence[str]],
        limits: Mapping[str, int],
        tokeniser: Tokeniser,
        seconds: float,
    ) -> None:
        self._limits = {level: limits.get(f"max_{level}_tokens", sys.maxsize) for level in names}
        self._context = _cut(group.context, names["context"], self._limits["context"])
        self._items = [_cut(item, names["item"], self._limits["item"]) for item in group.items]
        texts = [text for side in (self._context, *self._items) for text in side.values()]
        words = list({word: None for found, _ in texts for word in found})
        rests = list({rest: None for _, rest in texts if rest})
        self._tokens = dict(zip(words, tokeniser.tokens(words, seconds) if words else [], strict=True))
        self._unread = dict(zip(rests, map(int, tokeniser.token_counts(rests, seconds)) if rests else [], strict=True))

    def of(self, item: int) -> dict[str, list[Word]]:
        """The words of each text feature, the query's and this item's."""
        asked, held = self._words(self._context, "context"), self._words(self._items[item], "item")
        return _told(asked, _read(held)) | _told(held, _read(asked))

    def _words(self, side: Cut, level: str) -> Side:
        told: Side = {}
        left = self._limits[level]
        for place, (name, (words, rest)) in enumerate(side.items()):
            left -= place > 0  # the separator
            told[name] = []
            coming = iter(words)
            while left > 0 and (word := next(coming, None)) is not None:
                tokens = self._tokens[word]
                told[name].append((word, len(tokens), tokens[:left]))
                left -= len(tokens)
            unread = list(coming)
            if unread or rest:
                count = sum(len(self._tokens[word]) for word in unread) + self._unread.get(rest, 0)
                told[name].append(("".join(unread) + rest, count, []))
        return told


def _cut(values: Mapping[str, Value], names: Sequence[str], limit: int) -> Cut:
    """Each text in at most as many words as the model may read: each word with a letter has a token."""
    cut: Cut = {}
    for name in names:
        text, words, at, lettered = str(values[name]), list[str](), 0, 0
        for word in words_of(text):
            if lettered >= limit:
                break
            words.append(word)
            at += len(word)
            lettered += word[-1].isalnum() or _stands_alone(word[-1])
        cut[name] = words, text[at:]
    return cut


def _read(side: Side) -> set[int]:
    """The tokens of a side that the model reads and that can match."""
    return {token for words in side.values() for _, _, read in words for token in read if token >= SPECIAL_TOKENS}


def _told(side: Side, others: set[int]) -> dict[str, list[Word]]:
    return {
        name: [Word(word, tokens, len(read), sum(token in others for token in read)) for word, tokens, read in words]
        for name, words in side.items()
    }


def words_of(text: str) -> Iterator[str]:
    """The text cut where its tokeniser cuts for certain: before spaces, and around punctuation and Chinese characters.

    So the words' tokens, one word after another, are the text's.
    Source: the basic tokeniser of BERT (Devlin et al. 2019), on which the pieces are learned.
    """
    began = 0
    for at in range(1, len(text)):
        before, here = text[at - 1], text[at]
        if _stands_alone(here) or _stands_alone(before) or (_is_space(here) and not _is_space(before)):
            yield text[began:at]
            began = at
    if text:
        yield text[began:]


def _is_space(character: str) -> bool:
    return character in "\t\n\r" or unicodedata.category(character) == "Zs"


def _stands_alone(character: str) -> bool:
    if character.isascii():
        return not character.isalnum() and character.isprintable() and character != " "
    return unicodedata.category(character)[0] == "P" or any(low <= character <= high for low, high in _CHINESE)


_CHINESE = (("\u3400", "\u4dbf"), ("\u4e00", "\u9fff"))
