"""The locks: one for each thing that is installed, with what its modules import and little else."""

import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("protos", "features", "inference", "simulator", "beam_jobs", "trainer", "serving")
LEARNER = "beam_jobs.vocabulary.wordpiece"  # the one module of beam_jobs that imports TensorFlow
# lock -> the rooms whose modules run on it
INSTALLED = {
    "beam": ("simulator", "beam_jobs"),
    "vocabulary": ("simulator", "beam_jobs"),
    "trainer": ("trainer",),
    "trainer-gpu": ("trainer",),
    "serving": ("serving",),
}
HTTP_SERVER = {"fastapi", "starlette", "uvicorn"}
# lock -> packages that would enlarge it for nothing
ABSENT = {
    "beam": HTTP_SERVER | {"tensorflow", "tensorflow-text", "keras", "ai-edge-litert", "matplotlib", "scipy"},
    "vocabulary": HTTP_SERVER | {"tensorflow-ranking", "ai-edge-litert", "matplotlib", "scipy"},
    "trainer": HTTP_SERVER | {"apache-beam", "pyarrow", "google-cloud-storage", "msgspec"},
    "trainer-gpu": HTTP_SERVER | {"apache-beam", "pyarrow", "google-cloud-storage", "msgspec"},
    "serving": {
        *("apache-beam", "google-cloud-storage", "matplotlib", "pyarrow", "scipy", "safetensors"),
        *("tensorflow-ranking", "ai-edge-quantizer", "bm25s"),
    },
}
OF_TESTS = {"pytest", "hypothesis", "ruff", "mypy", "uv", "polars", "lightgbm", "onnxruntime"}


def lock(name: str) -> str:
    return (ROOT / "locks" / f"{name}.txt").read_text()


@cache
def pins(name: str) -> dict[str, set[str]]:
    """Package -> its versions in one lock. Every line must be a pinned package or a hash of it."""
    packages: dict[str, set[str]] = {}
    hashes = 1
    for line in lock(name).splitlines():
        if match := re.fullmatch(r"([a-z0-9-]+)(?:\[[a-z0-9, -]+\])?==([\w.+!]+)(?: ;.*)? \\", line):
            assert hashes, f"{name}: no hash before {line!r}"
            packages.setdefault(match[1], set()).add(match[2])
            hashes = 0
        else:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?", line), f"{name}: unexpected {line!r}"
            hashes += 1
    assert hashes
    return packages


def locked(name: str) -> dict[str, set[str]]:
    """The same, with tensorflow for tensorflow-cpu: the same release and the same modules."""
    return {"tensorflow" if package == "tensorflow-cpu" else package: found for package, found in pins(name).items()}


@cache
def imports() -> grimp.ImportGraph:
    return grimp.build_graph(*ROOMS, include_external_packages=True, cache_dir=None)


def third_parties(name: str) -> set[str]:
    """Top-level packages that the rooms of a lock import, directly or through other rooms."""
    modules = {m for m in imports().modules if m.partition(".")[0] in INSTALLED[name]}
    modules -= {LEARNER} if name == "beam" else set()
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        for imported in imports().find_modules_directly_imported_by(waiting.pop()):
            if imported.partition(".")[0] not in ROOMS:
                found.add(imported.partition(".")[0])
            elif imported not in modules and not (name == "beam" and imported == LEARNER):
                modules.add(imported)
                waiting.append(imported)
    return found


def distributions(package: str) -> set[str]:
    """Names, as a lock writes them, of the distributions that install a top-level package."""
    return {re.sub(r"[._]+", "-", name).lower() for name in packages_distributions().get(package, [])}


def test_every_lock_belongs_to_an_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {path.stem for path in (ROOT / "locks").iterdir()} - {"cpu-overrides"}
    assert names == set(project["optional-dependencies"]) - {"cpu"} == {*INSTALLED, "dev"}


@pytest.mark.parametrize("name", [*INSTALLED, "dev"])
def test_every_locked_package_is_pinned_with_hashes_and_without_an_address(name: str):
    assert all(len(versions) == 1 for versions in locked(name).values())
    assert "://" not in lock(name)
    assert not {"tensorflow", "tensorflow-cpu"} <= set(pins(name))  # the two overwrite each other


def test_images_for_cpus_hold_tensorflow_without_gpu_code():
    held = {name: {"tensorflow", "tensorflow-cpu"} & set(pins(name)) for name in (*INSTALLED, "dev")}
    cpu, gpu = {"tensorflow-cpu"}, {"tensorflow"}
    images = {"beam": set[str](), "vocabulary": cpu, "trainer": cpu, "trainer-gpu": gpu, "serving": cpu}
    assert held == images | {"dev": gpu}


@pytest.mark.parametrize("name", INSTALLED)
def test_the_development_lock_holds_every_other_lock_at_the_same_versions(name: str):
    development = locked("dev")
    differing = {p for p, found in locked(name).items() if development.get(p) != found}
    if name == "trainer-gpu":  # CUDA, which the development lock leaves out
        assert len(differing) == 12
        differing = {package for package in differing if not package.startswith("nvidia-")}
    assert not differing, "run make lock"


def declared(extra: str) -> Iterator[str]:
    """Names of the packages that an extra declares, itself or by naming other extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in (*project["dependencies"], *project["optional-dependencies"][extra]):
        if extras := re.fullmatch(r"privrank\[(.+)\]", requirement):
            for other in extras[1].split(","):
                yield from declared(other)
        else:
            yield re.split(r"[\[<>=!~ ]", requirement)[0].lower()


@pytest.mark.parametrize("name", [*INSTALLED, "dev"])
def test_a_lock_holds_what_its_extra_declares(name: str):
    assert not set(declared(name)) - set(locked(name)), "run make lock"


@pytest.mark.parametrize("name", INSTALLED)
def test_a_lock_holds_every_package_that_its_rooms_import(name: str):
    imported = third_parties(name) - sys.stdlib_module_names
    assert imported
    missing = {package for package in imported if not distributions(package) & set(locked(name))}
    assert not missing, f"locks/{name}.txt lacks them"


@pytest.mark.parametrize("name", INSTALLED)
def test_a_lock_holds_nothing_of_the_other_rooms(name: str):
    assert not (ABSENT[name] | OF_TESTS) & set(locked(name))


@pytest.mark.parametrize(
    ("name", "package"),
    [("beam", "apache_beam"), ("vocabulary", "tensorflow_text"), ("trainer", "Stemmer"), ("serving", "grpc")],
)
def test_the_walk_over_imports_finds_a_package(name: str, package: str):
    assert package in third_parties(name)


def test_one_module_of_the_beam_jobs_imports_tensorflow():
    importers = {m for p in ("tensorflow", "tensorflow_text") for m in imports().find_modules_that_directly_import(p)}
    assert {m for m in importers if m.startswith(("beam_jobs", "simulator"))} == {LEARNER}
