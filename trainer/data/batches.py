"""TFRecord ELWC -> parsed tensors -> tokenised query groups -> batches bucketed by length."""

import copy
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_ranking as tfr

from features.elwc import DATASET_VIEWS
from features.errors import InputError
from features.manifest import DatasetManifest
from features.spec import Feature, FeatureSpec
from trainer.data.preprocessing import RAW_DTYPES, Preprocessor, Tensors
from trainer.recipes import weighable

Groups: TypeAlias = tf.data.Dataset  # of dicts: regular, privileged, label, weight, mask; one query group an element

GROUPS_PER_PARSE = 256  # groups parsed and tokenised in one call
SHUFFLE_BUFFER_GROUPS = 20_000  # groups in the shuffle buffer
TOKEN_BUCKET = 4  # token sides are padded to multiples of this
ITEM_BUCKET = 8  # and groups to multiples of this many items
_REBUILD = "run build_elwc again"

# Decorates functions that tf.data maps: they need no AutoGraph, whose analysis takes seconds.
no_autograph = tf.autograph.experimental.do_not_convert


def parse_elwc(serialised: tf.Tensor, features: tuple[Feature, ...]) -> tuple[Tensors, tf.Tensor]:
    """Serialised ELWC, string [groups] -> raw values by feature name, and item_count int32 [groups].

    Context values are [groups, ...], item values [groups, items, ...], vectors with their length last; items stay in
    file order. A missing feature takes its default.
    """
    specs = {level: {f.name: _parsing_spec(f) for f in features if f.level == level} for level in ("context", "item")}
    parsed = tfr.data.parse_from_example_list(
        serialised,
        context_feature_spec=specs["context"],
        example_feature_spec=specs["item"],
        size_feature_name="item_count",
    )
    raw = {}
    for feature in features:
        values = parsed[feature.name]
        raw[feature.name] = tf.cast(values if feature.length > 1 else tf.squeeze(values, -1), RAW_DTYPES[feature.type])
    return raw, tf.cast(parsed["item_count"], tf.int32)


def _parsing_spec(feature: Feature) -> Any:
    dtype = tf.int64 if feature.type == "bool" else RAW_DTYPES[feature.type]
    default = feature.default if feature.default is not None else ("" if dtype == tf.string else 0)
    values = list(default) if isinstance(default, tuple) else [default] * feature.length
    return tf.io.FixedLenFeature([feature.length], dtype, [int(v) if dtype == tf.int64 else v for v in values])


