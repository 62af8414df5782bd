"""Query group <-> ExampleListWithContext bytes, in two views; the serving view has no privileged feature."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from features.spec import Feature, FeatureSpec
from features.values import Value
from protos import elwc_pb2

View = Literal["training", "serving"]


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """One request's candidates. Values are as `features.values.check_value` returns them."""

    context: dict[str, Value]
    items: Sequence[dict[str, Value]]


def features_in(spec: FeatureSpec, view: View) -> tuple[Feature, ...]:
    """The features that a view holds: all of them for training, the regular ones for serving."""
    return tuple(spec) if view == "training" else spec.regular


def encode_group(group: QueryGroup, spec: FeatureSpec, view: View) -> bytes:
    """Serialised ELWC of one view, the items in the order given. Values the view does not hold are left out.

    Errors: KeyError when the group lacks a feature of the view; `Feature.value_of` fills defaults before.
    """
    visible = features_in(spec, view)
    message = elwc_pb2.ExampleListWithContext()
    _fill(message.context, group.context, spec.at("context", visible))
    item_features = spec.at("item", visible)
    for item in group.items:
        _fill(message.examples.add(), item, item_features)
    return message.SerializeToString(deterministic=True)


def _fill(example: Any, values: dict[str, Value], features: tuple[Feature, ...]) -> None:
    written = example.features.feature
    for feature in features:
        value = values[feature.name]
        if isinstance(value, str):
            written[feature.name].bytes_list.value.append(value.encode())
        elif isinstance(value, tuple):
            written[feature.name].float_list.MergeFromString(_float_list(value))
        elif feature.type == "float":
            written[feature.name].float_list.value.append(value)
        else:
            written[feature.name].int64_list.value.append(int(value))


def _float_list(vector: tuple[float, ...]) -> bytes:
    """A serialised FloatList: protobuf copies its numbers whole, where it would look at each that it is handed."""
    numbers = struct.pack(f"<{len(vector)}f", *vector)
    head, size = b"\x0a", len(numbers)  # field 1, a length and so many bytes; the length as a varint
    while size > 127:
        head, size = head + bytes([size & 127 | 128]), size >> 7
    return head + bytes([size]) + numbers


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
