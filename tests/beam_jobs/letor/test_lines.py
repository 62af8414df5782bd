"""Parsing of LETOR lines into documents and of documents into query groups."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.letor.lines import (
    Document,
    LineReader,
    MalformedLineError,
    group_documents,
    item_ids,
    parse_pair,
    parse_pairs,
)
from tests.beam_jobs.letor_sets import line


def read(text: bytes, features: int = 4) -> Document | None:
    return LineReader(features).read(text)


def values(text: bytes) -> list[float]:
    document = read(text)
    assert document is not None
    return document.values.tolist()


def test_a_line_has_relevance_query_values_and_the_name_in_its_comment():
    document = read(b"2 qid:10032 1:0.056537 2:-3 3:0 4:7e-2 #docid = GX029-35-5894638 inc = 0.0119 prob = 0.139842\n")
    assert document is not None
    assert (document.query, document.relevance, document.name) == ("10032", 2, "GX029-35-5894638")
    assert document.values.tolist() == [0.056537, -3.0, 0.0, 0.07]
    assert document.values.dtype == np.float64


@pytest.mark.parametrize("comment", [b"", b"#", b"# 2:9", b"#docid", b"# docid ="])
def test_a_comment_may_name_nothing(comment):
    document = read(b"0 qid:1 1:5 " + comment)
    assert document is not None
    assert document.name == ""
    assert document.values.tolist() == [5, 0, 0, 0]


def test_an_omitted_feature_is_0():
    assert values(b"0 qid:1 2:5 4:1") == [0, 5, 0, 1]
    assert values(b"0 qid:1") == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "text",
    [
        b"0 qid:1 1:0.5 2:1000 3:1\r\n",
        b"0 qid:1 1:0.5 2:1000 3:1 \n",
        b"  0\tqid:1\t1:0.5\t2:1000\t3:1\n",
        b"0 qid:1 1:0.5  2:1000  3:1",
        b"0 qid:1 1:.5 2:+1e3 3:1.",
        b"0 qid:1 1:5E-1 2:1e+3 3:001",
        b"0 qid:1 1:0.5 2:1000 3:1# 4:9",
    ],
    ids=["CRLF", "blank at the end", "tabs", "two blanks", "no JSON numbers", "exponents", "comment without a blank"],
)
def test_the_same_document_may_be_written_in_many_ways(text):
    assert values(text) == [0.5, 1000, 1, 0]


@pytest.mark.parametrize("text", [b"\n", b"\r\n", b" \t\n", b"# a header\n", b"  # a header"])
def test_a_blank_or_comment_line_is_not_a_document(text):
    assert read(text) is None


MALFORMED = {
    b"-1 qid:1 1:5": "relevance is '-1', expected a whole number from 0 to 31",
    b"1.5 qid:1 1:5": "relevance is '1.5'",
    b"32 qid:1 1:5": "relevance is '32'",
    b"0 1:5 2:6": "the second field is '1:5', expected qid:ID",
    b"0": "the second field is ''",
    b"0 qid: 1:5": "qid is '', expected printable text",
    b"0 qid:\xff 1:5": r"qid is '\\\\xff', expected printable text",
    b"0 qid:1 1:5 #docid = \x00": "docid is",
    b"0 qid:1 0:5": "feature id is 0, expected a whole number from 1 to 4, the sum of the lengths of",
    b"0 qid:1 -1:5": "feature id is -1",
    b"0 qid:1 5:5": "feature id is 5",
    b"0 qid:1 99999999999999999999:5": "feature id is 1e\\+20",
    b"0 qid:1 1.5:5": "feature id is 1.5",
    b"0 qid:1 3:5 2:6": "feature id 2 comes after 3, expected ascending ids",
    b"0 qid:1 3:5 3:6": "feature id 3 comes after 3",
    b"0 qid:1 3:5\t3:6": "feature id 3 comes after 3",
    b"0 qid:1 1:nan": "a feature is '1:nan', expected id:value with finite numbers",
    b"0 qid:1 1:-inf": "a feature is '1:-inf'",
    b"0 qid:1 1:1e999": "a feature is '1:1e999'",
    b"0 qid:1 1:1_000": "a feature is '1:1_000'",
    b"0 qid:1 1:5 two:6": "a feature is 'two:6'",
    b"0 qid:1 1:5 2": "a feature is '2'",
    b"0 qid:1 1: 2:6": "a feature is '1:'",
    b"0 qid:1 1:5 :6": "a feature is ':6'",
    b"0 qid:1 1:2:3 4": "a feature is '1:2:3'",
    b"0 qid:1 1 2:3:4": "a feature is '1'",
}


@pytest.mark.parametrize("text", MALFORMED)
def test_the_error_of_a_malformed_line_names_value_and_expectation(text):
    with pytest.raises(MalformedLineError, match=MALFORMED[text]):
        read(text)


def test_a_reader_carries_no_values_over_to_the_next_line():
    reader = LineReader(3)
    lines = [b"0 qid:1 1:1 2:2 3:3", b"1 qid:1 2:5", b"0 qid:2 1:7 2:8 3:9", b"0 qid:2"]
    documents = [reader.read(text) for text in lines]
    assert [(d.query, d.relevance, d.values.tolist()) for d in documents if d] == [
        ("1", 0, [1, 2, 3]),
        ("1", 1, [0, 5, 0]),
        ("2", 0, [7, 8, 9]),
        ("2", 0, [0, 0, 0]),
    ]
    for _ in range(2):  # a fault is a fault again
        with pytest.raises(MalformedLineError):
            reader.read(b"0 qid:2 3:1 2:1")


PAIRS = st.lists(
    st.tuples(st.integers(0, 999), st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70))
)


@given(PAIRS, st.sampled_from([" ", "  ", "\t"]))
def test_any_finite_numbers_are_read_as_written(pairs, separator):
    ids, numbers = parse_pairs(separator.join(f"{feature}:{value!r}" for feature, value in pairs).encode())
    assert ids == [feature for feature, _ in pairs]
    assert list(map(float, numbers)) == [float(value) for _, value in pairs]


@given(st.lists(st.sampled_from([*"0123456789.+-eE: ", "1:", " 2:", "nan", "\t"]), max_size=12).map("".join))
def test_the_json_parser_and_the_pair_parser_agree_on_any_text(text):
    def one_by_one() -> list[tuple[float, float]] | None:
        try:
            return [parse_pair(token) for token in text.encode().split()]
        except MalformedLineError:
            return None

    def at_once() -> list[tuple[float, float]] | None:
        try:
            ids, numbers = parse_pairs(text.encode().rstrip())
        except MalformedLineError:
            return None
        return [(float(feature), float(value)) for feature, value in zip(ids, numbers, strict=True)]

    assert at_once() == one_by_one()


# ---- groups ----


def documents(*lines: bytes) -> list[Document]:
    reader = LineReader(2)
    return [document for text in lines if (document := reader.read(text)) is not None]


def test_consecutive_documents_of_a_query_form_a_group():
    lines = [line(2, "b", [1, 2]), line(0, "b", [3, 4]), line(1, "a", [5, 6]), line(0, "b", [7, 8])]
    groups = list(group_documents(documents(*lines)))
    assert [(group.query, group.relevance.tolist()) for group in groups] == [("b", [2, 0]), ("a", [1]), ("b", [0])]
    assert groups[0].values.tolist() == [[1, 2], [3, 4]]


def test_a_documents_id_is_its_name_or_a_hash_of_relevance_and_values():
    named, plain, same, other, graded = item_ids(
        documents(
            line(0, 1, [1, 2], "docid = GX01"),
            line(0, 1, [1, 2]),
            b"0 qid:9 1:1.0 2:2e0 # another query, and written otherwise",
            line(0, 1, [1, 3]),
            line(1, 1, [1, 2]),
        )
    )
    assert named == "GX01"
    assert same == f"{plain} 2"  # the same content, so numbered; below, in groups of their own, it is the same name
    assert len({named, plain, same, other, graded}) == 5
    assert len(plain) == 16
    assert math.isfinite(int(plain, 16))


def test_documents_with_one_name_are_numbered_independently_of_their_order():
    lines = [line(0, 1, [1, 2], "docid = X"), line(1, 1, [3, 4], "docid = X"), line(0, 1, [5, 6], "docid = Y")]
    known = set()
    for order in itertools.permutations(lines):
        read_in_order = documents(*order)
        by_content = {d.values.tobytes(): name for d, name in zip(read_in_order, item_ids(read_in_order), strict=True)}
        known.add(tuple(sorted(by_content.items())))
        assert sorted(by_content.values()) == ["X", "X 2", "Y"]
    assert len(known) == 1
