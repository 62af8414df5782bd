"""The values that features may have: the one rule for logs, product tables and requests."""

from typing import Any

Value = str | float | int | bool | tuple[float, ...]

LARGEST_FLOAT32 = 3.4028234663852886e38
MAX_TEXT_BYTES = 65536


def shown(raw: Any) -> str:
    """A raw value as an error may show it: at most 60 characters, whatever it is and however deep it nests."""
    try:
        text = repr(raw)
    except RecursionError:
        return f"a {type(raw).__name__} nested too deeply to show"
    return text if len(text) <= 60 else text[:57] + "..."


def check_value(type_name: str, length: int, raw: Any) -> tuple[Value | None, str | None]:
    """A raw JSON value as a feature's value: (value, None), or (None, why it is not one).

    type_name: text | categorical -> str; float -> float, or a tuple of `length` floats; int -> int; bool -> bool.
    Numbers are finite as float32 and never strings; text is valid UTF-8 without NUL.
    """
    if type_name == "float" and length > 1:
        return _vector(raw, length)
    return _CHECKS[type_name](raw)


def _text(raw: Any) -> tuple[Value | None, str | None]:
    if not isinstance(raw, str):
        return None, f"is {shown(raw)}, expected text"
    try:
        size = len(raw.encode("utf-8"))
    except UnicodeEncodeError:
        return None, "holds a lone surrogate, expected valid Unicode"
    if "\0" in raw:
        return None, "holds a NUL character, expected none"
    if size > MAX_TEXT_BYTES:
        return None, f"has {size} bytes, expected at most {MAX_TEXT_BYTES}"
    return raw, None


def _categorical(raw: Any) -> tuple[Value | None, str | None]:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return str(raw), None
    return _text(raw)


def _float(raw: Any) -> tuple[Value | None, str | None]:
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return None, f"is {shown(raw)}, expected a number"
    if not abs(raw) <= LARGEST_FLOAT32:  # so written, it refuses NaN too; an int of any length compares
        return None, f"is {shown(raw)}, expected a number that is finite as float32"
    return float(raw), None


def _int(raw: Any) -> tuple[Value | None, str | None]:
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, int):
        return None, f"is {shown(raw)}, expected a whole number"
    if not -(2**63) <= raw < 2**63:
        return None, f"is {shown(raw)}, expected a whole number of 64 bits"
    return raw, None


def _bool(raw: Any) -> tuple[Value | None, str | None]:
    if raw in (0, 1) and isinstance(raw, (bool, int)):
        return bool(raw), None
    return None, f"is {shown(raw)}, expected true or false"


def _vector(raw: Any, length: int) -> tuple[Value | None, str | None]:
    if not isinstance(raw, (list, tuple)) or len(raw) != length:
        return None, f"is {shown(raw)}, expected a list of {length} numbers"
    numbers = []
    for element in raw:
        number, reason = _float(element)
        if reason:
            return None, f"holds a value that {reason}"
        numbers.append(number)
    return tuple(numbers), None  # type: ignore[arg-type]


_CHECKS = {"text": _text, "categorical": _categorical, "float": _float, "int": _int, "bool": _bool}
