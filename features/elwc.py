"""Query group <-> ExampleListWithContext bytes, in two views; the serving view has no privileged feature."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from features.spec import Feature, FeatureSpec
from features.values import Value
from protos import elwc_pb2

View = Literal["training", "serving"]

EXAMPLES, CONTEXT = b"\x0a", b"\x12"  # fields of the ELWC
MOST_KEPT = 65_536  # entries of a feature's values that an encoder keeps
LONGEST_KEPT = 512  # bytes of one


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """One request's candidates. Values are as `features.values.check_value` returns them."""

    context: dict[str, Value]
    items: Sequence[dict[str, Value]]


def features_in(spec: FeatureSpec, view: View) -> tuple[Feature, ...]:
    """The features that a view holds: all of them for training, the regular ones for serving."""
    return tuple(spec) if view == "training" else spec.regular


class GroupEncoder:
    """Encodes query groups of one spec in one view, straight to the wire: no protobuf object a value.

    A group has the same bytes wherever it is encoded: maps are written in the order of their keys.
    Source: protobuf.dev/programming-guides/encoding; protos/elwc.proto for the fields.
    """

    def __init__(self, spec: FeatureSpec, view: View) -> None:
        visible = sorted(features_in(spec, view), key=lambda feature: feature.name)
        self._context, self._items = (
            [(feature.name, _entries_of(feature)) for feature in visible if feature.level == level]
            for level in ("context", "item")
        )

    def encode(self, group: QueryGroup) -> bytes:
        """Serialised ELWC, the items in the order given. Values the view does not hold are left out.

        Errors: KeyError when the group lacks a feature of the view; `Feature.value_of` fills defaults before.
        """
        parts: list[bytes] = []
        for values in group.items:
            features = b"".join([entries[values[name]] for name, entries in self._items])
            parts += (_head_of_example(EXAMPLES, len(features)), features)
        if self._context:
            features = b"".join([entries[group.context[name]] for name, entries in self._context])
            parts += (_head_of_example(CONTEXT, len(features)), features)
        return b"".join(parts)


def encode_group(group: QueryGroup, spec: FeatureSpec, view: View) -> bytes:
    """One group's bytes; who has many keeps a `GroupEncoder`."""
    return GroupEncoder(spec, view).encode(group)


class _Entries(dict[Any, bytes]):
    """A feature's value -> its entry in the map of features; those of values that come again and again are kept."""

    def __init__(self, feature: Feature) -> None:
        self._is_text = not feature.is_numeric
        self._key = _delimited(b"\x0a", feature.name.encode())

    def __missing__(self, value: str | int) -> bytes:
        if self._is_text:
            stored = _delimited(b"\x0a", _delimited(b"\x0a", str(value).encode()))
        else:  # a negative number is written as 64 bits
            stored = _delimited(b"\x1a", _delimited(b"\x0a", _varint(int(value) & 0xFFFFFFFFFFFFFFFF)))
        entry = _delimited(b"\x0a", self._key + _delimited(b"\x12", stored))
        if len(entry) <= LONGEST_KEPT:
            if len(self) >= MOST_KEPT:
                self.clear()
            self[value] = entry
        return entry


class _FloatEntries:
    """The same for numbers, whose entries differ in nothing but the numbers themselves."""

    def __init__(self, feature: Feature) -> None:
        self._pack = struct.Struct(f"<{feature.length}f").pack
        numbers = bytes(4 * feature.length)
        stored = _delimited(b"\x12", _delimited(b"\x0a", numbers))
        entry = _delimited(b"\x0a", _delimited(b"\x0a", feature.name.encode()) + _delimited(b"\x12", stored))
        self._head = entry.removesuffix(numbers)

    def __getitem__(self, value: Any) -> bytes:
        return self._head + (self._pack(*value) if isinstance(value, tuple) else self._pack(value))


def _entries_of(feature: Feature) -> _Entries | _FloatEntries:
    return _FloatEntries(feature) if feature.type == "float" else _Entries(feature)


def _delimited(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


@lru_cache(maxsize=1 << 14)
def _head_of_example(field: bytes, size: int) -> bytes:
    """What stands before `size` bytes of entries that make an Example in a field of the ELWC; of none, it is empty."""
    head = b"\x0a" + _varint(size) if size else b""
    return field + _varint(len(head) + size) + head


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
