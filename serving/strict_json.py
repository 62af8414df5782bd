"""JSON as the standard has it: no key twice, no NaN, nothing that only Python would read."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from features.values import shown
from serving.problems import Problem


def parse_json(body: bytes) -> Any:
    """The value in `body`.

    Lone surrogates (`"\\ud800"`) pass, as JSON's grammar has them: whoever takes the text refuses them.
    Errors: Problem malformed-json, duplicate-key.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem(
            "malformed-json", f"The body is not UTF-8: byte {error.start} is {body[error.start]:#04x}"
        ) from None
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Problem("malformed-json", f"The body is not JSON: {error.msg} at {place}") from None
    except ValueError:  # Python refuses to read whole numbers of more than 4,300 digits
        raise Problem("malformed-json", "The body holds a number of thousands of digits, expected 64 bits") from None


@contextmanager
def refusing_depth() -> Iterator[None]:
    """Around what walks a parsed body: a value just shallow enough to parse may be too deep to be shown in an error.

    Errors: Problem malformed-json.
    """
    try:
        yield
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> Problem:
    return Problem("malformed-json", "The body is nested too deeply; a request needs six levels")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Problem("duplicate-key", f"An object names {shown(twice)} twice, expected every key once")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise Problem("malformed-json", f"The body holds {name}, which JSON does not have: send a finite number")
