"""Collects from the code of `build_elwc`, with ast, why it does not use a record and what it warns of.

A reason is a name, such as `timestamp_in_seconds`; where a part is known only in a job it has a placeholder, such as
`{feature}_missing`. A message is a sentence with ... in place of each value.
"""

import ast
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from beam_jobs.joins.log_names import OTHER_NAME
from beam_jobs.sources.native_log import RECORD_FAULTS
from beam_jobs.sources.timestamps import TIMESTAMP_FAULTS

ROOT = Path(__file__).parents[2]
# other commands' rooms and files: they read no logs
_OTHER_COMMANDS = (
    "letor/", "drift/", "vocabulary/", "letor_to_elwc", "compare_datasets", "build_vocabulary", "retention",
)  # fmt: skip
GAP = "…"  # replaces each value of a message
_REASON_ARGUMENTS = {  # function -> index of its argument that is a reason
    "Malformed": 1, "MalformedProduct": 0, "BadTimestamp": 0, "RefusedItem": 0, "ItemRefusal": 0,
    "Fate": 2, "reject_request": 2, "refuse_request": 1, "Skipped": 0,
}  # fmt: skip
_PASSED_ON: dict[str, set[str]] = {  # expressions whose reasons are collected where they are made
    text: set()
    for text in ("*timestamp_ms", "*content", "reason", "fate.reason", "item.reason", "row.reason", "found.reason")
}
# file -> expression in a reason -> what it stands for
_VALUES = {
    "beam_jobs/sources/native_log.py": {
        "fault": set(RECORD_FAULTS),
        "name": {"event_id", "request_id"},
        "kind": {"{type}"},
    },
    "beam_jobs/sources/timestamps.py": {
        "f'timestamp_in_{found}'": {name for name in TIMESTAMP_FAULTS if "_in_" in name}
    },
    "beam_jobs/sources/products.py": {"fault": set(RECORD_FAULTS), "timestamp_ms.reason": {"{timestamp reason}"}},
    "beam_jobs/joins/query_groups.py": {"name": {"{feature}"}, "feature.name": {"{feature}"}, "unwanted": set()},
    "beam_jobs/sources/ubi_log.py": {"action": {"{action}"}},
    "beam_jobs/sources/ga4_log.py": {"name": {"{name}"}, "kind": {"{type}"}},
}


def sources(*more: str) -> dict[str, ast.Module]:
    """Path -> syntax tree, of the code that `build_elwc` runs. more: further files."""
    folder = ROOT / "beam_jobs"
    paths = [path for path in folder.rglob("*.py") if not str(path.relative_to(folder)).startswith(_OTHER_COMMANDS)]
    paths += [ROOT / name for name in more]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}


def values_of(expression: ast.expr, known: dict[str, set[str]]) -> set[str]:
    """The texts that an expression can have. Errors: KeyError for an expression that no table of this file names."""
    text = ast.unparse(expression)
    if text in known:
        return known[text]
    if isinstance(expression, ast.Constant):
        return {str(expression.value)} if expression.value else set()
    if isinstance(expression, ast.IfExp):
        return values_of(expression.body, known) | values_of(expression.orelse, known)
    if isinstance(expression, ast.FormattedValue):
        return values_of(expression.value, known)
    if isinstance(expression, ast.JoinedStr):
        return {"".join(parts) for parts in product(*(values_of(part, known) for part in expression.values))}
    return _PASSED_ON[text]


def _calls(tree: ast.AST) -> Iterator[tuple[str, list[ast.expr]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node.args


def reasons(skipping: bool) -> set[str]:
    """The names under which a job counts what it refuses or, with `skipping`, what it skips."""
    group = "skipped/" if skipping else "refused/"
    found = {OTHER_NAME} if skipping else set()
    for file, tree in sources().items():
        known = _VALUES.get(file, {})
        for function, arguments in _calls(tree):
            index = _REASON_ARGUMENTS.get(function, len(arguments))
            skips = function == "Skipped" or (function == "reject_request" and ast.unparse(arguments[1]) == "SKIPPED")
            if index < len(arguments) and skips == skipping:
                found |= values_of(arguments[index], known)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and str(node.value).startswith(group) and node.value[-1].isalpha():
                found.add(node.value.removeprefix(group))  # a count that is named as a whole
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "reason" and not skipping:
                found |= values_of(node.value, known)
            elif isinstance(node, ast.FunctionDef) and node.name == "_unwanted" and skipping:
                found |= _returned(node)
    return found


def _returned(function: ast.FunctionDef) -> set[str]:
    """The texts that a function can return."""
    returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
    return {
        node.value
        for value in returns
        for node in (value, *([value.body, value.orelse] if isinstance(value, ast.IfExp) else []))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def message_of(expression: ast.expr | None) -> str:
    """A message with GAP for each value; empty for an expression that is no text of its own."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return expression.value
    if isinstance(expression, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in expression.values)
    return ""


def _with_words(messages: Iterator[str]) -> set[str]:
    return {message for message in messages if any(letter.isalpha() for letter in message)}


def warnings() -> set[str]:
    """The messages of functions named after warnings, and those that a list `warnings` gets."""
    return _with_words(
        message_of(expression) for tree in sources().values() for node in ast.walk(tree) for expression in _warned(node)
    )


def _warned(node: ast.AST) -> Iterator[ast.expr | None]:
    if isinstance(node, ast.FunctionDef) and "warnings" in node.name:
        yield from (inner.value for inner in ast.walk(node) if isinstance(inner, ast.Yield))
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.append":
        yield node.args[0]


def errors() -> set[str]:
    """The messages with which `build_elwc` ends, but for those about the task file's form."""
    return _with_words(
        message_of(arguments[0])
        for tree in sources("features/publication.py").values()
        for function, arguments in _calls(tree)
        if function == "InputError"
    )
