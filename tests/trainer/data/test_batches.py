"""TFRecords to batches: order, masks, buckets, and teachers' scores that stay beside their groups."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from features.elwc import QueryGroup, encode_group
from features.errors import InputError
from features.spec import FeatureSpec, spec_from_json
from tests.trainer.shop import FEATURES, SPLITS
from trainer.data.batches import (
    ITEM_BUCKET,
    TOKEN_BUCKET,
    DatasetSplit,
    parse_elwc,
    positive_only,
    scoring_batches,
    training_batches,
    with_label,
    with_teachers,
)

SPEC = spec_from_json(FEATURES)


def decoded(shop: Path, split: str) -> list[QueryGroup]:
    """The groups as the contract's own decoder reads them, in file order."""
    from features.elwc import decode_group

    files = sorted(map(str, (shop / "dataset" / split).glob("training_elwc-*")))
    return [decode_group(r, SPEC) for r in tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator()]


def test_raw_values_keep_the_order_of_groups_and_items(run: Any, shop: Path) -> None:
    names = tuple(FEATURES)
    found: list[dict[str, Any]] = []
    for raw, counts in run.train.raw(names).as_numpy_iterator():
        for g, n in enumerate(counts):
            found.append({name: raw[name][g][:n] if SPEC[name].level == "item" else raw[name][g] for name in names})
    groups = decoded(shop, "train")
    assert len(found) == len(groups) == SPLITS["train"]
    for group, values in zip(groups, found, strict=True):
        assert values["request_id"].decode() == group.context["request_id"]
        assert [v.decode() for v in values["item_id"]] == [item["item_id"] for item in group.items]
        assert values["price"].tolist() == pytest.approx([item["price"] for item in group.items])
        assert values["picture"].tolist() == pytest.approx(np.array([item["picture"] for item in group.items]))
        assert values["reviews"].tolist() == [item["reviews"] for item in group.items]
        assert values["purchase"].tolist() == [item["purchase"] for item in group.items]


