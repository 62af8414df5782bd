"""Task files: one YAML per task; each room reads its own sections."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from features.errors import InputError

TASK_SECTIONS = (
    "extends", "name", "seed", "features", "teachers",                     # the contract
    "simulator", "dataset", "vocabulary", "letor",                         # beam_jobs
    "student", "training", "teacher_architecture", "teacher_training",     # trainer
    "recipes", "evaluation", "export",
)  # fmt: skip

_REMOVED_KEYS = {
    "data": "paths are given to `python -m trainer fit`, by --dataset, --vocabulary and --relevance: remove it"
}

Task = dict[str, Any]


class Section(BaseModel):
    """A frozen section of a task file. Refuses unknown keys and non-finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


SectionT = TypeVar("SectionT", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys; YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice in one mapping, expected once", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def load_task(path: str) -> Task:
    """Reads a task file, as `load_yaml` does."""
    return load_yaml(path, "task file", TASK_SECTIONS)


def load_yaml(path: str, kind: str, keys: Sequence[str]) -> dict[str, Any]:
    """Reads a mapping and, below it, the file that it `extends` (relative to its own folder).

    kind: what the file is, for the errors. keys: that it may have, `extends` among them.
    Mappings are merged key by key; anything else replaces what was extended.
    Errors: InputError for a missing or unreadable file, wrong YAML, an unknown key.
    """
    return _load(Path(path), kind, keys, seen=())


def _load(path: Path, kind: str, keys: Sequence[str], seen: tuple[Path, ...]) -> dict[str, Any]:
    try:
        if path.resolve() in seen:
            raise InputError(f"{kind} {path} extends itself through {seen[-1]}: remove one `extends`")
        content = _Loader(path.read_text(encoding="utf-8")).get_single_data()
    except OSError as error:
        raise InputError(f"cannot read {kind} {path}: {error.strerror}; give an existing YAML file") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, or a 13th month
        raise InputError(f"{kind} {path} is not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{kind} {path} holds {type(content).__name__}, expected a mapping of {', '.join(keys)}")
    for key in content:
        if key not in keys:
            hint = f"; {_REMOVED_KEYS[key]}" if key in _REMOVED_KEYS else ""
            raise InputError(f"{kind} {path}: unknown key {key!r}, expected one of {', '.join(keys)}{hint}")
    parent = content.pop("extends", None)
    if parent is None:
        return content
    if not isinstance(parent, str):
        raise InputError(f"{kind} {path}: extends is {parent!r}, expected the path of another {kind}")
    return merged(_load(path.parent / parent, kind, keys, (*seen, path.resolve())), content)


def merged(base: Task, override: Task) -> Task:
    """Merges `override` into `base`: mappings key by key, other values replaced."""
    result = dict(base)
    for key, value in override.items():
        both_mappings = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both_mappings else value
    return result


def task_name(task: Task) -> str:
    """Returns the task's `name:`, which its datasets, vocabularies and models have. Errors: InputError."""
    name = task.get("name")
    if not isinstance(name, str) or not name:
        raise InputError(f"name is {name!r}, expected a str at the top of the task file")
    return name


def parse_section(task: Task, name: str, model: type[SectionT]) -> SectionT:
    """Parses one section of the task. An absent section has the model's defaults.

    Errors: InputError naming section, field, value and expectation.
    """
    return parse(task.get(name, {}), name, model)


def parse(value: Any, where: str, model: type[SectionT], file: str = "the task file") -> SectionT:
    """`value`, as YAML gave it, as a model; `where` names it in the error, `file` says what to correct."""
    try:
        # through JSON, because pydantic's strict mode takes a list for a tuple only there
        as_json = json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{where} cannot be read as data: {error}. Correct it in {file}") from None
    try:
        return model.model_validate_json(as_json)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in (where, *first["loc"]))
        expectation = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            expectation = f"unknown key, expected one of {', '.join(model.model_fields)}"
        raise InputError(f"{field} is {first['input']!r}: {expectation}. Correct it in {file}") from None
