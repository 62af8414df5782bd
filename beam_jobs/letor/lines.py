"""LETOR's lines, `relevance qid:ID feature:value ... # comment` (SVMlight's form) -> query groups. Pure: no Beam."""

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

GRADES = {str(grade).encode(): grade for grade in range(32)}  # beyond it the gain 2^r - 1 is no 32-bit integer
OF_NUMBERS = b"0123456789+-.eE"
AS_JSON = bytes.maketrans(b": ", b",,")

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


class MalformedLineError(Exception):
    """A line that is no document: what it holds, and what was expected."""


class Document(NamedTuple):
    """One line. values: float64 [features]; what the line leaves out is 0."""

    query: str
    relevance: int
    name: str  # `docid` of the comment; empty where there is none
    values: Floats


class JudgedGroup(NamedTuple):
    """A query's documents, in file order. relevance: int64 [n]; values: float64 [n, features]."""

    query: str
    item_ids: list[str]  # unique in the group
    relevance: Ints
    values: Floats


class LineReader:
    """Reads lines whose feature ids are 1 to `features`.

    Neighbouring lines mostly have the query and the feature ids of the line before, so these are checked once.
    """

    def __init__(self, features: int) -> None:
        self._features = features
        self._query_token: bytes | None = None
        self._query = ""
        self._ids: list[float] = []
        self._places = np.zeros(0, dtype=np.int64)

    def read(self, line: bytes) -> Document | None:
        """The line's document; None where it is blank or all comment. Errors: MalformedLineError."""
        body, _, comment = line.partition(b"#")
        relevance, query, pairs = (*body.split(None, 2), b"", b"", b"")[:3]
        if not relevance:
            return None
        if relevance not in GRADES:
            raise MalformedLineError(
                f"relevance is {shown(relevance)}, expected a whole number from 0 to {len(GRADES) - 1}"
            )
        if query != self._query_token:
            self._query = query_of(query)
            self._query_token = query
        ids, numbers = read_pairs(pairs.rstrip())
        if ids != self._ids:
            self._places = places_of(ids, self._features)
            self._ids = ids
        values = np.zeros(self._features)
        values[self._places] = np.frombuffer(struct.pack(f"{len(numbers)}d", *numbers))  # faster than np.array(numbers)
        return Document(self._query, GRADES[relevance], name_of(comment), values)


def query_of(token: bytes) -> str:
    """The ID of `qid:ID`. Errors: MalformedLineError."""
    if not token.startswith(b"qid:"):
        raise MalformedLineError(f"the second field is {shown(token)}, expected qid:ID")
    return printable(token[4:], "qid")


def name_of(comment: bytes) -> str:
    """The X of `docid = X`, as LETOR 3.0 and 4.0 name a document; empty where the comment names none.

    Errors: MalformedLineError.
    """
    words = comment.partition(b"docid")[2].replace(b"=", b" ", 1).split(None, 1)
    return printable(words[0], "docid") if words else ""


def printable(token: bytes, what: str) -> str:
    """Errors: MalformedLineError."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable() or len(token) > MAX_TEXT_BYTES:
        raise MalformedLineError(f"{what} is {shown(token)}, expected printable text")
    return text


def read_pairs(text: bytes) -> tuple[list[float], list[float]]:
    """`id:value id:value ...` -> (ids, values), the values finite. Errors: MalformedLineError.

    Pairs as files hold them, with single spaces and numbers that JSON has too, are read by a JSON parser, several times
    faster than one by one, which is the way for all others (`.5`, `+1`, tabs) and finds the fault where there is one.
    """
    signs = text.translate(None, OF_NUMBERS)
    if signs == (b": " * (len(signs) // 2 + 1))[:-1]:
        try:
            flat = orjson.loads(b"[%b]" % text.translate(AS_JSON))
        except orjson.JSONDecodeError:
            pass
        else:
            return flat[::2], flat[1::2]
    pairs = [read_pair(token) for token in text.split()]
    return [feature for feature, _ in pairs], [value for _, value in pairs]


def read_pair(token: bytes) -> tuple[float, float]:
    feature, _, value = token.partition(b":")
    try:
        numbers = float(feature), float(value)
    except ValueError:
        numbers = math.nan, math.nan
    if b"_" in token or not all(map(math.isfinite, numbers)):  # Python takes 1_000, files do not
        raise MalformedLineError(f"a feature is {shown(token)}, expected id:value, a finite number")
    return numbers


def places_of(ids: Sequence[float], features: int) -> Ints:
    """Feature ids as places from 0. Errors: MalformedLineError."""
    before = 0.0
    for feature in ids:
        if feature != int(feature) or not 1 <= feature <= features:
            raise MalformedLineError(
                f"feature id is {feature:.12g}, expected a whole number from 1 to {features}, "
                "the lengths of the task's regular and privileged features together"
            )
        if feature <= before:
            raise MalformedLineError(f"feature id {feature:.12g} comes after {before:.12g}, expected ascending ids")
        before = feature
    return np.array(ids, dtype=np.int64) - 1


def groups_of(documents: Iterable[Document]) -> Iterator[JudgedGroup]:
    """Neighbouring documents of one query -> its group."""
    for query, together in groupby(documents, key=lambda document: document.query):
        members = list(together)
        yield JudgedGroup(
            query,
            item_ids(members),
            np.array([document.relevance for document in members]),
            np.stack([document.values for document in members]),
        )


def item_ids(documents: Sequence[Document]) -> list[str]:
    """Each document's identity, unique in its group, whatever the order of lines: its name, or a hash of its content.

    Documents that share it are numbered in the order of their content.
    """
    names = [document.name or content_hash(document) for document in documents]
    if len(set(names)) == len(names):
        return names
    seen: Counter[str] = Counter()
    for place in sorted(range(len(names)), key=lambda place: (names[place], content_hash(documents[place]))):
        name = names[place]
        seen[name] += 1
        if seen[name] > 1:
            names[place] = f"{name} {seen[name]}"  # no name holds a space
    return names


def content_hash(document: Document) -> str:
    hashed = hashlib.blake2b(bytes([document.relevance]), digest_size=8)
    hashed.update(document.values.astype("<f8", copy=False).tobytes())
    return hashed.hexdigest()


def shown(token: bytes) -> str:
    text = token.decode(errors="backslashreplace")
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
