"""Writes the settings into docs/settings.md and docs/log-fields.md, from the pydantic models: `make settings`."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from beam_jobs.joins.dataset_options import DatasetOptions, VocabularyOptions
from docs.settings_tables import table
from serving.settings import SETTINGS_OF_FLAGS, Settings

DOCS = Path(__file__).parent
GATEWAY_PAGE, DATASET_PAGE = DOCS / "settings.md", DOCS / "log-fields.md"
_BLOCK = re.compile(r"(<!-- settings: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def list_settings(page: str) -> str:
    """The page with new tables. The mark `<!-- settings: NAME -->` says which: a key of `BLOCKS`."""
    return _BLOCK.sub(lambda match: match[1] + BLOCKS[match[2]]() + match[3], page)


def _flags() -> str:
    return table("flag", {_flag(name): Settings.model_fields[name] for name in SETTINGS_OF_FLAGS})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _file() -> str:
    fields = {name: field for name, field in Settings.model_fields.items() if name not in SETTINGS_OF_FLAGS}
    return table("key", {name: field for name, field in fields.items() if section_of(field) is None})


def _sections() -> str:
    """A heading and a table for each section, and for the members of each list of sections."""
    return "\n".join(
        f"### {path}\n\n{_first_paragraph(model)}\n\n{table('key', model.model_fields)}" for path, model in sections()
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


def _first_paragraph(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").partition("\n\n")[0].split())


def flattened(model: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """The fields of a section of the task file; those of a section inside it have its name before theirs."""
    fields = {}
    for name, field in model.model_fields.items():
        inner = section_of(field)
        fields |= {f"{prefix}{name}": field} if inner is None else flattened(inner, f"{prefix}{name}.")
    return fields


BLOCKS: dict[str, Callable[[], str]] = {
    "flags": _flags,
    "file": _file,
    "sections": _sections,
    "dataset": lambda: table("key", flattened(DatasetOptions)),
    "vocabulary": lambda: table("key", flattened(VocabularyOptions)),
}

if __name__ == "__main__":
    for path in (GATEWAY_PAGE, DATASET_PAGE):
        path.write_text(list_settings(path.read_text()))
