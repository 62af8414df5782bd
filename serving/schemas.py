"""What /rank takes and gives. A request is read against the served model's features, and nothing else passes."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

from features.elwc import QueryGroup
from features.spec import Feature, FeatureSpec
from features.values import Value, check_value, shown
from serving.problems import Problem, pointer_to
from serving.settings import RequestLimits

MOST_NAMES = 10_000  # keys of a refused value that are looked at: a hostile body may hold millions
OPTIONS = ("top_n", "return_titles", "model_version", "debug")


@dataclass(frozen=True, slots=True)
class RankRequest:
    """One query group to rank. ids: one an item, unique, in the group's order."""

    group: QueryGroup
    ids: list[str]
    top_n: int | None = None
    return_titles: bool = False
    model_version: int | None = None
    debug: bool = False


class RequestReader:
    """Reads /rank bodies for one model.

    spec: all the model's features: the regular ones are read, and the others known, to name them when refused.
    """

    def __init__(self, spec: FeatureSpec, limits: RequestLimits) -> None:
        self.limits = limits
        self._context = spec.at("context", spec.regular)
        self._item = spec.at("item", spec.regular)
        self.context_names = {feature.name for feature in self._context}
        self.item_names = {feature.name for feature in self._item}
        self._names_in_an_item = {"id"} | self.item_names
        self.unknown = UnknownFields(spec)
        self.bare = _only_text(self._item)  # what a bare string among the items stands for
        self.asked = _only_text(self._context)  # the feature that is the query, where there is one

    def check(self, body: Any) -> RankRequest:
        """A parsed body as a request. Errors: Problem."""
        if not isinstance(body, dict):
            raise Problem("invalid-request", f"The body is {shown(body)}, expected one JSON object", "#")
        self.unknown.refuse_in(body, {"items", *OPTIONS} | self.context_names, ())
        context = self._values(body, self._context, self.limits.context_characters, ())
        ids, items = self._items(body.get("items"))
        return RankRequest(
            QueryGroup(context, items),
            ids,
            top_n=_whole(body, "top_n", least=1),
            return_titles=_flag(body, "return_titles"),
            model_version=_whole(body, "model_version", least=0),
            debug=_flag(body, "debug"),
        )

    def _items(self, raw: Any) -> tuple[list[str], list[dict[str, Value]]]:
        if not isinstance(raw, list) or not 1 <= len(raw) <= self.limits.items:
            found = f"{len(raw)} items" if isinstance(raw, list) else shown(raw)
            raise Problem(
                "invalid-request", f"items is {found}, expected a list of 1 to {self.limits.items}", "#/items"
            )
        ids, items, first = [], [], dict[str, int]()
        for index, raw_item in enumerate(raw):
            item_id, values = self._one_item(raw_item, index)
            if first.setdefault(item_id, index) != index:
                told = f"items {first[item_id]} and {index} both have the id {shown(item_id)}, expected unique ids"
                raise Problem("duplicate-id", told, pointer_to("items", index, "id"))
            ids.append(item_id)
            items.append(values)
        return ids, items

    def _one_item(self, raw: Any, index: int) -> tuple[str, dict[str, Value]]:
        where = ("items", index)
        if isinstance(raw, str) and self.bare is not None:
            raw = {self.bare.name: raw}
        if not isinstance(raw, dict):
            expected = "an object" if self.bare is None else f"an object, or a bare {self.bare.name}"
            raise Problem("invalid-request", f"item {index} is {shown(raw)}, expected {expected}", pointer_to(*where))
        self.unknown.refuse_in(raw, self._names_in_an_item, where)
        item_id = raw.get("id")
        item_id = str(index) if item_id is None else self._id(item_id, where)
        return item_id, self._values(raw, self._item, self.limits.item_characters, where)

    def _id(self, raw: Any, where: tuple[str | int, ...]) -> str:
        value, reason = check_value("text", 1, raw)
        longest = self.limits.id_characters
        if reason is None and not 1 <= len(raw) <= longest:
            reason = f"has {len(raw)} characters, expected 1 to {longest}"
        if reason is not None or not isinstance(value, str):
            raise Problem("invalid-request", f"id {reason}", pointer_to(*where, "id"))
        return value

    def _values(
        self, raw: dict[str, Any], features: tuple[Feature, ...], longest: int, where: tuple[str | int, ...]
    ) -> dict[str, Value]:
        """The object's values as the features', defaults filled in. longest: characters of a text or category."""
        values: dict[str, Value] = {}
        for feature in features:
            given = raw.get(feature.name)
            value, reason = feature.value_of(given)
            if isinstance(value, str) and len(value) > longest:
                reason = f"has {len(value)} characters, expected at most {longest}"
            if reason is not None or value is None:
                self.unknown.refuse_nested(given, (*where, feature.name))
                if isinstance(given, str) and not given.strip():
                    reason = "is blank, expected text"
                raise Problem("invalid-request", f"{feature.name} {reason}", pointer_to(*where, feature.name))
            values[feature.name] = value
        return values


