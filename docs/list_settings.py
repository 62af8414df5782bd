"""Writes the gateway's settings into docs/settings.md, from the fields of serving/settings.py: `make settings`."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from serving.settings import SETTINGS_OF_FLAGS, Settings

SETTINGS_PAGE = Path(__file__).parent / "settings.md"
_BLOCK = re.compile(r"(<!-- settings: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_TABLE_HEAD = "| {} | type | default | unit | bounds | meaning |\n|---|---|---|---|---|---|\n"
_SIGNS = {Ge: ("ge", "≥"), Gt: ("gt", ">"), Le: ("le", "≤"), Lt: ("lt", "<")}
_TYPES: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean", NoneType: "null"}


def list_settings(page: str) -> str:
    """The page with new tables. The mark `<!-- settings: NAME -->` says which ones: `flags`, `file` or `sections`."""
    blocks = {"flags": _flags, "file": _file, "sections": _sections}
    return _BLOCK.sub(lambda match: match[1] + blocks[match[2]]() + match[3], page)


def _flags() -> str:
    fields = {_flag(name): Settings.model_fields[name] for name in SETTINGS_OF_FLAGS}
    return _TABLE_HEAD.format("flag") + "".join(_row(name, field) for name, field in fields.items())


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _file() -> str:
    fields = {name: field for name, field in Settings.model_fields.items() if name not in SETTINGS_OF_FLAGS}
    rows = [_row(name, field) for name, field in fields.items() if section_of(field) is None]
    return _TABLE_HEAD.format("key") + "".join(rows)


def _sections() -> str:
    """A heading and a table for each section, and for the members of each list of sections."""
    return "\n".join(
        f"### {path}\n\n{_first_paragraph(model)}\n\n{_TABLE_HEAD.format('key')}"
        + "".join(_row(name, field) for name, field in model.model_fields.items())
        for path, model in sections()
    )


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """The path of each section of the settings file, and its model; a list's path ends with `[]`."""
    for name, field in Settings.model_fields.items():
        model, items = section_of(field), items_of(field)
        if items is not None:
            yield f"{name}[]", items
        if model is not None:
            yield name, model
            members = {member: items_of(inner) for member, inner in model.model_fields.items()}
            yield from ((f"{name}.{member}[]", items) for member, items in members.items() if items is not None)


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a section; None for any other field."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def items_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of the members of a field that is a list of sections; None for any other field."""
    member, *_ = get_args(field.annotation) or (None,)
    return member if isinstance(member, type) and issubclass(member, BaseModel) else None


def unit_of(field: FieldInfo) -> str:
    """The unit: the string among the metadata of the field's type."""
    return next((mark for mark in field.metadata if isinstance(mark, str)), "")


def _first_paragraph(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").partition("\n\n")[0].split())


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


if __name__ == "__main__":
    SETTINGS_PAGE.write_text(list_settings(SETTINGS_PAGE.read_text()))
