"""Turns request bodies into query groups with the served model's features. Invalid bodies raise a Problem."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec

from features.elwc import QueryGroup
from features.spec import Feature, FeatureSpec
from features.values import Value, check_value, truncated_repr
from serving.problems import Problem, pointer_to
from serving.ranking.body_decoder import BodyDecoder, Mismatch, Scalar, elements, list_of, struct_of, vector_of
from serving.ranking.unknown_fields import UnknownFields
from serving.settings import RequestLimits

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class RankRequest:
    """One query group to rank.

    ids: one unique id for each item, in the group's order.
    model: the model name in the body, if its shape has such a field.
    """

    group: QueryGroup
    ids: list[str]
    top_n: int | None = None
    return_titles: bool = False
    model_version: int | None = None
    debug: bool = False
    model: Scalar = None


@dataclass(frozen=True)
class BodyShape:
    """The JSON names of a request's fields.

    items: the list of items. options: name of a RankRequest field -> its JSON name.
    renamed: feature -> its JSON name, if that differs. id: an item's id; "" if items have none.
    """

    items: str
    options: Mapping[str, str]
    renamed: Mapping[str, str] = field(default_factory=dict)
    id: str = "id"

    def name_of(self, feature: Feature) -> str:
        return self.renamed.get(feature.name, feature.name)


RANK = BodyShape("items", {name: name for name in ("top_n", "return_titles", "model_version", "debug")})


class RequestReader:
    """Reads the bodies of one shape for one model.

    spec: all features of the model. The regular ones are read; the others are only named when they are refused.
    """

    def __init__(self, spec: FeatureSpec, limits: RequestLimits, shape: BodyShape = RANK) -> None:
        self.spec, self.limits, self._shape = spec, limits, shape
        self._context = spec.at("context", spec.regular)
        self._item = spec.at("item", spec.regular)
        self.context_names = {feature.name for feature in self._context}
        self.item_names = {feature.name for feature in self._item}
        self.bare = _only_text(self._item)  # the feature whose value a bare string in the list of items is
        self.query = _only_text(self._context)  # the query feature, if there is exactly one
        self.unknown = UnknownFields(spec, shape.items)
        self._fields_of_item = {shape.name_of(feature): _type_of(feature) for feature in self._item}
        if shape.id:
            self._fields_of_item[shape.id] = Scalar
        self._item_type = struct_of("Item", self._fields_of_item)
        self._items_type = list_of(self._item_type | Scalar, limits.items)
        self._fields = {shape.name_of(feature): _type_of(feature) for feature in self._context}
        self._fields |= {shape.items: self._items_type | Scalar, **dict.fromkeys(shape.options.values(), Scalar)}
        self._decoder = BodyDecoder(struct_of("Body", self._fields), list_field=shape.items)

    def read(self, body: bytes | msgspec.Raw) -> RankRequest:
        """Reads a UTF-8 body. Raises: Problem."""
        try:
            values = self._decoder.decode(body)
        except Mismatch as mismatch:
            self._refuse(mismatch)
        count = len(self._context)
        options = self._options(dict(zip(self._shape.options, values[count + 1 :], strict=True)))
        context = self._values(values[:count], self._context, self.limits.context_characters, ())
        ids, items = self._items(values[count])
        return RankRequest(QueryGroup(context, items), ids, **options)

    def _options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _OPTIONS[name](value, self._shape.options[name]) for name, value in options.items()}

    def _items(self, raw: Any) -> tuple[list[str], list[dict[str, Value]]]:
        if not isinstance(raw, self._items_type):
            self._refuse_items(raw)
        ids, items, first_index = [], [], dict[str, int]()
        for index, raw_item in enumerate(elements(raw)):
            item_id, values = self._one_item(raw_item, index)
            if first_index.setdefault(item_id, index) != index:
                both = f"items {first_index[item_id]} and {index} both have the id {truncated_repr(item_id)}"
                where = pointer_to(self._shape.items, index, self._shape.id)
                raise Problem("duplicate-id", f"{both}, expected unique ids", where)
            ids.append(item_id)
            items.append(values)
        return ids, items

    def _one_item(self, raw: Any, index: int) -> tuple[str, dict[str, Value]]:
        path = (self._shape.items, index)
        raw_values: Sequence[Any]
        item_id = None
        if isinstance(raw, self._item_type):
            raw_values = msgspec.structs.astuple(raw)
            if self._shape.id:
                *raw_values, item_id = raw_values
        elif isinstance(raw, str) and self.bare is not None:
            raw_values = [raw if feature is self.bare else None for feature in self._item]
        else:
            self._refuse_item(raw, index)
        values = self._values(raw_values, self._item, self.limits.item_characters, path)
        return str(index) if item_id is None else self._id(item_id, path), values

    def _id(self, raw: Any, path: Path) -> str:
        max_characters = self.limits.id_characters
        value, reason = check_value("text", 1, raw)
        if reason is None and not 1 <= len(raw) <= max_characters:
            reason = f"has {len(raw)} characters, expected 1 to {max_characters}"
        if reason is not None or not isinstance(value, str):
            raise Problem("invalid-request", f"{self._shape.id} {reason}", pointer_to(*path, self._shape.id))
        return value

    def _values(
        self, raw_values: Iterable[Any], features: Iterable[Feature], max_characters: int, path: Path
    ) -> dict[str, Value]:
        """Returns the checked feature values, with defaults filled in. max_characters: of a text or category."""
        values: dict[str, Value] = {}
        for feature, raw in zip(features, raw_values, strict=True):
            value, reason = feature.value_of(raw)
            if isinstance(value, str) and len(value) > max_characters:
                reason = f"has {len(value)} characters, expected at most {max_characters}"
            if reason is not None or value is None:
                if isinstance(raw, str) and not raw.strip():
                    reason = "is blank, expected text"
                name = self._shape.name_of(feature)
                raise Problem("invalid-request", f"{name} {reason}", pointer_to(*path, name))
            values[feature.name] = value
        return values

    def _refuse(self, mismatch: Mismatch) -> NoReturn:
        """Raises the Problem for a value that could not be decoded, with the same checks as for decoded values."""
        path, value = mismatch.path, mismatch.value
        in_items = path[:1] == (self._shape.items,)
        if mismatch.unknown is not None:
            self.unknown.refuse(mismatch.unknown, self._fields_of_item if in_items else self._fields, path)
        if not path:
            raise Problem("invalid-request", f"The body is {value}, expected one JSON object", "#")
        if path == (self._shape.items,):
            self._refuse_items(value)
        if in_items and len(path) == 2:
            self._refuse_item(value, int(path[1]))
        self._check_field(path[2:] if in_items else path, value, path[:2] if in_items else ())
        raise Problem(
            "invalid-request", f"{path[-1]} is {truncated_repr(value)}, expected another value", pointer_to(*path)
        )

    def _check_field(self, path: Path, value: Any, item_path: Path) -> None:
        """Checks one field's value. item_path: () for a field of the body. Raises: Problem."""
        name, *inner = path
        level, max_characters = (self._item, self.limits.item_characters) if item_path else (self._context, 0)
        for feature in level:
            if self._shape.name_of(feature) == name:
                self._values([(value,) * feature.length if inner else value], [feature], max_characters, item_path)
        if item_path and name == self._shape.id:
            self._id(value, item_path)
        if not item_path:
            self._options({option: value for option, json_name in self._shape.options.items() if json_name == name})

    def _refuse_items(self, raw: Any) -> NoReturn:
        name = self._shape.items
        detail = f"{name} is {truncated_repr(raw)}, expected a list of 1 to {self.limits.items}"
        raise Problem("invalid-request", detail, pointer_to(name))

    def _refuse_item(self, raw: Any, index: int) -> NoReturn:
        expected = "an object" if self.bare is None else f"an object, or a bare {self._shape.name_of(self.bare)}"
        path = pointer_to(self._shape.items, index)
        raise Problem("invalid-request", f"item {index} is {truncated_repr(raw)}, expected {expected}", path)