def item_mask(item_count: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
    """int32 [groups] -> bool [groups, items], False on padding."""
    return tf.sequence_mask(item_count, items)


class DatasetSplit:
    """One split of a dataset directory, read in file order, which teacher scores follow, too.

    manifest: the dataset's, with the files and their number of groups. Reading raises FailedPreconditionError if the
    files hold another number.
    """

    def __init__(
        self,
        directory: str,
        split: str,
        manifest: DatasetManifest,
        spec: FeatureSpec,
        preprocessor: Preprocessor,
        cache: bool,
    ) -> None:
        self.spec, self.preprocessor, self.count = spec, preprocessor, manifest.splits[split].groups
        self.files, self.serving_files = (shards_of(directory, split, view, manifest) for view in DATASET_VIEWS)
        groups = self.records().batch(GROUPS_PER_PARSE).map(self._preprocess, num_parallel_calls=2, deterministic=True)
        groups = groups.unbatch().map(self._pad_to_bucket, num_parallel_calls=2, deterministic=True)
        self.groups: Groups = groups.cache() if cache else groups

    def records(self) -> tf.data.Dataset:
        """Serialised query groups, string [], in file order."""
        records = tf.data.TFRecordDataset(self.files, compression_type="GZIP")
        return records.apply(tf.data.experimental.assert_cardinality(self.count))

    def serving_records(self) -> tf.data.Dataset:
        """The serving view of the same groups, string []: no privileged feature, no label."""
        return tf.data.TFRecordDataset(self.serving_files, compression_type="GZIP")

    @cached_property
    def example(self) -> dict[str, Any]:
        """The first group as a batch of one, which builds a model with the shapes of its inputs."""
        example: dict[str, Any] = next(iter(self.records().take(1).batch(1).map(self._preprocess)))
        return example

    def raw(self, names: tuple[str, ...]) -> tf.data.Dataset:
        """The raw values of some features in batches, in file order: identifiers and texts for evaluation."""
        features = tuple(self.spec[name] for name in names)
        return self.records().batch(GROUPS_PER_PARSE).map(no_autograph(lambda records: parse_elwc(records, features)))

    @no_autograph
    def _preprocess(self, records: tf.Tensor) -> dict[str, Any]:
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

    @no_autograph
    def _pad_to_bucket(self, group: dict[str, Any]) -> dict[str, Any]:
        """Removes a group's padding, then pads it to the next bucket, so that groups of one bucket can be batched."""
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
    """int64 [groups]: hash of the query: of the context's texts; without any, of the identifier `query`, or of all
    identifiers."""
    context = [f for f in spec.at("context") if f.is_text]
    identifiers = [f for f in context if f.name == "query"] or context
    key_features = [f for f in context if f.role == "regular"] or identifiers
    if not key_features:
        return tf.zeros([tf.shape(raw[spec.label.name])[0]], tf.int64)
    return tf.strings.to_hash_bucket_fast(tf.strings.join([raw[f.name] for f in key_features], "\n"), 2**31)


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

    weight: the context feature that becomes the group's `weight`; None: 1.
    """

    @no_autograph
    def labelled(group: dict[str, Any]) -> dict[str, Any]:
        kept = {part: group[part] for part in ("regular", "privileged", "query", "mask", "bucket")}
        return {**kept, "label": group["labels"][name], "weight": group["weights"][weight] if weight else 1.0}

    return groups.map(labelled)


def positive_only(groups: Groups) -> Groups:
    """Filters labelled groups that have an item with a positive label."""
    return groups.filter(no_autograph(lambda group: tf.reduce_any(group["label"] > 0.0)))


def with_teachers(groups: Groups, logits: Groups) -> Groups:
    """Groups with `teacher_logits` float32 [items, teachers]; `logits` are in the same order, unpadded."""

    @no_autograph
    def joined(group: dict[str, Any], teacher_logits: tf.Tensor) -> dict[str, Any]:
        sized = _resized(teacher_logits, tf.shape(group["mask"])[0], axis=0)
        return {**group, "teacher_logits": tf.ensure_shape(sized, [None, logits.element_spec.shape[-1]])}

    return tf.data.Dataset.zip((groups, logits)).map(joined)


def training_batches(groups: Groups, batch_groups: int, seed: int) -> tf.data.Dataset:
    """Shuffled, endless batches; all groups of a batch have the same padded shape."""

    endless = groups.shuffle(SHUFFLE_BUFFER_GROUPS, seed=seed, reshuffle_each_iteration=True).repeat()
    batches = endless.group_by_window(
        no_autograph(lambda group: group["bucket"]),
        no_autograph(lambda _, same: same.batch(batch_groups, drop_remainder=True)),
        batch_groups,
    )
    return batches.prefetch(4)


class InMemoryBatches:
    """A dataset's batches, read once and kept in memory, for splits that are scored repeatedly."""

    def __init__(self, batches: tf.data.Dataset) -> None:
        self.element_spec = batches.element_spec
        self._batches = list(batches)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._batches)

    def map(self, function: Callable[[dict[str, Any]], dict[str, Any]]) -> "InMemoryBatches":
        """Applies `function` to each batch; it must keep the structure."""
        changed = copy.copy(self)
        changed._batches = [function(batch) for batch in self._batches]
        return changed


Batches: TypeAlias = tf.data.Dataset | InMemoryBatches


def scoring_batches(groups: Groups, batch_groups: int = 16) -> tf.data.Dataset:
    """Every group once, in order; batches that fit the processor's cache score twice as fast as larger ones."""
    return groups.padded_batch(batch_groups).prefetch(4)


def shards_of(directory: str, split: str, view: str, manifest: DatasetManifest) -> list[str]:
    """The files of a split's view, sorted by name. Errors: InputError for a missing file or a wrong size."""
    names = manifest.matching_files(f"{split}/{view}_elwc-*.tfrecord.gz")
    if not names:
        raise InputError(
            f"{directory}: the manifest lists no {view} shards of {split}, expected some: run build_elwc again"
        )
    for name in names:
        path = manifest.file_path(directory, name)
        expected = manifest.files[name].bytes
        try:
            found = tf.io.gfile.stat(path).length
        except tf.errors.NotFoundError:
            raise InputError(f"{path} is not there, though the manifest lists it: {_REBUILD}") from None
        if found != expected:
            raise InputError(
                f"{path} has {found} bytes, expected {expected}, as the manifest says: run build_elwc again"
            )
    return [manifest.file_path(directory, name) for name in names]
