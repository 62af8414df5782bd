"""Query group <-> ExampleListWithContext bytes, in two views; the serving view has no privileged feature."""

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

EXAMPLES, CONTEXT = b"\x0a", b"\x12"  # fields of the ELWC
TEXTS, FLOATS, INTEGERS = b"\x0a", b"\x12", b"\x1a"  # of a feature, by the kind of its values
MOST_KEPT = 65_536  # entries of a feature's values that an encoder keeps
LONGEST_KEPT = 512  # bytes of one


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """One request's candidates. Values are as `features.values.check_value` returns them."""

    context: dict[str, Value]
    items: Sequence[dict[str, Value]]

    def columns(self, names: Iterable[str]) -> "GroupColumns":
        """The same by feature, of the item features that are named. Errors: KeyError when an item lacks one."""
        items = {name: [item[name] for item in self.items] for name in names}
        return GroupColumns(self.context, items, len(self.items))


@dataclass(slots=True)
class GroupColumns:
    """A query group as pipelines hold it. items: feature -> its values, one for each of `count` items."""

    context: Mapping[str, Value]
    items: Mapping[str, Sequence[Value]]
    count: int

    def item(self, place: int, names: Iterable[str]) -> dict[str, Value]:
        """The named features of one item."""
        return {name: self.items[name][place] for name in names}


def features_in(spec: FeatureSpec, view: View) -> tuple[Feature, ...]:
    """The features that a view holds: all of them for training, the regular ones for serving."""
    return tuple(spec) if view == "training" else spec.regular


class GroupEncoder:
    """Encodes query groups of one spec in some views, straight to the wire: no protobuf object a value.

    A group has the same bytes wherever it is encoded: maps are written in the order of their keys.
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
        """Serialised ELWCs: a view's groups, for each view. Features that no view holds are left out.

        All items are encoded together, feature by feature, and what several views hold once.
        Errors: KeyError when a group lacks a feature of a view; `Feature.value_of` fills defaults before.
        """
        context = {name: [entries[group.context[name]] for group in groups] for name, entries in self._context.items()}
        items = {
            name: list(map(entries.__getitem__, chain.from_iterable([group.items[name] for group in groups])))
            for name, entries in self._items.items()
        }
        ends = list(accumulate([group.count for group in groups], initial=0))
        views = []
        for context_names, item_names in self._views:
            examples = _examples(EXAMPLES, [items[name] for name in item_names], ends[-1])
            parts = [examples[start:end] for start, end in pairwise(ends)]
            if context_names:
                contexts = _examples(CONTEXT, [context[name] for name in context_names], len(groups))
                for own, of_group in zip(parts, contexts, strict=True):
                    own.append(of_group)
            views.append(list(map(b"".join, parts)))
        return views


def encode_group(group: QueryGroup, spec: FeatureSpec, view: View) -> bytes:
    """One group's bytes; who has many keeps a `GroupEncoder`."""
    names = [feature.name for feature in features_in(spec, view) if feature.level == "item"]
    ((record,),) = GroupEncoder(spec, view).encode([group.columns(names)])
    return record


class _Entries(dict[Any, bytes]):
    """A feature's value -> its entry in the map of features; those of values that come again and again are kept."""

    def __init__(self, feature: Feature) -> None:
        self._key = feature.name.encode()
        self._is_text = not feature.is_numeric

    def __missing__(self, value: str | int) -> bytes:
        # a negative number is written as 64 bits
        content = str(value).encode() if self._is_text else _varint(int(value) & 0xFFFFFFFFFFFFFFFF)
        entry = _head_of_entry(self._key, TEXTS if self._is_text else INTEGERS, len(content)) + content
        if len(entry) <= LONGEST_KEPT:
            if len(self) >= MOST_KEPT:
                self.clear()
            self[value] = entry
        return entry


class _FloatEntries:
    """The same for numbers, whose entries differ in nothing but the numbers themselves."""

    def __init__(self, feature: Feature) -> None:
        self._pack = struct.Struct(f"<{feature.length}f").pack
        self._head = _head_of_entry(feature.name.encode(), FLOATS, 4 * feature.length)

    def __getitem__(self, value: Any) -> bytes:
        return self._head + (self._pack(*value) if isinstance(value, tuple) else self._pack(value))


def _entries_of(feature: Feature) -> _Entries | _FloatEntries:
    return _FloatEntries(feature) if feature.type == "float" else _Entries(feature)


def _examples(field: bytes, columns: Sequence[Sequence[bytes]], count: int) -> list[bytes]:
    """Examples in a field of the ELWC, `count` of them, from the entries of their features."""
    bodies = list(map(b"".join, zip(*columns, strict=True))) if columns else [b""] * count
    return list(map(add, map(HEADS[field], map(len, bodies)), bodies))


def _head_of_example(field: bytes, size: int) -> bytes:
    """What stands before `size` bytes of entries that make an Example; of none, it is empty."""
    head = _head(b"\x0a", size) if size else b""
    return _head(field, len(head) + size) + head


HEADS = {field: lru_cache(maxsize=1 << 14)(partial(_head_of_example, field)) for field in (EXAMPLES, CONTEXT)}


@lru_cache(maxsize=1 << 14)
def _head_of_entry(key: bytes, kind: bytes, size: int) -> bytes:
    """What stands before `size` bytes of values in a feature's entry. kind: of the values."""
    values = _head(b"\x0a", size)
    feature = _head(kind, len(values) + size) + values
    named = _head(b"\x0a", len(key)) + key + _head(b"\x12", len(feature) + size) + feature
    return _head(b"\x0a", len(named) + size) + named


def _head(field: bytes, size: int) -> bytes:
    """What stands before `size` bytes in a field."""
    return field + _varint(size)


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


def decode_group(serialised: bytes, spec: FeatureSpec) -> QueryGroup:
    """The inverse of `encode_group`: features the bytes do not hold are absent from the group.

    Errors: ValueError when the bytes are no ELWC or hold a feature that the spec does not have.
    """
    message = elwc_pb2.ExampleListWithContext()
    try:
        message.ParseFromString(serialised)
    except Exception as error:  # protobuf's DecodeError, which has no public home
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
