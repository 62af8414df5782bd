"""Decodes request bodies with msgspec in one pass over the bytes, into types made from the model's features.

Decoding stops at the first value that its type does not allow, so a refused body is neither parsed whole nor copied: at
most 60 ms of CPU and 9 MB for 8 MiB, the largest body. For `{"items": [{}, {}, ...]}` of that size
orjson takes 280 ms and 250 MB, and pydantic's validate_json 2.4 s and 1.3 GB for an error at each item
(`python -m benchmarks.request_bodies`). If an object repeats a key, its last value counts.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from serving.problems import Problem

MAX_INTEGER_DIGITS = 640
"""Digits of an integer that Python may convert, for `sys.set_int_max_str_digits`: its cost is quadratic in them."""

Scalar = str | int | float | bool | None
"""The type of a field whose value is checked after decoding: anything but a list or an object."""

_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_KIND = re.compile(r"Expected `.*`, got `(.*)`")
_KINDS = {
    "array": "a list", "object": "an object", "str": "text", "int": "a number", "float": "a number",
    "bool": "true or false", "null": "null",
}  # fmt: skip


class UndecodedValue:
    """Stands for a value that was not decoded. Its repr is the kind of value, such as 'a list', for error messages."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __repr__(self) -> str:
        return self._kind


@dataclass(frozen=True, slots=True)
class Mismatch(Exception):
    """The first value in a body that its type does not allow.

    path: the names and indices that lead to it.
    value: the value for error messages; an UndecodedValue, or `inf` for a number out of range.
    unknown: the name of an unknown field; `path` then leads to the object that has it.
    """

    path: tuple[str | int, ...]
    value: Any = None
    unknown: str | None = None


class BodyDecoder:
    """Decodes bodies of one type.

    body_type: a type made by `struct_of`. list_field: the name of its `list_of` field, if it has one.
    """

    def __init__(self, body_type: Any, list_field: str = "") -> None:
        self._decoder = msgspec.json.Decoder(body_type)
        self._list_field = list_field

    def decode(self, body: bytes | msgspec.Raw) -> tuple[Any, ...]:
        """Returns the body's values in the order of its fields. Raises: Problem malformed-json, Mismatch."""
        try:
            return msgspec.structs.astuple(self._decoder.decode(body))
        except msgspec.ValidationError as error:
            raise self._mismatch(str(error)) from None
        except RecursionError:
            raise Problem("malformed-json", "The body is nested too deeply; a request needs six levels") from None
        except msgspec.DecodeError as error:
            detail = f"The body is not JSON: {error}"
            if _LONE_SURROGATE.search(body):
                detail += ". The escapes \\ud800 to \\udfff are valid as pairs only"
            raise Problem("malformed-json", detail) from None

    def _mismatch(self, message: str) -> Mismatch:
        message, _, steps = message.rpartition(" - at `$") if " - at `$" in message else (message, "", "")
        path = tuple(name or int(index) for name, index in _STEP.findall(steps.removesuffix("`")))
        if unknown := _UNKNOWN.fullmatch(message):
            return Mismatch(path, unknown=unknown[1])
        if kind := _KIND.fullmatch(message):
            return Mismatch(path, UndecodedValue(_KINDS.get(kind[1], "a value")))
        if message.startswith("Expected `array` of at most length"):  # msgspec gives this error alone no path
            return Mismatch((self._list_field,), UndecodedValue("a longer list"))
        if message.startswith("Expected `array`"):
            return Mismatch(
                path, UndecodedValue("an empty list" if message.endswith("got 0") else "a list of another length")
            )
        return Mismatch(path, math.inf)


def check_utf8(body: bytes) -> None:
    """Refuses a body that is not UTF-8. Raises: Problem malformed-json."""
    try:
        if not body.isascii():
            body.decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"The body is not UTF-8: byte {error.start} is {body[error.start]:#04x}"
        raise Problem("malformed-json", detail) from None


def struct_of(name: str, fields: Mapping[str, Any], *, strict: bool = True) -> type[msgspec.Struct]:
    """Makes the type of a JSON object. Absent fields decode to None.

    fields: JSON name -> type. strict: refuses unknown fields instead of ignoring them.
    """
    attributes = {f"field_{i}": json_name for i, json_name in enumerate(fields)}  # a JSON name may be a Python keyword
    types = [(attribute, fields[json_name], None) for attribute, json_name in attributes.items()]
    return msgspec.defstruct(name, types, rename=attributes, forbid_unknown_fields=strict, gc=False)


def list_of(element: Any, max_length: int) -> type[msgspec.Struct]:
    """Makes the type of a list of 1 to max_length elements; `elements` returns its values.

    msgspec checks the length of a `list` only after decoding all of it. A struct written as an array has one field for
    each element, so decoding stops at the first element above max_length.
    """
    rest = [(f"element_{i}", element, msgspec.UNSET) for i in range(1, max_length)]
    return msgspec.defstruct(
        "Elements", [("element_0", element), *rest], array_like=True, forbid_unknown_fields=True, gc=False
    )


def elements(decoded: msgspec.Struct) -> Iterable[Any]:
    """Yields the values of a decoded `list_of`."""
    for value in msgspec.structs.astuple(decoded):
        if value is msgspec.UNSET:
            return
        yield value


def vector_of(length: int) -> Any:
    """Makes the type of a list of `length` values; any other scalar passes too and is checked after decoding."""
    return tuple[(Scalar,) * length] | Scalar  # type: ignore[misc]