def _only_text(features: tuple[Feature, ...]) -> Feature | None:
    """The text that must be given, where there is exactly one."""
    required = [feature for feature in features if feature.is_text and feature.default is None]
    return required[0] if len(required) == 1 else None


class UnknownFields:
    """Refuses what a request may not carry, and says why."""

    def __init__(self, spec: FeatureSpec) -> None:
        self._spec = spec
        self._hidden = {folded(f.name): f for f in spec if f.role in ("privileged", "label")}

    def refuse_in(self, raw: dict[str, Any], known: set[str], where: tuple[str | int, ...]) -> None:
        """Refuses an object at `where` with other names than the known: privileged ones first. Errors: Problem."""
        if not raw.keys() <= known:
            self._refuse(raw, known, where)

    def _refuse(self, raw: dict[str, Any], known: set[str], where: tuple[str | int, ...]) -> NoReturn:
        unknown = [name for name in raw if name not in known]
        for name in unknown:
            self._refuse_hidden(name, (*where, name))
            self.refuse_nested(raw[name], (*where, name))
        name = unknown[0]
        expected = f"expected one of {', '.join(sorted(known))}"
        if name in self._spec:
            feature = self._spec[name]
            expected = f"a feature of the {feature.level}: put it {_PLACES[feature.level]}"
            if feature.role == "id":
                expected = "which names log lines and is not read here; an item's name is its `id`"
        raise Problem("unknown-field", f"unknown field {shown(name)}, {expected}", pointer_to(*where, name))

    def refuse_nested(self, raw: Any, where: tuple[str | int, ...]) -> None:
        """Errors: Problem privileged-feature when one hides anywhere inside a value that is no feature's."""
        for place, name in islice(_names_within(raw, where), MOST_NAMES):
            self._refuse_hidden(name, place)

    def _refuse_hidden(self, name: str, where: tuple[str | int, ...]) -> None:
        feature = self._hidden.get(folded(name))
        if feature is None:
            return
        what = "is the label" if feature.role == "label" else "is privileged"
        remedy = "Remove it from the request"
        if feature.role == "privileged":
            remedy += ", or mark it `role: regular` in the task file if it truly exists when a query arrives"
        told = f"feature {feature.name!r} {what}: the student and /rank may not see it. {remedy}."
        raise Problem("privileged-feature", told, pointer_to(*where))


_PLACES = {"context": "beside `items`, once a request", "item": "into each item"}


def folded(name: str) -> str:
    """A name without case, marks and separators, so that 'Add-To-Cart' and 'addToCart' are 'add_to_cart' too."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    return "".join(character for character in plain if character.isalnum())


def _names_within(raw: Any, where: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every key below `raw` with its place. No recursion: a hostile body may be deep."""
    waiting = [(where, raw)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, dict):
            for name, inner in value.items():
                yield (*place, name), name
                waiting.append(((*place, name), inner))
        elif isinstance(value, list):
            waiting.extend(((*place, index), inner) for index, inner in enumerate(value))


def _whole(body: dict[str, Any], name: str, least: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    number = whole_number(value)
    if number is None or number < least:
        raise Problem("invalid-request", f"{name} is {shown(value)}, expected a whole number from {least}", f"#/{name}")
    return number


def whole_number(raw: Any) -> int | None:
    """A JSON value as an integer, which 1.0 is too; None where it is none."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return None
    return int(raw) if isinstance(raw, int) or raw.is_integer() else None


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise Problem("invalid-request", f"{name} is {shown(value)}, expected true or false", f"#/{name}")
    return value
