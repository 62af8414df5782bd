"""FeatureSpec: what a task file may say, what it means, and when two are the same."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from features.errors import InputError
from features.spec import BEHAVIOUR_NAMES, RESERVED_NAMES, load_spec, spec_from_json
from tests.features.specs import EVERY_TYPE, LABEL, every_type, sections, spec_with

QUERY = {"query": {"type": "text", "level": "context"}}


def names(features: Any) -> list[str]:
    return [feature.name for feature in features]


def test_features_are_told_apart_by_role_and_level():
    spec = every_type()
    assert names(spec.regular) == ["query", "shop", "title", "price", "picture", "stock", "new", "brand"]
    assert names(spec.privileged) == ["position", "click"]
    assert names(spec.with_role("id")) == ["item_id"]
    assert spec.label.name == "purchase"
    assert names(spec.at("context")) == ["query", "shop"]
    assert names(spec.at("item", spec.privileged)) == ["position", "click"]
    assert names(spec) == list(EVERY_TYPE)


def test_no_feature_among_none_is_at_a_level():
    # a spec without privileged features must not answer with all of them
    spec = spec_with(**QUERY)
    assert spec.at("item", spec.privileged) == ()


def test_a_spec_needs_no_text():
    spec = spec_with(price={"type": "float", "level": "item"})
    assert not any(feature.is_text for feature in spec)


def test_numbers_are_numeric_and_words_are_not():
    spec = every_type()
    assert [f.name for f in spec.regular if f.is_numeric] == ["price", "picture", "stock", "new"]


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("query", "sofa", "sofa"),
        ("price", None, 0.0),
        ("price", 3, 3.0),
        ("brand", None, ""),
        ("brand", 12, "12"),
        ("stock", None, -1),
        ("new", None, False),
        ("picture", [1, 2, 3], (1.0, 2.0, 3.0)),
    ],
)
def test_a_raw_value_becomes_the_feature_s_value(name: str, raw: Any, value: Any):
    found, reason = every_type()[name].value_of(raw)
    assert (found, type(found), reason) == (value, type(value), None)


@pytest.mark.parametrize("raw", [None, "", "  \t\n"])
def test_blank_text_without_a_default_is_missing(raw: Any):
    assert every_type()["query"].value_of(raw) == (None, "is missing and has no default")


def test_blank_text_with_a_default_takes_it():
    spec = spec_with(query={"type": "text", "level": "context", "default": "(none)"})
    assert spec["query"].value_of(" ") == ("(none)", None)


def test_a_wrong_value_is_not_replaced_by_the_default():
    assert every_type()["price"].value_of("cheap") == (None, "is 'cheap', expected a number")


# --- fingerprints and differences


def test_the_fingerprint_hashes_the_canonical_form():
    canonical = {
        "purchase": {"default": None, "length": 1, "level": "item", "role": "label", "type": "bool"},
        "query": {"default": None, "length": 1, "level": "context", "role": "regular", "type": "text"},
    }
    expected = hashlib.sha256(json.dumps(canonical, sort_keys=True).encode()).hexdigest()
    assert spec_with(**QUERY).fingerprint == expected


def test_the_order_of_the_features_does_not_matter():
    turned = spec_from_json(dict(reversed(EVERY_TYPE.items())))
    assert turned.fingerprint == every_type().fingerprint
    assert turned.first_difference(every_type()) is None


@pytest.mark.parametrize(
    ("type_name", "one", "other"), [("float", 0, 0.0), ("bool", 1, True), ("int", 2, 2.0), ("categorical", 7, "7")]
)
def test_two_spellings_of_a_default_are_one(type_name: str, one: Any, other: Any):
    first, second = (spec_with(**QUERY, x={"type": type_name, "level": "item", "default": d}) for d in (one, other))
    assert first.fingerprint == second.fingerprint
    assert first.first_difference(second) is None


@given(sections())
def test_the_canonical_form_reads_back(section: dict[str, Any]):
    spec = spec_from_json(section)
    again = spec_from_json(json.loads(json.dumps(spec.to_json())))
    assert again.to_json() == spec.to_json()
    assert again.fingerprint == spec.fingerprint


@given(sections(), sections())
def test_fingerprints_differ_exactly_when_a_difference_is_named(one: dict[str, Any], other: dict[str, Any]):
    first, second = spec_from_json(one), spec_from_json(other)
    assert (first.fingerprint == second.fingerprint) == (first.first_difference(second) is None)


@given(sections(), st.data())
def test_any_changed_field_changes_the_fingerprint(section: dict[str, Any], data: st.DataObject):
    name = data.draw(st.sampled_from(sorted(set(section) - {"purchase"})))
    level = {"context": "item", "item": "context"}[section[name]["level"]]
    changed = spec_from_json({**section, name: {**section[name], "level": level}})
    spec = spec_from_json(section)
    assume(changed.to_json() != spec.to_json())
    assert changed.fingerprint != spec.fingerprint
    assert str(spec.first_difference(changed)).startswith(f"{name}: level ")


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"price": {"type": "float", "level": "item", "role": "privileged", "default": 0}},
         "price: role 'regular' here, 'privileged' there"),
        ({"price": {"type": "float", "level": "item", "default": 1}}, "price: default 0.0 here, 1.0 there"),
        ({"picture": {"type": "float", "level": "item", "length": 4}}, "picture: length 3 here, 4 there"),
        ({"query": {"type": "categorical", "level": "context"}}, "query: type 'text' here, 'categorical' there"),
        ({"colour": {"type": "text", "level": "item"}}, "colour: absent here, present there"),
    ],
)  # fmt: skip
def test_the_first_difference_says_what_and_how(change: dict[str, Any], difference: str):
    assert every_type().first_difference(spec_from_json({**EVERY_TYPE, **change})) == difference


def test_an_absent_feature_is_a_difference_on_either_side():
    less = spec_from_json({name: fields for name, fields in EVERY_TYPE.items() if name != "brand"})
    assert every_type().first_difference(less) == "brand: present here, absent there"
    assert less.first_difference(every_type()) == "brand: absent here, present there"


def test_the_first_difference_is_the_first_by_name():
    other = spec_from_json(
        {**EVERY_TYPE, "title": {"type": "categorical", "level": "item"}, "brand": {"type": "text", "level": "item"}}
    )
    assert str(every_type().first_difference(other)).startswith("brand: ")


def test_another_spec_is_refused_with_its_difference_and_the_remedy():
    other = spec_from_json({**EVERY_TYPE, "brand": {"type": "text", "level": "item"}})
    expected = (
        r"build/dataset was made with other features \(brand: type 'categorical' here, 'text' there\): build it again"
    )
    with pytest.raises(InputError, match=expected):
        every_type().check_same_features(other, "build/dataset", "build it again")
    every_type().check_same_features(every_type(), "build/dataset", "build it again")


# --- what a task file may not say


def item(**fields: Any) -> dict[str, Any]:
    return {"type": "float", "level": "item", **fields}


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({**QUERY, **LABEL, "x": item(type="number")}, r"features\.x\.type is 'number'.*'text', 'float', 'int'"),
        ({**QUERY, **LABEL, "x": item(level="user")}, r"features\.x\.level is 'user'.*'context' or 'item'"),
        ({**QUERY, **LABEL, "x": item(role="secret")}, r"features\.x\.role is 'secret'.*'regular', 'privileged'"),
        ({**QUERY, **LABEL, "x": {"level": "item"}}, r"features\.x\.type .*[Ff]ield required"),
        ({**QUERY, **LABEL, "x": item(lenght=3)}, r"features\.x\.lenght is 3: unknown key, expected one of .*length"),
        ({**QUERY, **LABEL, "x": item(length=0)}, r"features\.x\.length is 0.*greater than or equal to 1"),
        ({**QUERY, **LABEL, "x": item(length=65537)}, r"features\.x\.length is 65537.*less than or equal to 65536"),
        ({**QUERY, **LABEL, "x": item(length="3")}, r"features\.x\.length is '3'.*integer"),
        ({**QUERY, **LABEL, "x": item(length=True)}, r"features\.x\.length is True.*integer"),
        ({**QUERY, **LABEL, "x": item(type="int", length=2)}, "length 2 on type int: only floats may be vectors"),
        ({**QUERY, **LABEL, "x": item(name="y")}, r"features\.x\.name is 'y': a feature's key is its name"),
        ({**QUERY, **LABEL, "x": item(default="cheap")}, r"features\.x\.default is 'cheap'.*expected a number"),
        ({**QUERY, **LABEL, "x": item(length=2, default=[1])}, r"features\.x\.default .*expected a list of 2 numbers"),
        ({**QUERY, **LABEL, "x": item(default=float("nan"))}, r"features\.x\.default .*finite as float32"),
        ({**QUERY, **LABEL, "x": item(type="text", default="a\0")}, r"features\.x\.default .*NUL"),
        ({**QUERY, **LABEL, "x": item(type="bool", default=2)}, r"features\.x\.default .*true or false"),
        ({**QUERY, **LABEL, "x": "float"}, r"features\.x is 'float', expected a mapping such as \{type: text"),
        ({**QUERY, **LABEL, "x": None}, r"features\.x is None, expected a mapping"),
        ({**QUERY, **LABEL, "Price": item()}, "name 'Price': expected lower-case letters"),
        ({**QUERY, **LABEL, "x" * 64: item()}, "expected lower-case letters"),
        ({**QUERY, **LABEL, "": item()}, "name '': expected lower-case letters"),
        ({**QUERY, **LABEL, 1: item()}, "name '1': expected lower-case letters"),
        ({**QUERY, **LABEL, "x\n": item()}, "expected lower-case letters"),
        (LABEL, "features: none is regular"),
        (QUERY, r"features: 0 have role label \(\[\]\), expected exactly one"),
        ({**QUERY, **LABEL, "click": item(type="bool", role="label")}, "features: 2 have role label"),
        ({**QUERY, "bought": item(level="context", role="label")}, "a label is one bool, int or float"),
        ({**QUERY, "bought": item(type="text", role="label")}, "a label is one bool, int or float"),
        ({**QUERY, "bought": item(length=2, role="label")}, "a label is one bool, int or float"),
    ],
)  # fmt: skip
def test_a_wrong_feature_is_refused_with_its_value_and_what_was_expected(section: dict[Any, Any], complaint: str):
    with pytest.raises(InputError, match=complaint):
        spec_from_json(section)


@pytest.mark.parametrize("name", sorted(BEHAVIOUR_NAMES))
@pytest.mark.parametrize("role", ["regular", "id"])
def test_behaviour_cannot_be_smuggled_in_as_a_feature_that_serving_sees(name: str, role: str):
    # "a label marked regular" is one of these: purchase
    section = {**QUERY, **LABEL, name: {"type": "bool", "level": "item", "role": role}}
    with pytest.raises(InputError, match=f"{name!r} is what shoppers did after the results were shown"):
        spec_from_json(section)


def test_behaviour_is_regular_by_default_and_so_refused():
    with pytest.raises(InputError, match="make its role privileged or label"):
        spec_from_json({**QUERY, **LABEL, "click": {"type": "bool", "level": "item"}})


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_names_of_the_serving_contract_are_taken(name: str):
    with pytest.raises(InputError, match=f"name {name!r} is taken by the serving contract"):
        spec_with(**QUERY, **{name: item()})


@pytest.mark.parametrize("section", [None, [], {}, "query", 3])
def test_a_task_without_a_features_mapping_is_refused(section: Any):
    with pytest.raises(InputError, match="expected a mapping of feature names"):
        load_spec({"features": section})
    with pytest.raises(InputError, match="features is None"):
        load_spec({})