def test_masks_are_true_on_real_items_and_groups_are_padded_to_the_next_bucket(run: Any, shop: Path) -> None:
    for group, prepared in zip(decoded(shop, "train"), run.train.groups, strict=True):
        mask, n = prepared["mask"].numpy(), len(group.items)
        assert mask.tolist() == [True] * n + [False] * (len(mask) - n)
        assert len(mask) == ITEM_BUCKET * -(-n // ITEM_BUCKET)
        assert prepared["labels"]["purchase"].numpy().tolist() == [
            *(float(item["purchase"]) for item in group.items),
            *[0.0] * (len(mask) - n),
        ]


def test_token_sides_are_padded_to_the_next_bucket_of_the_group_alone(run: Any) -> None:
    for group in run.train.groups.take(20):
        for side in ("context_tokens", "item_tokens"):
            tokens = group["regular"][side].numpy()
            longest = (tokens != 0).sum(axis=-1).max()
            assert tokens.shape[-1] == TOKEN_BUCKET * -(-longest // TOKEN_BUCKET)


def test_a_feature_that_the_bytes_lack_takes_its_default() -> None:
    spec = spec_from_json({name: FEATURES[name] for name in ("query", "title", "purchase")})
    group = QueryGroup({"query": "red"}, [{"title": "lamp", "purchase": False}])
    raw, counts = parse_elwc(tf.constant([encode_group(group, spec, "training")]), SPEC.regular)
    assert counts.numpy().tolist() == [1]
    assert raw["price"].numpy().tolist() == [[10.0]]
    assert raw["brand"].numpy().tolist() == [[b"none"]]
    assert raw["picture"].numpy().tolist() == [[[0.0, 0.0, 0.0]]]
    assert raw["in_stock"].numpy().tolist() == [[True]]


def test_with_label_takes_the_feature_that_a_recipe_learns(run: Any, shop: Path) -> None:
    for name in ("purchase", "click"):
        labelled = with_label(run.train.groups, name)
        for group, prepared in zip(decoded(shop, "train"), labelled, strict=True):
            real = prepared["label"].numpy()[prepared["mask"].numpy()]
            assert real.tolist() == [float(item[name]) for item in group.items]


def test_positive_only_keeps_the_groups_with_a_purchase_in_order(run: Any, shop: Path) -> None:
    positive = [g for g in decoded(shop, "train") if any(item["purchase"] for item in g.items)]
    kept = list(positive_only(with_label(run.train.groups, "purchase")))
    assert 0 < len(kept) < SPLITS["train"]
    for group, prepared in zip(positive, kept, strict=True):
        assert int(tf.math.count_nonzero(prepared["mask"])) == len(group.items)
        assert prepared["label"].numpy().sum() == sum(bool(item["purchase"]) for item in group.items)


def numbered(run: Any, shop: Path) -> tf.data.Dataset:
    """Training groups whose two teachers' logits say which group and item they belong to."""
    sizes = [len(group.items) for group in decoded(shop, "train")]

    def logits() -> Any:
        for number, size in enumerate(sizes):
            yield np.stack([np.full(size, float(number)), np.arange(size, dtype=float)], axis=1)

    teachers = tf.data.Dataset.from_generator(logits, output_signature=tf.TensorSpec([None, 2], tf.float32))
    return with_teachers(with_label(run.train.groups, "purchase"), teachers)


def test_teacher_logits_stay_beside_their_group_and_item(run: Any, shop: Path) -> None:
    for number, group in enumerate(numbered(run, shop)):
        mask, logits = group["mask"].numpy(), group["teacher_logits"].numpy()
        assert logits.shape == (len(mask), 2)
        assert (logits[mask, 0] == number).all()
        assert logits[mask, 1].tolist() == list(range(mask.sum()))
        assert (logits[~mask] == 0).all()


def test_training_batches_shuffle_whole_groups_of_equal_shape(run: Any, shop: Path) -> None:
    sizes = [len(group.items) for group in decoded(shop, "train")]
    seen: list[int] = []
    for batch in training_batches(numbered(run, shop), 8, seed=1).take(30):
        mask, logits = batch["mask"].numpy(), batch["teacher_logits"].numpy()
        assert mask.shape[0] == 8
        assert mask.shape[1] % ITEM_BUCKET == 0
        for row, scores in zip(mask, logits, strict=True):
            assert len(set(scores[row, 0])) == 1
            assert row.sum() == sizes[int(scores[0, 0])]
            seen.append(int(scores[0, 0]))
    assert seen[:40] != sorted(seen[:40])
    assert len(set(seen)) > 0.9 * SPLITS["train"]


def test_training_batches_are_decided_by_the_seed(run: Any, shop: Path) -> None:
    def first(seed: int) -> list[float]:
        batch = next(iter(training_batches(numbered(run, shop), 8, seed)))
        order: list[float] = batch["teacher_logits"].numpy()[:, 0, 0].tolist()
        return order

    assert first(1) == first(1) != first(2)


def test_scoring_batches_hold_every_group_once_in_order(run: Any, shop: Path) -> None:
    numbers = [
        int(scores[0, 0])
        for batch in scoring_batches(numbered(run, shop), 10)
        for scores in batch["teacher_logits"].numpy()
    ]
    assert numbers == list(range(SPLITS["train"]))


def test_a_split_without_shards_is_refused(run: Any, shop: Path) -> None:
    manifest = run.inputs.dataset.model_copy(update={"files": {}})
    with pytest.raises(InputError, match=r"lists no training shards of train, expected some: run build_elwc again"):
        DatasetSplit(str(shop / "dataset"), "train", manifest, SPEC, run.preprocessor, cache=False)


def test_a_file_that_the_manifest_does_not_list_is_not_read(run: Any, shop: Path) -> None:
    stale = shop / "dataset" / "train" / "training_elwc-00002-of-00003.tfrecord.gz"
    stale.write_bytes(b"of somebody else")
    try:
        split = DatasetSplit(str(shop / "dataset"), "train", run.inputs.dataset, SPEC, run.preprocessor, cache=False)
        assert str(stale) not in split.files
    finally:
        stale.unlink()


def test_without_a_cache_the_groups_are_the_same(run: Any, shop: Path) -> None:
    streamed = DatasetSplit(str(shop / "dataset"), "valid", run.inputs.dataset, SPEC, run.preprocessor, cache=False)
    for a, b in zip(streamed.groups, run.valid.groups, strict=True):
        tf.nest.map_structure(lambda x, y: np.testing.assert_array_equal(x.numpy(), y.numpy()), a, b)


def test_text_labels_and_identifiers_reach_no_model(run: Any) -> None:
    spec: FeatureSpec = run.config.spec
    group = next(iter(run.train.groups))
    hidden = {f.name for f in spec if f.role in ("id", "label")}
    assert not hidden & {*group["regular"], *group["privileged"]}
    assert not {f.name for f in spec.privileged} & set(group["regular"])
