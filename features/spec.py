"""FeatureSpec: the only list of features, read from the task file's `features:` by every room."""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from features.errors import InputError
from features.task import Section, Task, parse
from features.values import Describe, Value, check_value, truncated_repr

FeatureType = Literal["text", "float", "int", "bool", "categorical"]
Level = Literal["context", "item"]
Role = Literal["regular", "privileged", "label", "id"]

# What shoppers do after the results are shown: it cannot exist when a query arrives.
BEHAVIOUR_NAMES = frozenset({"position", "click", "add_to_cart", "purchase"})
# Names that the exported signatures and /rank use for themselves.
RESERVED_NAMES = frozenset(
    {"item_count", "examples", "score", "items", "id", "top_n", "return_titles", "model_version", "debug", "index"}
)
_FEATURE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


class Feature(Section):
    """One feature: name, type, level and role."""

    model_config = ConfigDict(allow_inf_nan=True)  # `check_value` checks defaults, with a better message

    name: str
    type: FeatureType
    level: Level  # context: once a query; item: once a candidate
    role: Role = "regular"
    length: int = Field(default=1, ge=1, le=65536)  # values in a float vector
    default: str | bool | int | float | tuple[float, ...] | None = None  # a missing value; None: missing is an error

    @field_validator("default")
    @classmethod
    def _is_a_value(cls, default: Value | None, others: ValidationInfo) -> Value | None:
        """The default as `check_value` returns it: 0 and 0.0 are one default, and have one fingerprint."""
        if default is None or not {"type", "length"} <= others.data.keys():  # pydantic reports those first
            return default
        value, reason = check_value(others.data["type"], others.data["length"], default)
        if reason:
            raise ValueError(reason)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "Feature":
        if not _FEATURE_NAME.fullmatch(self.name):
            raise ValueError(f"name {self.name!r}: expected lower-case letters, digits and _, a letter first")
        if self.name in RESERVED_NAMES:
            raise ValueError(f"name {self.name!r} is taken by the serving contract; rename the feature")
        if self.length != 1 and self.type != "float":
            raise ValueError(f"length {self.length} on type {self.type}: only floats may be vectors")
        if self.role == "label" and (self.level != "item" or self.type in ("text", "categorical") or self.length != 1):
            raise ValueError("a label is one bool, int or float an item")
        if self.name in BEHAVIOUR_NAMES and self.role in ("regular", "id"):
            raise ValueError(
                f"{self.name!r} is what shoppers did after the results were shown, so it cannot be {self.role}: "
                "make its role privileged or label"
            )
        return self

    @property
    def is_text(self) -> bool:
        return self.type == "text"

    @property
    def is_numeric(self) -> bool:
        """Whether its values are numbers: float, int and bool."""
        return self.type in ("float", "int", "bool")

    def value_of(self, raw: Any, describe: Describe = truncated_repr) -> tuple[Value | None, str | None]:
        """Converts a raw value to this feature's value. Returns (value, None), or (None, reason).

        describe: how the reason shows the raw value.
        """
        if raw is None or (self.is_text and isinstance(raw, str) and not raw.strip()):
            if self.default is None:
                return None, "is missing and has no default"
            raw = self.default
        return check_value(self.type, self.length, raw, describe)


class FeatureSpec:
    """The features of one task.

    features: name -> Feature, in the task file's order.
    Errors: InputError when no feature is regular, or not exactly one is the label.
    """

    def __init__(self, features: dict[str, Feature]) -> None:
        self.features = features
        if not self.regular:
            raise InputError("features: none is regular, expected one at least: serving would see nothing")
        labels = [feature.name for feature in self if feature.role == "label"]
        if len(labels) != 1:
            raise InputError(f"features: {len(labels)} have role label ({labels}), expected exactly one")
        self.label = features[labels[0]]

    def __iter__(self) -> Iterator[Feature]:
        return iter(self.features.values())

    def __getitem__(self, name: str) -> Feature:
        return self.features[name]

    def __contains__(self, name: object) -> bool:
        return name in self.features

    def with_role(self, role: Role) -> tuple[Feature, ...]:
        return tuple(feature for feature in self if feature.role == role)

    @property
    def regular(self) -> tuple[Feature, ...]:
        """The features that the student, its export and /rank may see."""
        return self.with_role("regular")

    @property
    def privileged(self) -> tuple[Feature, ...]:
        return self.with_role("privileged")

    def at(self, level: Level, features: tuple[Feature, ...] | None = None) -> tuple[Feature, ...]:
        """The features of one level, among `features` where given, else among all."""
        return tuple(feature for feature in (self if features is None else features) if feature.level == level)

    def to_json(self) -> dict[str, Any]:
        """The canonical form: what `from_json` reads and the fingerprint hashes."""
        return {f.name: f.model_dump(mode="json", exclude={"name"}) for f in sorted(self, key=lambda f: f.name)}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical form; the order of the features does not matter."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def first_difference(self, other: "FeatureSpec") -> str | None:
        """The first feature that differs, in words, or None: 'price: role regular here, privileged there'."""
        for name in sorted({*self.features, *other.features}):
            mine, theirs = self.features.get(name), other.features.get(name)
            if mine is None or theirs is None:
                return f"{name}: {_presence(mine)} here, {_presence(theirs)} there"
            for field in Feature.model_fields:
                here, there = getattr(mine, field), getattr(theirs, field)
                if repr(here) != repr(there):  # as the fingerprint sees them: 0.0 is not -0.0
                    return f"{name}: {field} {here!r} here, {there!r} there"
        return None

    def check_same_features(self, other: "FeatureSpec", there: str, remedy: str) -> None:
        """Errors: InputError when `other`, the spec of `there`, is not this one, naming the first difference."""
        if difference := self.first_difference(other):
            raise InputError(f"{there} was made with other features ({difference}): {remedy}")


def _presence(feature: Feature | None) -> str:
    return "absent" if feature is None else "present"


def load_spec(task: Task) -> FeatureSpec:
    """The FeatureSpec of a loaded task file. Errors: InputError."""
    section = task.get("features")
    if not isinstance(section, dict) or not section:
        raise InputError(
            f"features is {section!r}, expected a mapping of feature names; see configs/product_search.yaml"
        )
    return spec_from_json(section)


def spec_from_json(section: dict[str, Any]) -> FeatureSpec:
    """The inverse of FeatureSpec.to_json, and the reader of YAML. Errors: InputError."""
    features = {}
    for name, fields in section.items():
        if not isinstance(fields, dict):
            raise InputError(f"features.{name} is {fields!r}, expected a mapping such as {{type: text, level: item}}")
        if "name" in fields:
            raise InputError(f"features.{name}.name is {fields['name']!r}: a feature's key is its name. Remove it")
        features[str(name)] = parse({"name": str(name), **fields}, f"features.{name}", Feature)
    return FeatureSpec(features)
