"""The whole job on hand-made logs: what it writes, counted by hand."""

import stat
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.joins.query_groups import normalise_query
from tests.beam_jobs.datasets import ANY_LOSS, build, groups, item, manifest_of, records, write_task
from tests.beam_jobs.log_lines import HOUR, NOON, act, impression, read_jsonl, write_jsonl
from tests.features.specs import DEMO
from tests.published import version_of

RICH = {
    **DEMO,
    "shop": {"type": "categorical", "level": "context", "default": "web"},
    "price": {"type": "float", "level": "item", "default": 0},
    "picture": {"type": "float", "level": "item", "length": 2, "default": [0, 0]},
    "stock": {"type": "int", "level": "item", "default": -1},
    "new": {"type": "bool", "level": "item", "default": False},
    "brand": {"type": "categorical", "level": "item", "default": "none"},
}


CHAIR = {"item_id": "p3", "features": {"title": "chair", "price": 5, "brand": "acme"}}
SHOWN = impression("r1", "Blue  Sofa", "p1", "p2", CHAIR, features={"shop": "app"})


def sofa() -> list[Any]:
    """Request r1: a purchase, and one event of every fault."""
    return [
        SHOWN,
        SHOWN,                                                            # duplicate
        act("click", "r1", "p2"),
        act("click", "r1", "p2"),                                         # duplicate
        act("click", "r1", "p1", at=NOON + HOUR + 1),                     # late
        act("add_to_cart", "r1", "p2"),
        act("purchase", "r1", "p2"),
        act("purchase", "r1", "p9"),                                      # item not shown
        act("purchase", "r0", "p1"),                                      # unknown request
        {**act("click", "r1", "p1", event_id="broken"), "click": 5},      # malformed
        b'{"event_id": "cut off", "user_id": "user-o',                    # malformed, type unknown
        b"\xff\xfe",                                                      # malformed, type unknown
    ]  # fmt: skip


def lamp() -> list[Any]:
    """Request r2: one item too many, one without a title; nobody buys."""
    items = [{"item_id": "p1"}, "p2", "p3", "p4", "p5"]
    return [impression("r2", "lamp", *items, user="user-two"), act("click", "r2", "p5", event_id="capped")]


def rug() -> list[Any]:
    """Request r3: too few usable items."""
    return [impression("r3", "rug", "p1", {"item_id": "p2"}), act("click", "r3", "p1")]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    write_jsonl(folder / "logs" / "events-0.jsonl.gz", *sofa()[:6], *lamp())
    write_jsonl(folder / "logs" / "events-1.jsonl", *sofa()[6:], b"", *rug())
    config = write_task(folder, RICH, dataset={"max_items": 3, "min_distinct_users": 1, "limits": ANY_LOSS})
    build(config, folder / "logs" / "events-*", folder / "dataset")
    return folder / "dataset"


def test_every_event_is_counted_once(dataset):
    counted = {kind: counts.model_dump() for kind, counts in manifest_of(dataset).events.items()}
    zero = dict.fromkeys(("read", "used", "duplicate", "late", "unmatched", "malformed", "capped"), 0)
    assert counted == {
        "impression": {**zero, "read": 4, "used": 2, "duplicate": 1, "malformed": 1},
        "click": {**zero, "read": 6, "used": 1, "duplicate": 1, "late": 1, "unmatched": 1, "malformed": 1, "capped": 1},
        "add_to_cart": {**zero, "read": 1, "used": 1},
        "purchase": {**zero, "read": 3, "used": 1, "unmatched": 2},
        "refund": zero,
        "unknown": {**zero, "read": 2, "malformed": 2},
    }


def test_every_refusal_has_a_reason_and_a_dead_letter(dataset):
    refused = manifest_of(dataset).refused
    assert refused == {
        "click_invalid": 1, "impression_refused": 1, "item_capped": 1, "item_not_shown": 1, "late": 1, "not_json": 2,
        "title_missing": 2, "too_few_items": 1, "unknown_request": 1,
    }  # fmt: skip
    letters = read_jsonl(*(version_of(dataset) / "dead_letters").glob("*"))
    reasons = [letter["reason"] for letter in letters]
    assert {reason: reasons.count(reason) for reason in reasons} == refused


