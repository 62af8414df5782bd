"""Validates feature values: one rule for logs, product tables and requests."""

from collections.abc import Callable
from typing import Any

Value = str | float | int | bool | tuple[float, ...]

MAX_FLOAT32 = 3.4028234663852886e38
MAX_TEXT_BYTES = 65536


def truncated_repr(raw: Any) -> str:
    """Returns a raw value's repr for errors, truncated to 60 characters, safe for deep nesting."""
    try:
        text = repr(raw[:60] if isinstance(raw, str) else raw)
    except RecursionError:
        return f"a {type(raw).__name__} nested too deeply to show"
    return text if len(text) <= 60 else text[:57] + "..."


def describe_type(raw: Any) -> str:
    """Describes a JSON value's type and size without its content: for messages about personal values."""
    if raw is None or isinstance(raw, bool):
        return {None: "missing", True: "true", False: "false"}[raw]
    if isinstance(raw, int):
        digits = len(str(abs(raw))) if abs(raw) < 10**40 else "40 or more"
        return f"a {'negative ' if raw < 0 else ''}whole number of {digits} digit{'s' if digits != 1 else ''}"
    if isinstance(raw, float):
        return "a fractional number"
    if isinstance(raw, str):
        return f"text of {len(raw)} characters"
    if isinstance(raw, (list, tuple)):
        return f"a list of {len(raw)}"
    return f"an object of {len(raw)} fields" if isinstance(raw, dict) else f"a {type(raw).__name__}"


Describe = Callable[[Any], str]
"""How an error shows a raw value: `truncated_repr`, or `describe_type` where it may be personal."""


def check_value(
    type_name: str, length: int, raw: Any, describe: Describe = truncated_repr
) -> tuple[Value | None, str | None]:
    """Converts a JSON value to a feature's value. Returns (value, None), or (None, reason).

    type_name: text | categorical -> str; float -> float, or a tuple of `length` floats; int -> int; bool -> bool.
    Numbers are finite as float32 and never strings; text is valid UTF-8 without NUL.
    """
    if type_name == "float" and length > 1:
        return _vector(raw, length, describe)
    return _CHECKS[type_name](raw, describe)


def _text(raw: Any, describe: Describe) -> tuple[Value | None, str | None]:
    if not isinstance(raw, str):
        return None, f"is {describe(raw)}, expected text"
    try:
        size = len(raw.encode("utf-8"))
    except UnicodeEncodeError:
        return None, "holds a lone surrogate, expected valid Unicode"
    if "\0" in raw:
        return None, "holds a NUL character, expected none"
    if size > MAX_TEXT_BYTES:
        return None, f"has {size} bytes, expected at most {MAX_TEXT_BYTES}"
    return raw, None


def _categorical(raw: Any, describe: Describe) -> tuple[Value | None, str | None]:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return str(raw), None
    return _text(raw, describe)


def _float(raw: Any, describe: Describe) -> tuple[Value | None, str | None]:
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return None, f"is {describe(raw)}, expected a number"
    if not abs(raw) <= MAX_FLOAT32:  # so written, it refuses NaN too; an int of any length compares
        return None, f"is {describe(raw)}, expected a number that is finite as float32"
    return float(raw), None


def _int(raw: Any, describe: Describe) -> tuple[Value | None, str | None]:
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, int):
        return None, f"is {describe(raw)}, expected a whole number"
    if not -(2**63) <= raw < 2**63:
        return None, f"is {describe(raw)}, expected a whole number of 64 bits"
    return raw, None


def _bool(raw: Any, describe: Describe) -> tuple[Value | None, str | None]:
    if raw in (0, 1) and isinstance(raw, (bool, int)):
        return bool(raw), None
    return None, f"is {describe(raw)}, expected true or false"


def _vector(raw: Any, length: int, describe: Describe) -> tuple[Value | None, str | None]:
    if not isinstance(raw, (list, tuple)) or len(raw) != length:
        return None, f"is {describe(raw)}, expected a list of {length} numbers"
    numbers = []
    for element in raw:
        number, reason = _float(element, describe)
        if reason:
            return None, f"holds a value that {reason}"
        numbers.append(number)
    return tuple(numbers), None  # type: ignore[arg-type]


_CHECKS = {"text": _text, "categorical": _categorical, "float": _float, "int": _int, "bool": _bool}
