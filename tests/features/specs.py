"""Specs and query groups for the contract's tests: one of every type, and any that hypothesis draws."""

from typing import Any

from hypothesis import strategies as st

from features.elwc import QueryGroup
from features.spec import Feature, FeatureSpec, spec_from_json

LABEL = {"purchase": {"type": "bool", "level": "item", "role": "label"}}

DEMO: dict[str, Any] = {  # as configs/product_search.yaml has it
    "request_id": {"type": "text", "level": "context", "role": "id"},
    "query": {"type": "text", "level": "context"},
    "item_id": {"type": "text", "level": "item", "role": "id"},
    "title": {"type": "text", "level": "item"},
    "position": {"type": "int", "level": "item", "role": "privileged"},
    "click": {"type": "bool", "level": "item", "role": "privileged"},
    "add_to_cart": {"type": "bool", "level": "item", "role": "privileged"},
    "purchase": {"type": "bool", "level": "item", "role": "label"},
}

EVERY_TYPE: dict[str, Any] = {
    "query": {"type": "text", "level": "context"},
    "shop": {"type": "categorical", "level": "context", "default": "web"},
    "title": {"type": "text", "level": "item"},
    "price": {"type": "float", "level": "item", "default": 0},
    "picture": {"type": "float", "level": "item", "length": 3},
    "stock": {"type": "int", "level": "item", "default": -1},
    "new": {"type": "bool", "level": "item", "default": False},
    "brand": {"type": "categorical", "level": "item", "default": ""},
    "item_id": {"type": "text", "level": "item", "role": "id"},
    "position": {"type": "int", "level": "item", "role": "privileged"},
    "click": {"type": "bool", "level": "item", "role": "privileged"},
    **LABEL,
}


def every_type() -> FeatureSpec:
    return spec_from_json(EVERY_TYPE)


def spec_with(**features: dict[str, Any]) -> FeatureSpec:
    """A spec of these features and the label purchase."""
    return spec_from_json({**features, **LABEL})


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def values_of(feature: Feature) -> st.SearchStrategy[Any]:
    """Any value that the feature may have."""
    if feature.length > 1:
        return st.tuples(*[FLOATS] * feature.length)
    return {
        "text": TEXTS,
        "categorical": TEXTS,
        "float": FLOATS,
        "int": st.integers(-(2**63), 2**63 - 1),
        "bool": st.booleans(),
    }[feature.type]


@st.composite
def features(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Any feature that a task file may hold, as YAML gives it."""
    type_name = draw(st.sampled_from(["text", "float", "int", "bool", "categorical"]))
    fields = {
        "type": type_name,
        "level": draw(st.sampled_from(["context", "item"])),
        "role": draw(st.sampled_from(["regular", "privileged", "id"])),
        "length": draw(st.integers(1, 4)) if type_name == "float" else 1,
    }
    default = draw(st.none() | values_of(Feature(name=name, **fields)))
    return {**fields, "default": list(default) if isinstance(default, tuple) else default}


@st.composite
def sections(draw: st.DrawFn) -> dict[str, Any]:
    """Any `features:` section: `query`, which is regular, up to five others and the label."""
    names = draw(st.sets(st.from_regex(r"f[a-z0-9_]{0,4}", fullmatch=True), max_size=5))
    drawn = {name: draw(features(name)) for name in sorted(names)}
    return {"query": {"type": "text", "level": "context"}, **drawn, **LABEL}


@st.composite
def groups(draw: st.DrawFn, spec: FeatureSpec) -> QueryGroup:
    """Any query group of a spec, of up to four items."""
    context = {feature.name: draw(values_of(feature)) for feature in spec.at("context")}
    items = [
        {feature.name: draw(values_of(feature)) for feature in spec.at("item")} for _ in range(draw(st.integers(0, 4)))
    ]
    return QueryGroup(context, items)
