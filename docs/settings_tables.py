"""Markdown tables of settings, from the fields of pydantic models."""

from collections.abc import Mapping
from datetime import date
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic.fields import FieldInfo

_TABLE_HEAD = "| {} | type | default | unit | bounds | meaning |\n|---|---|---|---|---|---|\n"
_SIGNS = {Ge: ("ge", "≥"), Gt: ("gt", ">"), Le: ("le", "≤"), Lt: ("lt", "<")}
_TYPES: dict[Any, str] = {
    int: "integer", float: "number", str: "string", bool: "boolean", date: "date", NoneType: "null",
}  # fmt: skip


def table(first_head: str, fields: Mapping[str, FieldInfo]) -> str:
    """A table with a row for each field, by its name. first_head: the head of the names' column."""
    return _TABLE_HEAD.format(first_head) + "".join(_row(name, field) for name, field in fields.items())


def unit_of(field: FieldInfo) -> str:
    """The unit: the string among the metadata of the field's type."""
    return next((mark for mark in field.metadata if isinstance(mark, str)), "")


def _row(name: str, field: FieldInfo) -> str:
    cells = [f"`{name}`", _type(field.annotation), _default(field), unit_of(field), _bounds(field), field.description]
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def _type(kind: Any) -> str:
    """A type in the words of YAML: `integer`, `list of string`, `` `open`, `key` or `off` ``."""
    origin, members = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _alternatives([f"`{value}`" for value in members])
    if origin is tuple:
        return f"list of {_type(members[0])}"
    if origin is UnionType or members:
        return _alternatives([_type(member) for member in members])
    return _TYPES.get(kind) or "mappings"  # the members of a list


def _alternatives(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _default(field: FieldInfo) -> str:
    """The default as YAML writes it, or in words where it depends on the machine."""
    if field.is_required():
        return "required"
    if isinstance(field.json_schema_extra, dict):
        return str(field.json_schema_extra["default"])
    match field.default:
        case None:
            return "`null`"
        case bool():
            return f"`{str(field.default).lower()}`"
        case tuple():
            return f"`[{', '.join(field.default)}]`"
        case "":
            return "empty"
        case int(size) if unit_of(field) == "bytes":
            return f"`{size}` ({_binary(size)})"
    return f"`{field.default}`"


def _binary(size: int) -> str:
    """Bytes in the largest binary unit that divides them: 8388608 is 8 MiB."""
    power = max(power for power in range(4) if size % 1024**power == 0)
    return f"{size // 1024**power} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


def _bounds(field: FieldInfo) -> str:
    """The constraints of the field's metadata, such as `≥ 0, ≤ 65535`."""
    bounds = []
    for mark in field.metadata:
        if type(mark) in _SIGNS:
            name, sign = _SIGNS[type(mark)]
            bounds.append(f"{sign} {getattr(mark, name)}")
        elif isinstance(mark, MinLen):
            bounds.append(f"{mark.min_length} or more")
        elif pattern := getattr(mark, "pattern", None):
            bounds.append(f"`{pattern}`")
    return ", ".join(bounds)
