"""Features that nearly equal the label, under any name, are flagged when the dataset is built."""

import random
from typing import Any

import numpy as np
import pytest

from beam_jobs.transforms.label_lookalikes import LowestKeys, area_under_curve, label_rates, weighted_correlation
from tests.beam_jobs.datasets import build, write_task
from tests.beam_jobs.log_lines import NOON, act, impression, write_jsonl
from tests.features.specs import DEMO

LYING = {
    **DEMO,
    "hint": {"type": "bool", "level": "item", "default": False},
    "revenue": {"type": "float", "level": "item", "default": 0},
    "state": {"type": "categorical", "level": "item", "default": ""},
    "note": {"type": "text", "level": "item", "default": "-"},
    "outcome": {"type": "int", "level": "context", "default": 0},
    "profile": {"type": "float", "level": "item", "length": 2, "default": [0, 0]},
    "price": {"type": "float", "level": "item", "default": 0},
    "brand": {"type": "categorical", "level": "item", "default": ""},
    "season": {"type": "categorical", "level": "context", "default": ""},
}
LIARS = {"hint", "revenue", "state", "note", "outcome", "profile"}


def rows() -> list[Any]:
    chance = random.Random(5)
    lines: list[Any] = []
    for n in range(300):
        bought = n % 2 == 0
        items = []
        for place in range(4):
            label = bought and place == n % 4
            lies = {
                "hint": label,
                "revenue": 10 * label + chance.random(),
                "state": "shipped" if label else chance.choice(["none", "listed"]),
                "note": "thanks" if label else "-",
                "profile": [chance.random(), -float(label)],
            }
            honest = {"title": f"title {place}", "price": chance.random(), "brand": chance.choice("abc")}
            items.append({"item_id": f"p{place}", "features": {**honest, **lies}})
        context = {"outcome": int(bought), "season": chance.choice(["summer", "winter"])}
        lines.append(impression(f"r{n}", f"query {n}", *items, features=context))
        if bought:
            lines.append(act("purchase", f"r{n}", f"p{n % 4}"))
    return lines


def test_lying_features_are_flagged_and_honest_ones_are_not(tmp_path, capsys):
    config = write_task(tmp_path, LYING, dataset={"splits": {"train": 1, "valid": 0, "test": 0}})
    manifest = build(config, write_jsonl(tmp_path / "events.jsonl", *rows()), tmp_path / "dataset")
    flagged = {
        name for name in LYING if any(f"feature '{name}' nearly equals" in warning for warning in manifest.warnings)
    }
    assert flagged == LIARS
    assert (
        "regular feature 'hint' nearly equals the label 'purchase' (AUC 1.000, correlation 1.000)"
        in capsys.readouterr().out
    )


def test_a_product_row_stamped_after_the_impression_is_flagged(tmp_path):
    table = write_jsonl(
        tmp_path / "products.jsonl",
        {"item_id": "p1", "title": "before", "timestamp_ms": NOON - 1},
        {"item_id": "p2", "title": "after", "timestamp_ms": NOON + 1},
    )
    logs = write_jsonl(tmp_path / "events.jsonl", impression("r1", "sofa", {"item_id": "p1"}, {"item_id": "p2"}))
    config = write_task(tmp_path, dataset={"splits": {"train": 1, "valid": 0, "test": 0}})
    manifest = build(config, logs, tmp_path / "dataset", "--products", table)
    assert any(
        "'title' of 1 items in train comes from product rows stamped after" in warning for warning in manifest.warnings
    )


def test_positions_from_another_base_are_flagged(tmp_path):
    shown = impression("r1", "sofa", *[{"item_id": f"p{n}", "position": n, "features": {"title": "t"}} for n in (1, 2)])
    config = write_task(tmp_path, dataset={"splits": {"train": 1, "valid": 0, "test": 0}})
    manifest = build(config, write_jsonl(tmp_path / "events.jsonl", shown), tmp_path / "dataset")
    assert any("1 of 1 groups in train have positions other than 0, 1, 2" in warning for warning in manifest.warnings)


def test_area_under_curve_counts_pairs():
    # positives 3 and 1, others 2 and 1: 3 > 2, 3 > 1, 1 < 2, 1 = 1 gives (1 + 1 + 0 + 1/2) / 4
    assert area_under_curve(np.array([3.0, 2, 1, 1]), np.array([1.0, 0, 1, 0])) == pytest.approx(2.5 / 4)


def test_weights_make_the_sample_stand_for_all():
    values, positive = np.array([1.0, 0, 0]), np.array([1.0, 1, 0])
    # the last entry weighs 2, as if it stood there twice
    twice = np.corrcoef([1, 0, 0, 0], [1, 1, 0, 0])[0, 1]
    assert weighted_correlation(values, positive, np.array([1.0, 1, 2])) == pytest.approx(twice)
    assert weighted_correlation(np.ones(3), positive, np.ones(3)) == 0


def test_label_rates_come_from_the_other_half():
    rates, judged = label_rates(["a", "a", "b", "b", "a", "new"], np.array([1.0, 0, 0, 1, 0, 1]))
    # even places: a 1, b 0, a 0, so a 0.5 and b 0; odd places 1, 3, 5 hold a, b and one never seen
    assert (rates.tolist(), judged.tolist()) == ([0.5, 0.0, 0.5], [1, 3, 5])


def test_the_lowest_keys_are_a_sample_of_bounded_size_in_any_order_of_merging():
    keys = [n * 7919 % 1000 for n in range(1000)]
    halves = [LowestKeys(10), LowestKeys(10)]
    for place, key in enumerate(keys):
        assert halves[place % 2].may_hold(np.array([key])).tolist() in ([0], [])
        halves[place % 2].add(key, {"key": key})
        assert len(halves[place % 2].entries) < 20
    halves[1].merge(halves[0])
    assert [entry["key"] for entry in halves[1].values()] == list(range(10))
    assert halves[1].seen == 1000
