"""Parses LETOR lines (SVMlight: `relevance qid:ID feature:value ... # comment`) into query groups. Pure: no Beam."""

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import orjson

from features.values import MAX_TEXT_BYTES

_GRADES = {str(grade).encode(): grade for grade in range(32)}  # a larger grade's gain 2^r - 1 overflows 32 bits
_NUMBER_CHARACTERS = b"0123456789+-.eE"
_PAIRS_TO_JSON = bytes.maketrans(b": ", b",,")

LetorFloats = np.ndarray[Any, np.dtype[np.floating[Any]]]
LetorInts = np.ndarray[Any, np.dtype[np.int64]]


class MalformedLineError(Exception):
    """A line that is not a document. The message names the value and the expectation."""


class Document(NamedTuple):
    """One line. values: float64 [features]; 0 for features that the line omits."""

    query: str
    relevance: int
    name: str  # `docid` of the comment; empty without one
    values: LetorFloats


class JudgedGroup(NamedTuple):
    """A query's documents, in file order. relevance: int64 [n]; values: float64 [n, features]."""

    query: str
    item_ids: list[str]  # unique in the group
    relevance: LetorInts
    values: LetorFloats


class LineReader:
    """Reads lines with feature ids from 1 to `features`.

    named: bool [features], the features that any line has named so far.
    Consecutive lines mostly repeat the query and the feature ids, so these are checked only when they change.
    """

    def __init__(self, features: int) -> None:
        self._features = features
        self._query_token: bytes | None = None
        self._query = ""
        self._ids: list[float] = []
        self._indices = np.zeros(0, dtype=np.int64)
        self.named = np.zeros(features, dtype=np.bool_)

    def read(self, line: bytes) -> Document | None:
        """The line's document; None for a blank or comment line. Errors: MalformedLineError."""
        body, _, comment = line.partition(b"#")
        relevance, query, pairs = (*body.split(None, 2), b"", b"", b"")[:3]
        if not relevance:
            return None
        if relevance not in _GRADES:
            raise MalformedLineError(
                f"relevance is {_quoted(relevance)}, expected a whole number from 0 to {len(_GRADES) - 1}"
            )
        if query != self._query_token:
            self._query = _parse_query_id(query)
            self._query_token = query
        ids, numbers = parse_pairs(pairs.rstrip())
        if ids != self._ids:
            self._indices = _feature_indices(ids, self._features)
            self._ids = ids
            self.named[self._indices] = True
        values = np.zeros(self._features)
        # faster than np.array(numbers)
        values[self._indices] = np.frombuffer(struct.pack(f"{len(numbers)}d", *numbers))
        return Document(self._query, _GRADES[relevance], _parse_document_name(comment), values)


def _parse_query_id(token: bytes) -> str:
    """The ID of `qid:ID`. Errors: MalformedLineError."""
    if not token.startswith(b"qid:"):
        raise MalformedLineError(f"the second field is {_quoted(token)}, expected qid:ID")
    return _parse_printable(token[4:], "qid")


def _parse_document_name(comment: bytes) -> str:
    """The X of `docid = X`, the document name of LETOR 3.0 and 4.0; empty if the comment has none.

    Errors: MalformedLineError.
    """
    words = comment.partition(b"docid")[2].replace(b"=", b" ", 1).split(None, 1)
    return _parse_printable(words[0], "docid") if words else ""


def _parse_printable(token: bytes, what: str) -> str:
    """Errors: MalformedLineError."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable() or len(token) > MAX_TEXT_BYTES:
        raise MalformedLineError(f"{what} is {_quoted(token)}, expected printable text")
    return text


def parse_pairs(text: bytes) -> tuple[list[float], list[float]]:
    """Parses `id:value id:value ...` into ids and finite values. Errors: MalformedLineError.

    Pairs with single spaces and JSON numbers go through a JSON parser, several times faster than parsing each pair.
    All others (`.5`, `+1`, tabs) are parsed pair by pair, which also locates the malformed pair.
    """
    signs = text.translate(None, _NUMBER_CHARACTERS)
    if signs == (b": " * (len(signs) // 2 + 1))[:-1]:
        try:
            flat = orjson.loads(b"[%b]" % text.translate(_PAIRS_TO_JSON))
        except orjson.JSONDecodeError:
            pass
        else:
            return flat[::2], flat[1::2]
    pairs = [parse_pair(token) for token in text.split()]
    return [feature for feature, _ in pairs], [value for _, value in pairs]


def parse_pair(token: bytes) -> tuple[float, float]:
    feature, _, value = token.partition(b":")
    try:
        numbers = float(feature), float(value)
    except ValueError:
        numbers = math.nan, math.nan
    if b"_" in token or not all(map(math.isfinite, numbers)):  # float() accepts 1_000, which is malformed here
        raise MalformedLineError(f"a feature is {_quoted(token)}, expected id:value with finite numbers")
    return numbers


def _feature_indices(ids: Sequence[float], features: int) -> LetorInts:
    """Zero-based indices of feature ids. Errors: MalformedLineError."""
    before = 0.0
    for feature in ids:
        if feature != int(feature) or not 1 <= feature <= features:
            raise MalformedLineError(
                f"feature id is {feature:.12g}, expected a whole number from 1 to {features}, "
                "the sum of the lengths of the task's features regular and privileged"
            )
        if feature <= before:
            raise MalformedLineError(f"feature id {feature:.12g} comes after {before:.12g}, expected ascending ids")
        before = feature
    return np.array(ids, dtype=np.int64) - 1


def group_documents(documents: Iterable[Document]) -> Iterator[JudgedGroup]:
    """Groups consecutive documents of the same query."""
    for query, neighbours in groupby(documents, key=lambda document: document.query):
        members = list(neighbours)
        yield JudgedGroup(
            query,
            item_ids(members),
            np.array([document.relevance for document in members]),
            np.stack([document.values for document in members]),
        )


def item_ids(documents: Sequence[Document]) -> list[str]:
    """Ids of a group's documents: the document's name or a hash of its content, unique in the group.

    Documents with the same id get a number in the order of their content, so that ids do not depend on line order.
    """
    names = [document.name or _content_hash(document) for document in documents]
    if len(set(names)) == len(names):
        return names
    seen: Counter[str] = Counter()
    for place in sorted(range(len(names)), key=lambda place: (names[place], _content_hash(documents[place]))):
        name = names[place]
        seen[name] += 1
        if seen[name] > 1:
            names[place] = f"{name} {seen[name]}"  # unique: a name has no space
    return names


def _content_hash(document: Document) -> str:
    hashed = hashlib.blake2b(bytes([document.relevance]), digest_size=8)
    hashed.update(document.values.astype("<f8", copy=False).tobytes())
    return hashed.hexdigest()


def _quoted(token: bytes) -> str:
    text = token.decode(errors="backslashreplace")
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
