"""Refuses unknown fields of a request. A privileged feature or the label gets its own problem and remedy."""

import unicodedata
from collections.abc import Collection
from typing import NoReturn

from features.spec import FeatureSpec
from features.values import truncated_repr
from serving.problems import Problem, pointer_to

_MAX_NAME_CHARACTERS = 256  # longer names are neither compared nor echoed; features' names have at most 63


class UnknownFields:
    """Refuses unknown fields of requests to one model. items: the JSON name of the list of items."""

    def __init__(self, spec: FeatureSpec, items: str) -> None:
        self._spec = spec
        self._hidden = {folded(f.name): f for f in spec if f.role in ("privileged", "label")}
        self._places = {"context": f"beside `{items}`, once a request", "item": f"into each of `{items}`"}

    def refuse(self, name: str, known: Collection[str], path: tuple[str | int, ...]) -> NoReturn:
        """Refuses the field `name` of the object at `path`. known: the fields that it may have. Raises: Problem."""
        pointer = pointer_to(*path, name) if len(name) <= _MAX_NAME_CHARACTERS else pointer_to(*path)
        self._refuse_hidden(name, pointer)
        expected = f"expected one of {', '.join(sorted(known))}"
        if name in self._spec:
            feature = self._spec[name]
            if feature.role == "id":
                expected = "which names log lines and is not read here; an item's name is its `id`"
            elif (feature.level == "item") != bool(path):
                expected = f"a feature of the {feature.level}: put it {self._places[feature.level]}"
        raise Problem("unknown-field", f"unknown field {truncated_repr(name)}, {expected}", pointer)

    def _refuse_hidden(self, name: str, pointer: str) -> None:
        feature = self._hidden.get(folded(name)) if len(name) <= _MAX_NAME_CHARACTERS else None
        if feature is None:
            return
        what = "is the label" if feature.role == "label" else "is privileged"
        remedy = "Remove it from the request"
        if feature.role == "privileged":
            remedy += ", or mark it `role: regular` in the task file if it truly exists when a query arrives"
        detail = f"feature {feature.name!r} {what}: the student and /rank may not see it. {remedy}."
        raise Problem("privileged-feature", detail, pointer)


def folded(name: str) -> str:
    """Removes case, marks and separators: 'Add-To-Cart', 'addToCart' and 'add_to_cart' become equal."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    return "".join(character for character in plain if character.isalnum())
