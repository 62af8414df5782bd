"""Two guards of privilege: the serving view, and an item order that says nothing. Each test tries to break one."""

import os
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.beam_jobs.datasets import build, groups, records, write_task
from tests.beam_jobs.log_lines import NOON, act, impression, write_jsonl
from tests.features.specs import DEMO
from tests.published import version_of

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SPLITS = ("train", "valid", "test")
GROUPS, ITEMS = 600, 8
PRIVILEGED = {**DEMO, "dwell": {"type": "float", "level": "item", "role": "privileged", "default": 0},
              "session": {"type": "text", "level": "context", "role": "privileged", "default": ""}}  # fmt: skip


def shop_rows() -> list[Any]:
    """Items in the order of position; the top one is always clicked and bought; privileged values everywhere."""
    rows: list[Any] = []
    for n in range(GROUPS):
        items = [
            {"item_id": f"p{n * 7 % 50}-{place}", "features": {
                "title": f"title {place}", "dwell": 1234.5, "click": 1, "purchase": True, "position": 77}}
            for place in range(ITEMS)
        ]  # fmt: skip
        rows.append(impression(f"r{n}", f"query {n}", *items, features={"session": "smuggled-session", "purchase": 1}))
        rows += [act(kind, f"r{n}", items[0]["item_id"], at=NOON + 9) for kind in ("click", "add_to_cart", "purchase")]
    return rows


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("privilege")
    table = [{"item_id": f"p{n}-0", "purchase": True, "click": True, "position": 3, "dwell": 1234.5} for n in range(50)]
    build(
        write_task(folder, PRIVILEGED),
        write_jsonl(folder / "events.jsonl", *shop_rows()),
        folder / "dataset",
        "--products",
        write_jsonl(folder / "products.jsonl", *table),
    )
    return folder / "dataset"


HIDDEN = b"position click add_to_cart purchase dwell session smuggled item_id request_id".split()


def test_the_serving_view_holds_no_privileged_or_label_name_or_value(dataset):
    for split in SPLITS:
        serving = b"".join(records(dataset, split, "serving"))
        assert b"title" in serving
        assert b"query" in serving
        for name in HIDDEN:
            assert name not in serving, name


def test_the_training_view_does_hold_them(dataset):
    # so that the test above cannot pass because the names are spelt differently
    training = b"".join(records(dataset, "train", "training"))
    for name in HIDDEN:
        assert name in training, name


def test_behaviour_in_item_features_or_the_product_table_is_ignored(dataset):
    # every item claims to be bought at position 77; the log says that the top one is
    for group in groups(dataset).values():
        assert sorted(entry["position"] for entry in group.items) == list(range(ITEMS))
        assert {entry["position"] for entry in group.items if entry["purchase"]} == {0}


def test_both_views_hold_the_same_groups_in_the_same_order(dataset):
    for split in SPLITS:
        training, serving = groups(dataset, "training", split), groups(dataset, "serving", split)
        pairs = list(zip(training.values(), serving.values(), strict=True))
        assert all(one.context["query"] == other.context["query"] for one, other in pairs)
        assert all([i["title"] for i in one.items] == [i["title"] for i in other.items] for one, other in pairs)


def test_the_place_in_a_group_says_nothing_of_the_position(dataset):
    found = list(groups(dataset).values())
    assert len(found) == GROUPS
    # positions are uniform over 0..7 in every place: mean 3.5, standard error sqrt(63 / 12 / 600) = 0.094
    for place in range(ITEMS):
        assert abs(fmean(group.items[place]["position"] for group in found) - 3.5) < 4 * 0.094


def test_a_constant_scorer_scores_like_random_order(dataset):
    # a constant scorer leaves the dataset's order; the bought item's reciprocal rank is then that of a uniform place
    ranks = [
        next(place for place, entry in enumerate(group.items, 1) if entry["purchase"])
        for group in groups(dataset).values()
    ]
    uniform = [1 / place for place in range(1, ITEMS + 1)]
    expected = fmean(uniform)
    deviation = (fmean(value**2 for value in uniform) - expected**2) ** 0.5
    assert abs(fmean(1 / rank for rank in ranks) - expected) < 4 * deviation / GROUPS**0.5


def test_records_parse_with_tensorflows_own_classes(dataset):
    from tensorflow_serving.apis.input_pb2 import ExampleListWithContext

    parsed = ExampleListWithContext.FromString(records(dataset, "test", "serving")[0])
    assert len(parsed.examples) == ITEMS
    assert set(parsed.context.features.feature) == {"query"}
    assert set(parsed.examples[0].features.feature) == {"title"}


def test_files_parse_with_tf_data_and_tf_ranking(dataset):
    import tensorflow as tf
    import tensorflow_ranking as tfr

    files = tf.io.gfile.glob(str(version_of(dataset) / "train" / "training_elwc-*"))
    batch = next(iter(tf.data.TFRecordDataset(files, compression_type="GZIP").batch(32)))
    features = tfr.data.parse_from_example_list(
        batch,
        list_size=ITEMS + 2,
        context_feature_spec={"query": tf.io.FixedLenFeature([1], tf.string)},
        example_feature_spec={
            "title": tf.io.FixedLenFeature([1], tf.string, ""),
            "purchase": tf.io.FixedLenFeature([1], tf.int64, -1),
            "dwell": tf.io.FixedLenFeature([1], tf.float32, -1.0),
        },
    )
    assert features["title"].shape == (32, ITEMS + 2, 1)
    assert tf.reduce_sum(tf.cast(features["purchase"] > 0, tf.int32)).numpy() == 32
    assert tf.reduce_all(features["purchase"][:, ITEMS:] == -1).numpy()
    assert features["dwell"][0, 0, 0].numpy() == 1234.5
