"""House rules: what holds in every file, and that each check would notice when it does not."""

import ast
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("protos", "features", "inference", "simulator", "beam_jobs", "trainer", "serving", "experiments")
BIN = Path(sys.executable).parent  # tools of the same environment
NOT_OURS = {".git", ".venv", "build", "__pycache__", "node_modules"}
BINARY = {".png", ".ico", ".woff2", ".gz", ".xz"}


def files() -> Iterator[Path]:
    """Every file of the project, relative to its root: what git lists or would list."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        names = [Path(name) for name in done.stdout.split("\0") if name]
    else:  # an unpacked archive
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
    for name in names:
        if not NOT_OURS.intersection(name.parts) and (ROOT / name).is_file():
            yield name


def sources() -> Iterator[Path]:
    return (name for name in files() if name.suffix == ".py" and not name.stem.endswith("_pb2"))


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


# --- layout


def test_every_room_of_the_house_is_there():
    for room in (*ROOMS, "configs", "benchmarks", "tests", "docs"):
        assert (ROOT / room).is_dir(), room


def is_test(name: Path) -> bool:
    return name.parts[0] == "tests"


def test_python_files_are_small():
    lines = {name: len((ROOT / name).read_text().splitlines()) for name in sources()}
    long = {str(name): count for name, count in lines.items() if count > (400 if is_test(name) else 300)}
    assert not long, "files above 300 lines, of tests 400: would each read better as two?"


def test_no_folder_is_crowded():
    counts = Counter(name.parent for name in sources())
    crowded = {str(folder): count for folder, count in counts.items() if count > (20 if is_test(folder) else 12)}
    assert not crowded, "folders of more than 12 Python files, of tests 20"


def test_no_file_is_a_drawer():
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [str(name) for name in files() if drawers & {part.removesuffix(".py") for part in name.parts}]


def test_no_file_is_large():
    assert not [str(name) for name in files() if (ROOT / name).stat().st_size > 1_000_000]


def test_every_entry_of_the_ci_is_executable():
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def logic_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, source: list[str]) -> int:
    """Lines of a function's body but for its docstring, comments and blank lines."""
    first = function.body[1] if ast.get_docstring(function) and len(function.body) > 1 else function.body[0]
    lines = source[first.lineno - 1 : function.end_lineno]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)


def long_functions(text: str) -> list[str]:
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    source = text.splitlines()
    return [function.name for function in functions if logic_lines(function, source) > 40]


def test_functions_can_be_seen_whole():
    long = {str(name): long_functions((ROOT / name).read_text()) for name in sources() if not is_test(name)}
    assert not {name: functions for name, functions in long.items() if functions}, "functions above 40 logic lines"


def test_a_long_function_would_be_noticed():
    body = ["    # comment", "", *["    pass"] * 40]
    assert not long_functions("\n".join(["def short():", '    """Docstring', '    of lines."""', *body]))
    assert long_functions("\n".join(["def long():", *body, "    pass"])) == ["long"]


def test_a_public_name_is_defined_once():
    homes: dict[str, list[str]] = {}
    for name in sources():
        if name.parts[0] in ROOMS:
            for node in ast.parse((ROOT / name).read_text()).body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    homes.setdefault(node.name, []).append(str(name))
    # every command has a `main`
    twice = {name: files for name, files in homes.items() if len(files) > 1 and name != "main" and name[0] != "_"}
    assert not twice


# --- text


# in brackets where the pattern would otherwise find itself
FORBIDDEN = {
    "path of a machine": re.compile(r"/(?:hom[e]|User[s]|roo[t])/\w|/wor[k]/|/tm[p]/\w"),
    "registry host": re.compile(
        r"(py[p]i|python[h]osted|npm[j]s|deb\.[d]ebian|maven\.[a]pache|crate[s]|proxy\.[g]olang)\.(org|com|io)"
    ),
    "unfinished place": re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b"),
}
# /tmp is the container's own there
MAY_NAME_TMP = {Path("Dockerfile"), Path("docker-compose.yml"), Path("docs/containers.md")}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names_a_machine_a_registry_or_unfinished_work(what: str):
    found = []
    for name in files():
        if name.suffix in BINARY or name in MAY_NAME_TMP:
            continue
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), start=1):
            if FORBIDDEN[what].search(line):
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert not found


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("path of a machine", "open('/hom" + "e/ann/logs.jsonl')"),
        ("registry host", "https://py" + "pi.org/simple"),
        ("unfinished place", "# TO" + "DO: later"),
    ],
)
def test_a_forbidden_line_would_be_found(what: str, line: str):
    assert FORBIDDEN[what].search(line)


def test_links_between_documents_lead_somewhere():
    broken = []
    for name in files():
        if name.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#\s]+)", (ROOT / name).read_text()):
            if "://" not in target and not (ROOT / name.parent / target).exists():
                broken.append(f"{name}: {target}")
    assert not broken


def test_documents_name_only_targets_that_the_makefile_has():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (str(name), target)
        for name in files()
        if name.suffix == ".md"
        for target in re.findall(r"(?:`|^\s*)make ([a-z][a-z-]*)", (ROOT / name).read_text(), re.MULTILINE)
    }
    assert not {(name, target) for name, target in named if target not in targets}


# --- import arrows


@pytest.fixture
def house_copy(tmp_path: Path) -> Path:
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def arrows(house: Path) -> subprocess.CompletedProcess[str]:
    # PYTHONPATH goes first, so that the copy is read and not this checkout
    return run("env", f"PYTHONPATH={house}", str(BIN / "lint-imports"), "--no-cache", cwd=house)


def test_imports_point_one_way(house_copy: Path):
    done = arrows(house_copy)
    assert done.returncode == 0, done.stdout


def import_order(package: str) -> list[str]:
    """The package's modules, each after those that it imports. Errors: CycleError for modules in a circle."""
    graph = grimp.build_graph(package, cache_dir=None)
    return list(
        TopologicalSorter({m: graph.find_modules_directly_imported_by(m) for m in graph.modules}).static_order()
    )


@pytest.mark.parametrize("room", ROOMS)
def test_no_modules_import_one_another_in_a_circle(room: str):
    assert import_order(room)


def test_a_circle_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "circular_package"
    package.mkdir()
    (package / "__init__.py").touch()
    for name, imported in (("a", "b"), ("b", "c"), ("c", "a")):
        (package / f"{name}.py").write_text(f"import circular_package.{imported}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CycleError):
        import_order("circular_package")


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("serving/smuggled.py", "import trainer.config"),
        ("trainer/smuggled.py", "import beam_jobs"),
        ("beam_jobs/smuggled.py", "import serving"),
        ("features/smuggled.py", "import trainer"),
        ("protos/smuggled.py", "import features.spec"),
        ("features/smuggled.py", "import tensorflow"),
        ("features/smuggled.py", "import apache_beam"),
        ("features/smuggled.py", "from fastapi import FastAPI"),
        ("serving/smuggled.py", "import apache_beam"),
        ("trainer/smuggled.py", "import tensorflow_ranking"),
        ("trainer/models/smuggled.py", "import trainer.pipeline.run"),
        ("serving/observability/smuggled.py", "import serving.models.version_manager"),
        ("beam_jobs/joins/smuggled.py", "import apache_beam"),
        ("beam_jobs/sources/smuggled.py", "import beam_jobs.sinks.shard_files"),
    ],
)
def test_an_import_against_an_arrow_is_noticed(house_copy: Path, where: str, line: str):
    (house_copy / where).write_text(line + "\n")
    done = arrows(house_copy)
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout
