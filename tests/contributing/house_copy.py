"""A copy of the project that a test changes as a recipe says, and runs in processes of its own."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.contributing.recipe import ROOT

ROOMS = (
    "protos", "features", "inference", "simulator", "beam_jobs", "trainer", "serving", "experiments", "tests", "docs",
    "deploy",
)  # fmt: skip
TOYS = Path(__file__).parent / "toys"
PLACEHOLDERS = {"NAME": "toy", "PAPER": "pfd"}  # of paths in the recipes


class HouseCopy:
    """The rooms, below `root`. Paths are those of the recipes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for room in ROOMS:
            shutil.copytree(ROOT / room, root / room, ignore=shutil.ignore_patterns("__pycache__", "results"))
        shutil.copy(ROOT / "pyproject.toml", root)

    def existing(self, path: str) -> Path:
        file = self.root / path
        assert file.is_file(), f"a recipe names the file {path}, which the project does not have"
        return file

    def write(self, path: str, content: str) -> Path:
        """Writes a new file, whose folder exists. `NAME` and `PAPER` in its path are replaced."""
        for placeholder, value in PLACEHOLDERS.items():
            path = path.replace(placeholder, value)
        file = self.root / path
        assert file.parent.is_dir(), f"a recipe names the folder of {path}, which the project does not have"
        assert not file.exists(), f"{path} is there already"
        file.write_text(content)
        return file

    def write_toy(self, path: str, toy: str) -> Path:
        """Writes a new file that is a module of `toys`."""
        return self.write(path, (TOYS / f"{toy}.py").read_text())

    def insert_before(self, path: str, name: str, text: str) -> None:
        """Inserts lines before the top-level definition of `name`, such as a registry."""
        self._insert(path, _definition(self._tree(path), name, path).lineno - 1, text)

    def insert_at_end(self, path: str, name: str, text: str) -> None:
        """Inserts lines at the end of a class or function; `Class.method` names a method."""
        last = self._body(path, name)[-1]
        self._insert(path, last.end_lineno or last.lineno, text)

    def insert_before_return(self, path: str, name: str, text: str) -> None:
        """Inserts lines before the last statement of a function."""
        self._insert(path, self._body(path, name)[-1].lineno - 1, text)

    def replace(self, path: str, old: str, new: str) -> None:
        """Replaces every `old` in a file; there is one or more."""
        file = self.existing(path)
        content = file.read_text()
        assert old in content, f"{path} does not have {old!r}"
        file.write_text(content.replace(old, new))

    def add_field(self, path: str, name: str, line: str) -> None:
        """Adds a line behind the last annotated field of a class."""
        fields = [node for node in self._body(path, name) if isinstance(node, ast.AnnAssign)]
        self._insert(path, fields[-1].end_lineno or 0, line)

    def add_entry(self, path: str, name: str, entry: str) -> None:
        """Adds an entry to a top-level collection: a dict, a list, a tuple, a Literal, or a comprehension's tuple."""
        value = getattr(_definition(self._tree(path), name, path), "value", None)
        assert value is not None, f"{name} in {path} is no collection, to which a recipe adds a line"
        collections = (n for n in ast.walk(value) if isinstance(n, ast.Dict | ast.List | ast.Tuple))
        elements = next(n.values if isinstance(n, ast.Dict) else n.elts for n in collections)
        self._insert_behind(path, elements[-1], f", {entry}")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs `python *command` in the copy, which is imported before anything that is installed."""
        environment = os.environ | {
            "PYTHONPATH": str(self.root), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1",
        }  # fmt: skip
        python = [sys.executable, *command]
        return subprocess.run(python, cwd=self.root, env=environment, capture_output=True, text=True, timeout=600)

    def run_tests(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "pytest", "-p", "no:cacheprovider", "-m", "", *arguments)

    def _tree(self, path: str) -> ast.Module:
        return ast.parse(self.existing(path).read_text())

    def _body(self, path: str, name: str) -> list[ast.stmt]:
        body: list[ast.stmt] = self._tree(path).body
        for part in name.split("."):
            body = _definition(ast.Module(body, []), part, path).body  # type: ignore[attr-defined]
        return body

    def _insert(self, path: str, line: int, text: str) -> None:
        file = self.existing(path)
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([*lines[:line], text.rstrip("\n") + "\n", *lines[line:]]))

    def _insert_behind(self, path: str, node: ast.expr, text: str) -> None:
        file = self.existing(path)
        lines = file.read_bytes().splitlines(keepends=True)  # columns count bytes
        line, column = (node.end_lineno or 0) - 1, node.end_col_offset or 0
        lines[line] = lines[line][:column] + text.encode() + lines[line][column:]
        file.write_bytes(b"".join(lines))


def _definition(tree: ast.Module, name: str, path: str) -> ast.stmt:
    for node in tree.body:
        if name in defined_by(node):
            return node
    raise AssertionError(f"a recipe names {name} in {path}, which does not define it")


def defined_by(node: ast.stmt) -> set[str]:
    """The names that a statement defines in its module."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}
