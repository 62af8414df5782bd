"""Evaluates alert rules over samples: the part of PromQL that `deploy/alerts.yml` uses, and refuses the rest.

Selectors with ranges and offsets, `rate`, `increase`, `abs`, `sum by`, arithmetic and comparisons. Labels are matched
as Prometheus does: two vectors are joined one to one where all their labels are equal. `rate` and `increase` are not
extrapolated to the ends of the window, so values differ from Prometheus' a little; which series there are does not.
"""

import math
import operator
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Value = float | Vector

LOOKBACK = 300.0  # seconds for which an instant selector takes an older sample
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_TOKEN = re.compile(r'\s*(?:"[^"]*"|[a-zA-Z_][a-zA-Z0-9_]*|[0-9]+[smhdw]|[0-9.]+|==|!=|>=|<=|=~|!~|[-+*/()\[\]{},<>=])')
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip


def seconds(duration: str) -> float:
    return float(duration[:-1]) * UNITS[duration[-1]]


class Samples:
    """Scrapes in the order of time: each has the value of every series then. A failed scrape has none."""

    def __init__(self) -> None:
        self.scrapes: list[tuple[float, dict[tuple[str, Labels], float]]] = []

    def add(self, at: float, series: dict[tuple[str, Labels], float]) -> None:
        self.scrapes.append((at, series))

    def instant(self, name: str, matches: Callable[[Labels], bool], at: float) -> Vector:
        """The series of the latest scrape; one that it does not have any more has ended."""
        scrapes = [scrape for scrape in self.scrapes if at - LOOKBACK < scrape[0] <= at]
        latest = scrapes[-1][1] if scrapes else {}
        return {labels: value for (of, labels), value in latest.items() if of == name and matches(labels)}

    def window(
        self, name: str, matches: Callable[[Labels], bool], at: float, length: float
    ) -> dict[Labels, list[tuple[float, float]]]:
        found: dict[Labels, list[tuple[float, float]]] = {}
        for time, series in self.scrapes:
            if at - length < time <= at:
                for (of, labels), value in series.items():
                    if of == name and matches(labels):
                        found.setdefault(labels, []).append((time, value))
        return found


def evaluate(expression: str, samples: Samples, at: float) -> Value:
    """What the expression is at a time. Errors: ValueError for what is not PromQL, or more of it than is known here."""
    evaluation = _Evaluation(expression, samples, at)
    value = evaluation.comparison()
    evaluation.end()
    return value


class _Evaluation:
    """Parses and evaluates in one go, by recursive descent."""

    def __init__(self, expression: str, samples: Samples, at: float) -> None:
        self._tokens, place, text = list[str](), 0, expression.strip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise ValueError(f"{text[place:]!r} is not known here")
            self._tokens.append(match[0].strip())
            place = match.end()
        self._samples, self._at = samples, at

    def end(self) -> None:
        if self._tokens:
            raise ValueError(f"{self._tokens[0]!r} is not expected")

    def comparison(self) -> Value:
        left = self._sum()
        if (sign := self._peek()) in _COMPARISONS:
            self._take()
            return _filter(left, self._sum(), _COMPARISONS[sign])
        return left

    def _sum(self) -> Value:
        value = self._product()
        while (sign := self._peek()) in ("+", "-"):
            self._take()
            value = _combine(value, self._product(), _ARITHMETIC[sign])
        return value

    def _product(self) -> Value:
        value = self._operand()
        while (sign := self._peek()) in ("*", "/"):
            self._take()
            value = _combine(value, self._operand(), _divide if sign == "/" else _ARITHMETIC[sign])
        return value

    def _operand(self) -> Value:
        token = self._take()
        if token == "(":
            value = self.comparison()
            self._take(")")
            return value
        if re.fullmatch(r"[0-9.]+", token):
            return float(token)
        if token == "sum":
            return self._sum_by()
        if token == "abs":
            return {labels: abs(value) for labels, value in self._argument().items()}
        if token in ("rate", "increase"):
            self._take("(")
            name, matches = self._selector(self._take())
            self._take("[")
            length = seconds(self._take())
            self._take("]")
            windows = self._samples.window(name, matches, self._at - self._offset(), length)
            self._take(")")
            growths = {labels: _growth(window) for labels, window in windows.items() if len(window) > 1}
            return {k: grown / lasted if token == "rate" else grown for k, (grown, lasted) in growths.items()}
        name, matches = self._selector(token)
        return self._samples.instant(name, matches, self._at - self._offset())

    def _sum_by(self) -> Vector:
        self._take("by")
        self._take("(")
        kept = {self._take()}
        while self._take() == ",":
            kept.add(self._take())
        sums: Vector = {}
        for labels, value in self._argument().items():
            group = frozenset(label for label in labels if label[0] in kept)
            sums[group] = sums.get(group, 0.0) + value
        return sums

    def _argument(self) -> Vector:
        self._take("(")
        value = self.comparison()
        self._take(")")
        if isinstance(value, float):
            raise ValueError("a number stands where series are expected")
        return value

    def _selector(self, name: str) -> tuple[str, Callable[[Labels], bool]]:
        if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or self._peek() in ("(", "by"):
            raise ValueError(f"{name!r} is not known here")
        matchers: list[tuple[str, str, str]] = []
        if self._peek() == "{":
            self._take()
            while self._peek() != "}":
                matchers.append((self._take(), self._take(), self._take().strip('"')))
                if self._peek() == ",":
                    self._take()
            self._take("}")
        return name, lambda labels: all(_matches(dict(labels).get(label, ""), *rest) for label, *rest in matchers)

    def _offset(self) -> float:
        if self._peek() != "offset":
            return 0.0
        self._take()
        return seconds(self._take())

    def _peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _take(self, expected: str = "") -> str:
        if not self._tokens or (expected and self._tokens[0] != expected):
            raise ValueError(f"{self._peek()!r} stands where {expected or 'more'!r} is expected")
        return self._tokens.pop(0)


def _matches(value: str, sign: str, wanted: str) -> bool:
    equal = re.fullmatch(wanted, value) is not None if sign in ("=~", "!~") else value == wanted
    return equal if sign in ("=", "=~") else not equal


def _growth(window: list[tuple[float, float]]) -> tuple[float, float]:
    """By how much a counter grew, resets taken into account, and in how many seconds."""
    values = [value for _, value in window]
    grown = sum(new - old if new >= old else new for old, new in pairwise(values))
    return grown, window[-1][0] - window[0][0]


def _divide(left: float, right: float) -> float:
    return left / right if right else math.copysign(math.inf, left) if left else math.nan


def _combine(left: Value, right: Value, work: Callable[[float, float], float]) -> Value:
    if isinstance(left, float):
        if isinstance(right, float):
            return work(left, right)
        return {labels: work(left, value) for labels, value in right.items()}
    if isinstance(right, float):
        return {labels: work(value, right) for labels, value in left.items()}
    return {labels: work(left[labels], right[labels]) for labels in left.keys() & right.keys()}


def _filter(left: Value, right: Value, holds: Callable[[float, float], bool]) -> Value:
    if isinstance(left, float):
        raise ValueError("a number stands left of a comparison, where series are expected")
    others: Any = dict.fromkeys(left, right) if isinstance(right, float) else right
    return {labels: value for labels, value in left.items() if labels in others and holds(value, others[labels])}
