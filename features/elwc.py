"""Encodes and decodes query groups as ExampleListWithContext; the serving view has no privileged feature."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, chain, pairwise
from operator import add
from typing import Any, Literal

from features.spec import Feature, FeatureSpec
from features.values import Value
from protos import elwc_pb2

View = Literal["training", "serving"]
DATASET_VIEWS: tuple[View, ...] = ("training", "serving")

_EXAMPLES_FIELD, _CONTEXT_FIELD = b"\x0a", b"\x12"  # field tags of an ELWC
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"  # field tags of a Feature, by value type
_MAX_CACHED_VALUES = 65_536  # cached entries per feature and encoder
_MAX_CACHED_BYTES = 512  # longer entries are not cached


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """One request's candidates. Values are as `features.values.check_value` returns them."""

    context: dict[str, Value]
    items: Sequence[dict[str, Value]]

    def columns(self, names: Iterable[str]) -> "GroupColumns":
        """Converts to columns with the named item features. Errors: KeyError when an item lacks one."""
        items = {name: [item[name] for item in self.items] for name in names}
        return GroupColumns(self.context, items, len(self.items))


@dataclass(slots=True)
class GroupColumns:
    """A query group in columns. items: feature -> values of the `count` items."""

    context: Mapping[str, Value]
    items: Mapping[str, Sequence[Value]]
    count: int

    def item(self, place: int, names: Iterable[str]) -> dict[str, Value]:
        """The named features of one item."""
        return {name: self.items[name][place] for name in names}


def features_in(spec: FeatureSpec, view: View) -> tuple[Feature, ...]:
    """Returns the features of a view: all for training, the regular ones for serving."""
    return tuple(spec) if view == "training" else spec.regular


class GroupEncoder:
    """Encodes query groups of one spec in several views, directly to wire format without protobuf objects.

    The encoding is deterministic: maps are written in key order.
    Source: protobuf.dev/programming-guides/encoding; protos/elwc.proto for the fields.
    """

    def __init__(self, spec: FeatureSpec, *views: View) -> None:
        visible = [sorted(features_in(spec, view), key=lambda feature: feature.name) for view in views]
        self._views = [
            ([f.name for f in features if f.level == "context"], [f.name for f in features if f.level == "item"])
            for features in visible
        ]
        together = {feature.name: feature for features in visible for feature in features}.values()
        self._context, self._items = (
            {feature.name: _entries_of(feature) for feature in together if feature.level == level}
            for level in ("context", "item")
        )

    def encode(self, groups: Sequence[GroupColumns]) -> list[list[bytes]]:
        """Returns the serialised groups of each view. Features that are in no view are ignored.

        All items are encoded together, feature by feature; features in several views are encoded once.
        Errors: KeyError when a group lacks a feature of a view; use `Feature.value_of` first to fill defaults.
        """
        context = {name: [entries[group.context[name]] for group in groups] for name, entries in self._context.items()}
        items = {
            name: list(map(entries.__getitem__, chain.from_iterable([group.items[name] for group in groups])))
            for name, entries in self._items.items()
        }
        ends = list(accumulate([group.count for group in groups], initial=0))
        views = []
        for context_names, item_names in self._views:
            examples = _examples(_EXAMPLES_FIELD, [items[name] for name in item_names], ends[-1])
            parts = [examples[start:end] for start, end in pairwise(ends)]
            if context_names:
                contexts = _examples(_CONTEXT_FIELD, [context[name] for name in context_names], len(groups))
                for own, of_group in zip(parts, contexts, strict=True):
                    own.append(of_group)
            views.append(list(map(b"".join, parts)))
        return views


def encode_group(group: QueryGroup, spec: FeatureSpec, view: View) -> bytes:
    """Encodes one group. For many groups use a `GroupEncoder`."""
    names = [feature.name for feature in features_in(spec, view) if feature.level == "item"]
    ((record,),) = GroupEncoder(spec, view).encode([group.columns(names)])
    return record


