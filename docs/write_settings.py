"""Writes the tables of `dataset:` and `vocabulary:` into docs/log-fields.md, from the pydantic models: `make settings`.

Each table is between two marks of the page.
"""

import re
import types
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from beam_jobs.joins.dataset_options import DatasetOptions, VocabularyOptions

SETTINGS_PAGE = Path(__file__).parent / "log-fields.md"
MODELS: dict[str, type[BaseModel]] = {"dataset": DatasetOptions, "vocabulary": VocabularyOptions}
_TYPE_NAMES = {str: "text", int: "int", float: "float", date: "date", types.NoneType: "null"}
_BLOCK = re.compile(r"(<!-- settings: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEADING = "| key | type | default | unit | meaning |\n|---|---|---|---|---|\n"


def write_settings(page: str) -> str:
    """The page with new tables. The mark `<!-- settings: NAME -->` names the section of the task file."""
    return _BLOCK.sub(lambda match: match[1] + _HEADING + "".join(_rows(MODELS[match[2]])) + match[3], page)


def _rows(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """A row for each setting; those of a section inside the model have its name before theirs."""
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from _rows(type(field.default), f"{prefix}{name}.")
            continue
        unit = field.json_schema_extra["unit"] if isinstance(field.json_schema_extra, dict) else ""
        cells = (f"`{prefix}{name}`", _type(field), _default(field.default), str(unit), str(field.description))
        yield f"| {' | '.join(cells)} |\n"


def _type(field: FieldInfo) -> str:
    """'int, 2 to 5 or null', 'float above 0', '`query` or `time`'."""
    annotation: Any = field.annotation
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    first, *others = [_TYPE_NAMES[kind] for kind in get_args(annotation) or (annotation,)]
    low = next((bound.ge for bound in field.metadata if isinstance(bound, Ge)), None)
    high = next((bound.le for bound in field.metadata if isinstance(bound, Le)), None)
    if low is not None:
        first += f", {low:,} to {high:,}" if high is not None else f" from {low}"
    above = [f" above {bound.gt}" for bound in field.metadata if isinstance(bound, Gt)]
    return " or ".join(["".join([first, *above]), *others])


def _default(value: Any) -> str:
    if value is None:
        return "null"
    return f"`{value}`" if value != "" else "empty"


if __name__ == "__main__":
    SETTINGS_PAGE.write_text(write_settings(SETTINGS_PAGE.read_text()))