class BatchReader:
    """Splits a batch into the bodies of its queries. A RequestReader of any version then reads each of them."""

    def __init__(self, reader: RequestReader) -> None:
        self._reader = reader
        self._queries_type = list_of(msgspec.Raw, reader.limits.queries)
        self._decoder = BodyDecoder(struct_of("Batch", {"queries": self._queries_type | Scalar}), list_field="queries")

    def read(self, body: bytes) -> list[msgspec.Raw]:
        """Returns the body of each query. Raises: Problem."""
        try:
            [queries] = self._decoder.decode(body)
        except Mismatch as mismatch:
            if mismatch.unknown is not None:
                self._reader.unknown.refuse(mismatch.unknown, ["queries"], mismatch.path)
            if not mismatch.path:
                detail = f"The body is {mismatch.value}, expected one JSON object"
                raise Problem("invalid-request", detail, "#") from None
            queries = mismatch.value
        if not isinstance(queries, self._queries_type):
            detail = f"queries is {truncated_repr(queries)}, expected a list of 1 to {self._reader.limits.queries}"
            raise Problem("invalid-request", detail, "#/queries")
        return list(elements(queries))


def _only_text(features: tuple[Feature, ...]) -> Feature | None:
    """Returns the required text feature if there is exactly one, else None."""
    required = [feature for feature in features if feature.is_text and feature.default is None]
    return required[0] if len(required) == 1 else None


def _type_of(feature: Feature) -> Any:
    return vector_of(feature.length) if feature.length > 1 else Scalar


def _integer_from(minimum: int) -> Any:
    """Returns a check that an option is an integer of at least `minimum`."""

    def check(value: Any, name: str) -> int | None:
        number = whole_number(value)
        if value is not None and (number is None or number < minimum):
            detail = f"{name} is {truncated_repr(value)}, expected a whole number from {minimum}"
            raise Problem("invalid-request", detail, pointer_to(name))
        return number

    return check


def whole_number(raw: Any) -> int | None:
    """Returns a JSON value as an integer (1.0 counts as one), or None if it is not an integer."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return None
    return int(raw) if isinstance(raw, int) or raw.is_integer() else None


def _flag(value: Any, name: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise Problem("invalid-request", f"{name} is {truncated_repr(value)}, expected true or false", pointer_to(name))
    return bool(value)


def _name(value: Any, name: str) -> Any:
    """Accepts any value: the handler compares it with the served model's name."""
    return value


_OPTIONS: dict[str, Any] = {
    "top_n": _integer_from(1),
    "return_titles": _flag,
    "model_version": _integer_from(0),
    "debug": _flag,
    "model": _name,
}
