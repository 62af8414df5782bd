"""Categorical values in the manifest: exact counts in any order of merging, and none that few people saw."""

import orjson
import pytest

from beam_jobs.transforms.category_counts import MAX_LISTED_VALUES
from features.errors import InputError
from tests.beam_jobs.datasets import build, groups, write_task
from tests.beam_jobs.log_lines import impression, write_jsonl
from tests.features.specs import DEMO

TRAIN = {"train": 1, "valid": 0, "test": 0}
BRANDED = {**DEMO, "brand": {"type": "categorical", "level": "item", "default": ""}}
CITY = {**DEMO, "city": {"type": "categorical", "level": "context", "default": ""}}


def shown(request: int, brands: list[str], user: str = "u") -> bytes:
    items = [{"item_id": f"p{n}", "features": {"title": "t", "brand": brand}} for n, brand in enumerate(brands)]
    return orjson.dumps(impression(f"r{request}", f"q {request}", *items, user=user))


def test_counts_are_exact_and_the_same_however_parts_are_merged(tmp_path):
    # 110,000 distinct values, 20,000 of them twice, far apart: no part alone knows that they are common
    twice = [f"twice {n}" for n in range(20_000)]
    brands = [*twice, *(f"once {n}" for n in range(90_000)), *twice]
    lines = [shown(n, brands[n * 1000 : (n + 1) * 1000]) for n in range(len(brands) // 1000)]
    logs = write_jsonl(tmp_path / "events.jsonl", *lines)
    values = []
    for shards in (1, 7):  # parts in which the logs are shuffled: so groups come, and are merged, in other orders
        options = {"splits": TRAIN, "min_distinct_users": 1, "max_items": 1000, "shards": shards}
        config = write_task(tmp_path, BRANDED, dataset=options)
        manifest = build(config, logs, tmp_path / f"dataset-{shards}")
        values.append(manifest.splits["train"].features["brand"].values)
    # the commonest come twice, and of equal ones the first by value are listed
    expected = dict.fromkeys(sorted(twice)[:MAX_LISTED_VALUES], 2)
    assert [values[0], values[1]] == [expected, expected]
    assert list(values[0]) == list(values[1]) == list(expected)


def test_a_value_of_too_few_users_reaches_no_manifest(tmp_path):
    rows = [impression(f"r{n}", "sofa", "p1", "p2", user=f"u{n % users}", features={"city": city})
            for city, users in (("Ghent", 3), ("Jane's house", 2), ("nobody's", 1)) for n in range(6)]  # fmt: skip
    rows = [{**row, "request_id": f"r{n}", "event_id": f"e{n}"} for n, row in enumerate(rows)]
    for row in rows[12:]:
        row["user_id"] = ""  # counts for nobody
    config = write_task(tmp_path, CITY, dataset={"splits": TRAIN, "min_distinct_users": 3})
    manifest = build(config, write_jsonl(tmp_path / "events.jsonl", *rows), tmp_path / "dataset")
    assert manifest.splits["train"].features["city"].values == {"Ghent": 6}
    assert manifest.splits["train"].features["city"].count == 18
    assert b"Jane" not in (tmp_path / "dataset" / "manifest.json").read_bytes()
    assert len(groups(tmp_path / "dataset")) == 18  # the dataset itself has them, like the texts of queries


def test_without_users_an_items_value_counts_for_the_request_and_a_contexts_for_nobody(tmp_path):
    rows = [shown(n, ["acme", f"own {n}"], user="") for n in range(3)]
    config = write_task(tmp_path, {**BRANDED, **CITY}, dataset={"splits": TRAIN})
    manifest = build(config, write_jsonl(tmp_path / "events.jsonl", *rows), tmp_path / "dataset")
    assert manifest.splits["train"].features["brand"].values == {"acme": 3}
    assert manifest.splits["train"].features["city"].values == {}
    (warning,) = [text for text in manifest.warnings if "categorical" in text]
    assert warning.startswith("no value of categorical feature 'city' in train is of enough distinct users")


def test_ids_are_not_listed(tmp_path):
    ids = {**DEMO, "item_id": {"type": "categorical", "level": "item", "role": "id"}}
    config = write_task(tmp_path, ids, dataset={"splits": TRAIN, "min_distinct_users": 1})
    logs = write_jsonl(tmp_path / "events.jsonl", impression("r1", "sofa", "p1", "p2"))
    assert build(config, logs, tmp_path / "dataset").splits["train"].features["item_id"].values is None


@pytest.mark.parametrize("name", ["query", "request_id"])
def test_a_categorical_query_is_refused(tmp_path, name):
    config = write_task(tmp_path, {**DEMO, name: {**DEMO[name], "type": "categorical"}})
    logs = write_jsonl(tmp_path / "events.jsonl", impression("r1", "sofa", "p1", "p2"))
    with pytest.raises(InputError, match=f"features.{name}: type categorical, expected text: .*Make its type text"):
        build(config, logs, tmp_path / "dataset")
