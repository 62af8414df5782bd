"""TFRecord ELWC -> parsed tensors -> tokenised query groups -> batches bucketed by length."""

import copy
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_ranking as tfr

from features.errors import InputError
from features.spec import Feature, FeatureSpec
from trainer.preprocessing import DTYPES, Preprocessor, Tensors
from trainer.recipes import weighable

Groups: TypeAlias = tf.data.Dataset  # of dicts: regular, privileged, label, weight, mask; one query group an element

PARSED_TOGETHER = 256  # groups parsed and tokenised in one call
SHUFFLED_TOGETHER = 20_000  # groups in the shuffle buffer
TOKEN_BUCKET = 4  # token sides are padded to multiples of this
ITEM_BUCKET = 8  # and groups to multiples of this many items

# Marks what tf.data maps: AutoGraph, which there is nothing to convert for, takes seconds to find that out.
as_it_is = tf.autograph.experimental.do_not_convert


def parse_elwc(serialised: tf.Tensor, features: tuple[Feature, ...]) -> tuple[Tensors, tf.Tensor]:
    """Serialised ELWC, string [groups] -> raw values by feature name, and item_count int32 [groups].

    Context values are [groups, ...], item values [groups, items, ...], vectors with their length last; items stay in
    file order. A feature that the bytes lack takes its default.
    """
    specs = {level: {f.name: _stored(f) for f in features if f.level == level} for level in ("context", "item")}
    parsed = tfr.data.parse_from_example_list(
        serialised,
        context_feature_spec=specs["context"],
        example_feature_spec=specs["item"],
        size_feature_name="item_count",
    )
    raw = {}
    for feature in features:
        values = parsed[feature.name]
        raw[feature.name] = tf.cast(values if feature.length > 1 else tf.squeeze(values, -1), DTYPES[feature.type])
    return raw, tf.cast(parsed["item_count"], tf.int32)


def _stored(feature: Feature) -> Any:
    dtype = tf.int64 if feature.type == "bool" else DTYPES[feature.type]
    default = feature.default if feature.default is not None else ("" if dtype == tf.string else 0)
    values = list(default) if isinstance(default, tuple) else [default] * feature.length
    return tf.io.FixedLenFeature([feature.length], dtype, [int(v) if dtype == tf.int64 else v for v in values])


