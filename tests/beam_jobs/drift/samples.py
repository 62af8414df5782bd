"""Query groups of an invented shop, drawn with a seed, for the tests of comparisons."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from beam_jobs.drift.feature_pairs import ComparisonSide
from beam_jobs.drift.group_sample import ValueCoder, may_show_values, sample_of
from features.elwc import QueryGroup
from features.spec import FeatureSpec, spec_from_json
from tests.features.specs import DEMO

SHOP: dict[str, Any] = {
    **DEMO,
    "device": {"type": "categorical", "level": "context", "default": "web"},
    "price": {"type": "float", "level": "item", "default": 0},
    "picture": {"type": "float", "level": "item", "length": 3, "default": [0, 0, 0]},
    "stock": {"type": "int", "level": "item", "default": -1},
    "new": {"type": "bool", "level": "item", "default": False},
    "brand": {"type": "categorical", "level": "item", "default": ""},
}


def spec() -> FeatureSpec:
    return spec_from_json(SHOP)


def draw(seed: int, groups: int, **changed: float) -> list[QueryGroup]:
    """Groups of 2 to 9 items that resemble one another: a query has a type, which decides its brands and prices.

    changed: what differs from the shop as it is: price_factor, bought (rate), new_brand and mobile (shares).
    """
    rng = np.random.default_rng(seed)
    return [_group(rng, number, seed, changed) for number in range(groups)]


def _group(rng: np.random.Generator, number: int, seed: int, changed: dict[str, float]) -> QueryGroup:
    kind = min(int(rng.zipf(1.7)), 300)
    context = {
        "request_id": f"s{seed}r{number}",
        "query": f"thing {kind} {'x' * int(rng.integers(0, 4))}",
        "device": "app" if rng.random() < changed.get("mobile", 0.4) else "web",
    }
    return QueryGroup(context, [_item(rng, kind, place, changed) for place in range(int(rng.integers(2, 10)))])


def _item(rng: np.random.Generator, kind: int, place: int, changed: dict[str, float]) -> dict[str, Any]:
    product = int(rng.integers(0, 40))
    label = bool(rng.random() < changed.get("bought", 0.05) * (1.6 if kind % 3 == 0 else 0.8))
    newcomer = rng.random() < changed.get("new_brand", 0.0)
    return {
        "item_id": f"{kind}-{product}",
        "title": f"thing {kind} no. {product}" + " fine" * (product % 3),
        "position": place,
        "click": bool(rng.random() < 0.2),
        "add_to_cart": label,
        "purchase": label,
        "price": float(np.float32(changed.get("price_factor", 1.0) * (5 + kind % 17) * np.exp(rng.normal() / 3))),
        "picture": tuple(np.float32(rng.normal(size=3)).tolist()),
        "stock": -1 if rng.random() < 0.1 else int(rng.integers(0, 50)),
        "new": product % 5 == 0,
        "brand": "newcomer" if newcomer else f"brand {(kind + product % 3) % 30}",
    }


def side(groups: Iterable[QueryGroup]) -> ComparisonSide:
    held = list(groups)
    return ComparisonSide(sample_of(held, spec(), len(held), names_in(held)))


def names_in(groups: Sequence[QueryGroup]) -> dict[int, str]:
    """Code -> value, of all categorical values: as if a manifest listed each of them."""
    names = {}
    for feature in filter(may_show_values, spec()):
        entries = (
            entry for group in groups for entry in ([group.context] if feature.level == "context" else group.items)
        )
        names.update(
            {ValueCoder(feature).code(value): value for value in {str(entry[feature.name]) for entry in entries}}
        )
    return names