def test_dead_letters_are_their_owners_alone_and_name_no_user(dataset):
    folder = version_of(dataset) / "dead_letters"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "user-o" not in str(read_jsonl(*folder.glob("*")))


def test_items_carry_what_happened_to_them(dataset):
    group = groups(dataset)["r1"]
    behaviour = {
        entry["item_id"]: (entry["position"], entry["click"], entry["add_to_cart"], entry["purchase"])
        for entry in group.items
    }
    assert behaviour == {"p1": (0, False, False, False), "p2": (1, True, True, True), "p3": (2, False, False, False)}


def test_features_come_from_the_impression_or_their_default(dataset):
    group = groups(dataset)["r1"]
    assert (group.context["query"], group.context["shop"]) == ("Blue  Sofa", "app")
    third, first = item(group, "p3"), item(group, "p1")
    assert (third["title"], third["price"], third["brand"]) == ("chair", 5.0, "acme")
    assert (first["price"], first["picture"], first["stock"], first["new"], first["brand"]) == (
        0.0,
        (0.0, 0.0),
        -1,
        False,
        "none",
    )


def test_a_group_without_a_purchase_stays_without_its_unusable_and_capped_items(dataset):
    group = groups(dataset)["r2"]
    assert sorted(entry["item_id"] for entry in group.items) == ["p2", "p3", "p4"]
    assert not any(entry["purchase"] for entry in group.items)


def test_user_ids_never_reach_a_dataset(dataset):
    for split in ("train", "valid", "test"):
        for view in ("training", "serving"):
            assert not any(b"user-" in record for record in records(dataset, split, view))
    assert b"user-" not in (dataset / "manifest.json").read_bytes()


def test_a_dataset_has_both_views_of_every_split_and_nothing_else(dataset):
    version = version_of(dataset)
    names = sorted(path.relative_to(version).as_posix() for path in version.rglob("*") if path.is_file())
    views = [
        f"{split}/{view}_elwc-00000-of-00001.tfrecord.gz"
        for split in ("test", "train", "valid")
        for view in ("serving", "training")
    ]
    lines = ["dead_letters/dead_letters-00000-of-00001.jsonl.gz", "train/frequent_queries.jsonl.gz"]
    assert names == sorted([*lines, *views])


def test_statistics_tell_values_and_defaults(tmp_path):
    shown = impression("r1", "sofa", {"item_id": "a", "features": {"title": "xy", "price": 1, "brand": "acme"}},
                       {"item_id": "b", "features": {"title": "x", "price": 3, "brand": "acme", "picture": [6, -3]}},
                       {"item_id": "c", "features": {"title": "xyz"}})  # fmt: skip
    logs = write_jsonl(tmp_path / "events.jsonl", shown, act("purchase", "r1", "a"))
    options = {"splits": {"train": 1, "valid": 0, "test": 0}, "min_distinct_users": 1}
    config = write_task(tmp_path, RICH, dataset=options)
    train = build(config, logs, tmp_path / "dataset").splits["train"]
    assert (train.groups, train.groups_with_label, train.items) == (1, 1, 3)
    price = train.features["price"]
    # prices 1, 3 and the default 0: mean 4/3, variance (1 + 9 + 0) / 3 - 16 / 9 = 14 / 9
    assert (price.count, price.missing, price.minimum, price.maximum) == (3, 1, 0.0, 3.0)
    assert price.mean == pytest.approx(4 / 3)
    assert price.deviation == pytest.approx((14 / 9) ** 0.5)
    picture = train.features["picture"]  # (0, 0), (6, -3), (0, 0): each element by itself
    assert (picture.minimum, picture.maximum, picture.mean) == ((0.0, -3.0), (6.0, 0.0), (2.0, -1.0))
    assert picture.deviation == pytest.approx((8**0.5, 2**0.5))
    assert train.features["brand"].values == {"acme": 2, "none": 1}
    assert (train.features["title"].longest, train.features["purchase"].mean) == (3, pytest.approx(1 / 3))
    assert train.features["shop"].missing == 1


