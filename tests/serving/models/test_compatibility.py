"""Which changes of a spec break existing clients."""

from typing import Any

import pytest

from features.spec import spec_from_json
from serving.models.compatibility import breaking_change

OLD: dict[str, dict[str, Any]] = {
    "query": {"type": "text", "level": "context"},
    "title": {"type": "text", "level": "item"},
    "price": {"type": "float", "level": "item", "default": 0.0},
    "click": {"type": "bool", "level": "item", "role": "privileged"},
    "purchase": {"type": "bool", "level": "item", "role": "label"},
}


def change(**features: dict[str, Any] | None) -> str | None:
    new = {name: feature for name, feature in (OLD | features).items() if feature is not None}
    return breaking_change(spec_from_json(OLD), spec_from_json(new))


def test_equal_features_and_new_ones_with_a_default_break_nothing() -> None:
    assert change() is None
    assert change(brand={"type": "categorical", "level": "item", "default": ""}) is None
    assert change(price={"type": "float", "level": "item", "default": 9.0}) is None
    assert change(add_to_cart={"type": "bool", "level": "item", "role": "privileged"}) is None
    assert change(click=None) is None


@pytest.mark.parametrize(
    ("features", "told"),
    [
        ({"price": None}, "does not read feature 'price'"),
        ({"price": {"type": "float", "level": "item"}}, "needs feature 'price'"),
        ({"brand": {"type": "categorical", "level": "item"}}, "needs feature 'brand'"),
        ({"price": {"type": "int", "level": "item", "default": 0}}, "'price' as int of the item, not as float of the"),
        ({"price": {"type": "float", "level": "context", "default": 0.0}}, "as float of the context"),
        (
            {"price": {"type": "float", "level": "item", "length": 2, "default": [0.0, 0.0]}},
            "as float of 2 of",
        ),
        ({"price": {"type": "float", "level": "item", "role": "privileged"}}, "does not read feature 'price'"),
        ({"title": {"type": "text", "level": "item", "default": ""}}, "takes a bare string for another feature"),
    ],
)
def test_a_breaking_change_is_named(features: dict[str, Any], told: str) -> None:
    assert told in str(change(**features))