def item_mask(item_count: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
    """int32 [groups] -> bool [groups, items], False behind each group's items."""
    return tf.sequence_mask(item_count, items)


class DatasetSplit:
    """One split of a dataset directory, read in file order, so that teacher scores line up with it."""

    def __init__(self, directory: str, split: str, spec: FeatureSpec, preprocessor: Preprocessor, cache: bool) -> None:
        self.spec, self.preprocessor = spec, preprocessor
        self.files, self.serving_files = (
            _shards(f"{directory}/{split}/{view}_elwc-*.tfrecord.gz") for view in ("training", "serving")
        )
        groups = self.records().batch(PARSED_TOGETHER).map(self._prepared, num_parallel_calls=2, deterministic=True)
        groups = groups.unbatch().map(self._bucketed, num_parallel_calls=2, deterministic=True)
        self.groups: Groups = groups.cache() if cache else groups

    def records(self) -> tf.data.Dataset:
        """Serialised query groups, string [], in file order."""
        return tf.data.TFRecordDataset(self.files, compression_type="GZIP")

    def serving_records(self) -> tf.data.Dataset:
        """The same groups as serving sees them, string []: no privileged feature, no label."""
        return tf.data.TFRecordDataset(self.serving_files, compression_type="GZIP")

    @cached_property
    def example(self) -> dict[str, Any]:
        """The first group, as a batch of one: it shows a model the shapes of its inputs."""
        example: dict[str, Any] = next(iter(self.records().take(1).batch(1).map(self._prepared)))
        return example

    def raw(self, names: tuple[str, ...]) -> tf.data.Dataset:
        """The raw values of some features in batches, in file order: identifiers and texts for evaluation."""
        features = tuple(self.spec[name] for name in names)
        return self.records().batch(PARSED_TOGETHER).map(as_it_is(lambda records: parse_elwc(records, features)))

    @as_it_is
    def _prepared(self, records: tf.Tensor) -> dict[str, Any]:
        raw, item_count = parse_elwc(records, tuple(f for f in self.spec if f.role != "id" or f.level == "context"))
        label = tf.cast(raw[self.spec.label.name], tf.float32)
        learnable = {
            f.name: tf.cast(raw[f.name], tf.float32)
            for f in self.spec.privileged
            if f.level == "item" and f.type == "bool" and f.length == 1
        }
        return {
            # guard: the student's inputs are built from the regular features and nothing else
            "regular": self.preprocessor.regular({f.name: raw[f.name] for f in self.spec.regular}),
            "privileged": self.preprocessor.privileged({f.name: raw[f.name] for f in self.spec.privileged}),
            "labels": {self.spec.label.name: label, **learnable},
            "weights": {f.name: tf.cast(raw[f.name], tf.float32) for f in weighable(self.spec)},
            "query": _query_hash(self.spec, raw),
            "mask": item_mask(item_count, tf.shape(label)[1]),
        }

    @as_it_is
    def _bucketed(self, group: dict[str, Any]) -> dict[str, Any]:
        """Cuts a group's padding, then pads to the next bucket, so that groups of one bucket can be stacked."""
        items = _rounded_up(tf.math.count_nonzero(group["mask"], dtype=tf.int32), ITEM_BUCKET)
        once_a_query = {"context_tokens", *(f.name for f in self.spec.at("context"))}

        def sized(values: Tensors) -> Tensors:
            return {name: v if name in once_a_query else _resized(v, items, axis=0) for name, v in values.items()}

        regular = sized(group["regular"])
        for side in ("context_tokens", "item_tokens"):
            if side in regular:
                regular[side] = _resized(regular[side], _longest(regular[side]), axis=regular[side].shape.rank - 1)
        parts = {part: sized(group[part]) for part in ("privileged", "labels")}
        mask = _resized(group["mask"], items, axis=0)
        return {**group, "regular": regular, **parts, "mask": mask, "bucket": _bucket(regular, mask)}


def _query_hash(spec: FeatureSpec, raw: Tensors) -> tf.Tensor:
    """int64 [groups]: equal for groups of one query, by the context's texts; where it has none, by the identifier
    `query`, or else by all identifiers."""
    context = [f for f in spec.at("context") if f.is_text]
    identifiers = [f for f in context if f.name == "query"] or context
    told_by = [f for f in context if f.role == "regular"] or identifiers
    if not told_by:
        return tf.zeros([tf.shape(raw[spec.label.name])[0]], tf.int64)
    return tf.strings.to_hash_bucket_fast(tf.strings.join([raw[f.name] for f in told_by], "\n"), 2**31)


def _shards(pattern: str) -> list[str]:
    files = sorted(tf.io.gfile.glob(pattern))
    if not files:
        raise InputError(f"no file matches {pattern}, expected the shards of a split: run build_elwc again")
    return files


def _resized(values: tf.Tensor, size: tf.Tensor, axis: int) -> tf.Tensor:
    """Cuts or pads (with 0, False) one axis to `size`."""
    values = tf.gather(values, tf.range(tf.minimum(size, tf.shape(values)[axis])), axis=axis)
    paddings = [[0, size - tf.shape(values)[axis] if dim == axis else 0] for dim in range(values.shape.rank)]
    return tf.pad(values, paddings, constant_values=tf.zeros([], values.dtype))


def _longest(tokens: tf.Tensor) -> tf.Tensor:
    return _rounded_up(tf.reduce_max(tf.math.count_nonzero(tokens, axis=-1, dtype=tf.int32)), TOKEN_BUCKET)


def _rounded_up(size: tf.Tensor, multiple: int) -> tf.Tensor:
    return tf.maximum(-(-size // multiple), 1) * multiple


def _bucket(regular: Tensors, mask: tf.Tensor) -> tf.Tensor:
    """int64: equal for groups of the same padded shape."""
    key = tf.shape(mask, tf.int64)[0]
    for side in ("context_tokens", "item_tokens"):
        if side in regular:
            key = key * 65536 + tf.shape(regular[side], tf.int64)[-1]
    return key


def with_label(groups: Groups, name: str, weight: str | None = None) -> Groups:
    """Groups whose `label` is the feature `name`: the spec's label, or click when pretraining on clicks.

    weight: the context's number that becomes the group's `weight`; None: 1.
    """

    @as_it_is
    def labelled(group: dict[str, Any]) -> dict[str, Any]:
        kept = {part: group[part] for part in ("regular", "privileged", "query", "mask", "bucket")}
        return {**kept, "label": group["labels"][name], "weight": group["weights"][weight] if weight else 1.0}

    return groups.map(labelled)


def positive_only(groups: Groups) -> Groups:
    """Of labelled groups, those in which some item has a positive label."""
    return groups.filter(as_it_is(lambda group: tf.reduce_any(group["label"] > 0.0)))


def with_teachers(groups: Groups, logits: Groups) -> Groups:
    """Groups with `teacher_logits` float32 [items, teachers]; `logits` are in the same order, unpadded."""

    @as_it_is
    def joined(group: dict[str, Any], teacher_logits: tf.Tensor) -> dict[str, Any]:
        sized = _resized(teacher_logits, tf.shape(group["mask"])[0], axis=0)
        return {**group, "teacher_logits": tf.ensure_shape(sized, [None, logits.element_spec.shape[-1]])}

    return tf.data.Dataset.zip((groups, logits)).map(joined)


def training_batches(groups: Groups, batch_groups: int, seed: int) -> tf.data.Dataset:
    """Shuffled, endless batches; all groups of a batch have the same padded shape."""

    endless = groups.shuffle(SHUFFLED_TOGETHER, seed=seed, reshuffle_each_iteration=True).repeat()
    batches = endless.group_by_window(
        as_it_is(lambda group: group["bucket"]),
        as_it_is(lambda _, same: same.batch(batch_groups, drop_remainder=True)),
        batch_groups,
    )
    return batches.prefetch(4)


class KeptBatches:
    """A dataset's batches, read once and kept in memory: for what is scored again and again."""

    def __init__(self, batches: tf.data.Dataset) -> None:
        self.element_spec = batches.element_spec
        self._batches = list(batches)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._batches)

    def map(self, function: Callable[[dict[str, Any]], dict[str, Any]]) -> "KeptBatches":
        """Each batch changed in its values, not in its structure."""
        changed = copy.copy(self)
        changed._batches = [function(batch) for batch in self._batches]
        return changed


Batches: TypeAlias = tf.data.Dataset | KeptBatches


def scoring_batches(groups: Groups, batch_groups: int = 16) -> tf.data.Dataset:
    """Every group once, in order; batches that fit the processor's cache score twice as fast as ones that do not."""
    return groups.padded_batch(batch_groups).prefetch(4)
