"""Prints a benchmark's figure as one JSON line, so that runs can be stored and compared."""

import json


def emit(name: str, value: float, unit: str, peer: float | None = None) -> None:
    """Prints one figure. peer: the same quantity of the peer in the same run; ratio: value / peer, or null."""
    ratio = None if not peer else _rounded(value / peer)
    line = {"name": name, "value": _rounded(value), "unit": unit, "peer": _rounded(peer), "ratio": ratio}
    print(json.dumps(line), flush=True)


def _rounded(number: float | None) -> float | None:
    """Rounds to four significant digits, the precision of a benchmark."""
    return None if number is None else float(f"{number:.4g}")