# --- split by query


def test_a_query_lands_in_one_split_however_it_is_written(tmp_path):
    spellings = ["blue sofa", "Blue Sofa", " BLUE\tSOFA ", "ｂｌｕｅ sofa"]
    rows = [impression(f"r{n}", spellings[n % 4] + (f" {n // 4}"), "p1", "p2") for n in range(240)]
    manifest = build(write_task(tmp_path), write_jsonl(tmp_path / "events.jsonl", *rows), tmp_path / "dataset")
    seen = {
        split: {
            normalise_query(str(group.context["query"]))
            for group in groups(tmp_path / "dataset", "training", split).values()
        }
        for split in ("train", "valid", "test")
    }
    assert not seen["train"] & seen["valid"]
    assert not seen["train"] & seen["test"]
    assert not seen["valid"] & seen["test"]
    assert sum(map(len, seen.values())) == 60
    assert sum(split.groups for split in manifest.splits.values()) == 240
    assert manifest.splits["train"].groups > 120  # the default shares are 0.8, 0.1, 0.1


@pytest.mark.slow
def test_another_seed_splits_otherwise(tmp_path):
    logs = write_jsonl(tmp_path / "events.jsonl", *[impression(f"r{n}", f"query {n}", "p1", "p2") for n in range(40)])
    trains = []
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        build(write_task(tmp_path / str(seed), seed=seed), logs, tmp_path / str(seed) / "dataset")
        trains.append(set(groups(tmp_path / str(seed) / "dataset", "training", "train")))
    assert trains[0] != trains[1]


# --- product table


def test_what_the_impression_lacks_comes_from_the_product_table(tmp_path):
    second = {"item_id": "p2", "features": {"title": "own title", "price": None}}
    shown = impression("r1", "sofa", {"item_id": "p1"}, second, {"item_id": "p3", "features": {"title": "  "}})
    table = write_jsonl(
        tmp_path / "products.jsonl.gz",
        {"item_id": "p1", "title": "old", "timestamp_ms": NOON - 2},
        {"item_id": "p1", "title": "new", "timestamp_ms": NOON - 1, "price": 2},
        {"item_id": "p2", "title": "table title", "price": 7},
        {"item_id": "p3", "title": "third"},
        {"title": "no id"},
        b"not json",
    )
    logs = write_jsonl(tmp_path / "events.jsonl", shown)
    manifest = build(write_task(tmp_path, RICH), logs, tmp_path / "dataset", "--products", table)
    group = groups(tmp_path / "dataset")["r1"]
    assert {entry["item_id"]: (entry["title"], entry["price"]) for entry in group.items} == {
        "p1": ("new", 2.0), "p2": ("own title", 7.0), "p3": ("third", 0.0),
    }  # fmt: skip
    assert manifest.refused == {"product_item_id_missing": 1, "product_not_json": 1}


def test_frequent_queries_are_those_that_enough_distinct_users_made(tmp_path):
    def asked(request: int, query: str, user: str) -> dict[str, Any]:
        return impression(f"r{request}", query, "p1", "p2", user=user)

    rows = [asked(1, "sofa", "u1"), asked(2, "SOFA", "u2"), asked(3, "sofa", "u2"),
            asked(4, "my name", "u1"), asked(5, "my name", "u1"), asked(6, "my name", "")]  # fmt: skip
    config = write_task(tmp_path, dataset={"min_distinct_users": 2, "splits": {"train": 1, "valid": 0, "test": 0}})
    build(config, write_jsonl(tmp_path / "events.jsonl", *rows), tmp_path / "dataset")
    assert read_jsonl(version_of(tmp_path / "dataset") / "train/frequent_queries.jsonl.gz") == [
        {"query": "sofa", "requests": 3}
    ]