class _Entries(dict[Any, bytes]):
    """A feature's value -> its encoded entry in the feature map, with a cache."""

    def __init__(self, feature: Feature) -> None:
        self._key = feature.name.encode()
        self._is_text = not feature.is_numeric

    def __missing__(self, value: str | int) -> bytes:
        # a negative number is written as 64 bits
        content = str(value).encode() if self._is_text else _varint(int(value) & 0xFFFFFFFFFFFFFFFF)
        entry = _entry_header(self._key, _BYTES_LIST if self._is_text else _INT64_LIST, len(content)) + content
        if len(entry) <= _MAX_CACHED_BYTES:
            if len(self) >= _MAX_CACHED_VALUES:
                self.clear()
            self[value] = entry
        return entry


class _FloatEntries:
    """As _Entries, for floats: a constant header before the packed numbers, no cache."""

    def __init__(self, feature: Feature) -> None:
        self._pack = struct.Struct(f"<{feature.length}f").pack
        self._head = _entry_header(feature.name.encode(), _FLOAT_LIST, 4 * feature.length)

    def __getitem__(self, value: Any) -> bytes:
        return self._head + (self._pack(*value) if isinstance(value, tuple) else self._pack(value))


def _entries_of(feature: Feature) -> _Entries | _FloatEntries:
    return _FloatEntries(feature) if feature.type == "float" else _Entries(feature)


def _examples(field: bytes, columns: Sequence[Sequence[bytes]], count: int) -> list[bytes]:
    """Encodes `count` Examples as a field of the ELWC, from their feature entries."""
    bodies = list(map(b"".join, zip(*columns, strict=True))) if columns else [b""] * count
    return list(map(add, map(_EXAMPLE_HEADERS[field], map(len, bodies)), bodies))


def _example_header(field: bytes, size: int) -> bytes:
    """Header of an Example with `size` bytes of entries; an Example without entries is empty."""
    head = _header(b"\x0a", size) if size else b""
    return _header(field, len(head) + size) + head


_EXAMPLE_HEADERS = {
    field: lru_cache(maxsize=1 << 14)(partial(_example_header, field)) for field in (_EXAMPLES_FIELD, _CONTEXT_FIELD)
}


@lru_cache(maxsize=1 << 14)
def _entry_header(key: bytes, kind: bytes, size: int) -> bytes:
    """Header of a feature's entry with `size` bytes of values. kind: the list's field tag."""
    values = _header(b"\x0a", size)
    feature = _header(kind, len(values) + size) + values
    named = _header(b"\x0a", len(key)) + key + _header(b"\x12", len(feature) + size) + feature
    return _header(b"\x0a", len(named) + size) + named


def _header(field: bytes, size: int) -> bytes:
    """Header of a field with `size` bytes."""
    return field + _varint(size)


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


def decode_group(serialised: bytes, spec: FeatureSpec) -> QueryGroup:
    """Decodes a group; features missing in the bytes are absent from it.

    Errors: ValueError when the bytes are not an ELWC, or have a feature that the spec lacks.
    """
    message = elwc_pb2.ExampleListWithContext()
    try:
        message.ParseFromString(serialised)
    except Exception as error:  # protobuf's DecodeError, which has no public import path
        raise ValueError(f"not an ExampleListWithContext: {error}") from None
    return QueryGroup(_values(message.context, spec), [_values(example, spec) for example in message.examples])


def _values(example: Any, spec: FeatureSpec) -> dict[str, Value]:
    return {name: _value(feature, name, spec) for name, feature in example.features.feature.items()}


def _value(stored: Any, name: str, spec: FeatureSpec) -> Value:
    if name not in spec:
        raise ValueError(f"feature {name!r} is not in the spec")
    feature = spec[name]
    try:
        return _value_as(feature, stored)
    except IndexError:
        raise ValueError(f"feature {name!r} holds no {feature.type}") from None


def _value_as(feature: Feature, stored: Any) -> Value:
    if feature.type in ("text", "categorical"):
        return str(stored.bytes_list.value[0].decode())
    if feature.type == "float":
        numbers = tuple(stored.float_list.value)
        if len(numbers) != feature.length:
            raise ValueError(f"feature {feature.name!r} holds {len(numbers)} numbers, expected {feature.length}")
        return numbers if feature.length > 1 else numbers[0]
    number = int(stored.int64_list.value[0])
    return bool(number) if feature.type == "bool" else number
