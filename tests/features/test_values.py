"""One rule for a value, wherever it comes from: log, product table or request."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.values import MAX_TEXT_BYTES, check_value, describe_type

LARGEST = struct.unpack(">f", bytes.fromhex("7f7fffff"))[0]  # the largest finite float32

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("type_name", "length", "raw", "value"),
    [
        ("text", 1, "", ""),
        ("text", 1, "ein Sofa, blau 🛋", "ein Sofa, blau 🛋"),
        ("text", 1, "a" * MAX_TEXT_BYTES, "a" * MAX_TEXT_BYTES),
        ("categorical", 1, "norr", "norr"),
        ("categorical", 1, 17, "17"),
        ("float", 1, 2, 2.0),
        ("float", 1, LARGEST, LARGEST),
        ("float", 1, -LARGEST, -LARGEST),
        ("float", 3, [1, 2.5, -0.0], (1.0, 2.5, -0.0)),
        ("int", 1, 2**63 - 1, 2**63 - 1),
        ("int", 1, -(2**63), -(2**63)),
        ("int", 1, 3.0, 3),
        ("bool", 1, True, True),
        ("bool", 1, 0, False),
    ],
)
def test_a_value_of_its_type_passes(type_name: str, length: int, raw: Any, value: Any):
    checked, reason = check_value(type_name, length, raw)
    assert (checked, type(checked), reason) == (value, type(value), None)


@pytest.mark.parametrize(
    ("type_name", "length", "raw", "expectation"),
    [
        ("text", 1, 7, "is 7, expected text"),
        ("text", 1, None, "is None, expected text"),
        ("text", 1, "a\0b", "NUL"),
        ("text", 1, "\ud800", "lone surrogate"),
        ("text", 1, "é" * (MAX_TEXT_BYTES // 2 + 1), "has 65538 bytes, expected at most 65536"),
        ("categorical", 1, True, "is True, expected text"),
        ("categorical", 1, "\0", "NUL"),
        ("float", 1, "2.5", "is '2.5', expected a number"),
        ("float", 1, True, "is True, expected a number"),
        ("float", 1, float("nan"), "finite as float32"),
        ("float", 1, float("-inf"), "finite as float32"),
        ("float", 1, 1e39, "finite as float32"),
        ("float", 1, 10**400, "finite as float32"),
        ("float", 2, [1.0], r"is \[1.0\], expected a list of 2 numbers"),
        ("float", 2, 1.0, "expected a list of 2 numbers"),
        ("float", 2, [1.0, "2"], "holds a value that is '2', expected a number"),
        ("int", 1, 2.5, "is 2.5, expected a whole number"),
        ("int", 1, float("inf"), "expected a whole number"),
        ("int", 1, 2**63, "64 bits"),
        ("int", 1, False, "is False, expected a whole number"),
        ("int", 1, "3", "is '3', expected a whole number"),
        ("bool", 1, 2, "is 2, expected true or false"),
        ("bool", 1, 1.0, "is 1.0, expected true or false"),
        ("bool", 1, "true", "is 'true', expected true or false"),
        ("bool", 1, [], r"is \[\], expected true or false"),
    ],
)
def test_anything_else_is_refused_with_value_and_expectation(type_name: str, length: int, raw: Any, expectation: str):
    value, reason = check_value(type_name, length, raw)
    assert value is None
    with pytest.raises(ValueError, match=expectation):
        raise ValueError(reason)


@given(type_name=st.sampled_from(["text", "float", "int", "bool", "categorical"]), length=st.integers(1, 3), raw=JSON)
def test_no_json_value_escapes_the_rule(type_name: str, length: int, raw: Any):
    value, reason = check_value(type_name, length, raw)
    assert (value is None) != (reason is None)
    if reason is None:  # an accepted value is a fixed point
        assert check_value(type_name, length, value) == (value, None)


def test_a_long_value_is_shown_short():
    reason = check_value("int", 1, "x" * 10_000)[1]
    assert reason is not None
    assert len(reason) < 120


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (None, "missing"), (True, "true"), ("jane@example.com", "text of 16 characters"),
        (7, "a whole number of 1 digit"),
        (-32470123456, "a negative whole number of 11 digits"), (10**50, "a whole number of 40 or more digits"),
        (1.5, "a fractional number"), ([1, "x"], "a list of 2"), ({"jane": 1}, "an object of 1 fields"),
    ],
)  # fmt: skip
def test_the_kind_of_a_value_holds_nothing_of_it(raw, kind):
    assert describe_type(raw) == kind
