"""Every wrong input of `python -m trainer` ends with one message, exit code 2, and nothing half-written."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from features.errors import InputError, exit_code_of
from features.manifest import DatasetManifest, parse_manifest
from tests.trainer.conftest import Fitted
from tests.trainer.shop import data_of
from trainer.__main__ import main

ROOT = Path(__file__).parents[2]
Task = dict[str, Any]


def trainer(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command as a person runs it."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    line = [sys.executable, "-m", "trainer", *map(str, arguments)]
    return subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def complain(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command in this process, which must end with exit code 2, and returns its one message."""

    def run(*arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["trainer", *map(str, arguments)])
        capsys.readouterr()
        assert exit_code_of(main) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ")
        assert said.count("\n") == 1
        assert "Traceback" not in said
        return said

    return run


def data_arguments(root: Path, changes: Mapping[str, str | None] = MappingProxyType({})) -> list[str]:
    """The command's paths of the shop in `root`; a path changed to None is left out."""
    paths = {"--dataset": "dataset", "--vocabulary": "vocabulary", "--relevance": "relevance.tsv"}
    given = {flag: str(root / name) for flag, name in paths.items()} | changes
    return [part for flag, path in given.items() if path is not None for part in (flag, path)]


def read(shop: Path) -> Task:
    task: Task = yaml.safe_load((shop / "task.yaml").read_text())
    return task


def write(folder: Path, task: Task) -> Path:
    path = folder / "wrong.yaml"
    path.write_text(yaml.safe_dump(task, sort_keys=False))
    return path


def changed(*path: Any, to: Any) -> Callable[[Task], None]:
    def change(task: Task) -> None:
        place: Any = task
        for step in path[:-1]:
            place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
        place[path[-1]] = to

    return change


WRONG: dict[str, tuple[Callable[[Task], None], str]] = {
    "an unknown section": (changed("trainning", to={}), "unknown key 'trainning', expected one of"),
    "an unknown key": (changed("training", "epochs", to=3), "training.epochs is 3: unknown key, expected one of loss"),
    "a key of the wrong type": (changed("training", "steps", to="many"), "training.steps is 'many'"),
    "a number out of range": (changed("training", "learning_rate", to=-1.0), "training.learning_rate is -1.0"),
    "a number that is none": (changed("training", "learning_rate", to=float("nan")), "training.learning_rate"),
    "an unknown loss": (
        changed("training", "loss", to="hinge"),
        "training.loss is 'hinge': Input should be 'rank_bce'",
    ),
    "a section that is none": (changed("student", to=[1]), "student is [1]"),
    "training that is no mapping": (changed("training", to=[1]), "expected a mapping; see configs"),
    "an impossible width": (changed("student", "width", to=17), "must be a multiple of heads"),
    "alpha above 1": (changed("recipes", 1, "alpha", to=1.5), "recipes.1.alpha is 1.5: Input should be less than"),
    "alpha below 0": (changed("recipes", 1, "alpha", to=-0.1), "recipes.1.alpha is -0.1: Input should be greater"),
    "alpha without teachers": (changed("recipes", 0, "alpha", to=0.5), "teachers is empty: name some"),
    "a teacher that sees an unknown feature": (
        changed("teachers", 0, "sees", to=["scroll"]),
        "'position' sees 'scroll', which is unknown; expected privileged features only (position, click)",
    ),
    "a teacher that sees a regular feature": (
        changed("teachers", 0, "sees", to=["price"]),
        "'position' sees 'price', which is regular; expected privileged",
    ),
    "a teacher that sees the label": (changed("teachers", 0, "sees", to=["purchase"]), "which is label; expected"),
    "a student that would see": (
        changed("recipes", 1, "sees", to=["click"]),
        "recipes.1.sees is ['click']: unknown key",
    ),
    "two teachers of one name": (changed("teachers", 1, "name", to="position"), "which an earlier entry has"),
    "a name with a path": (changed("recipes", 1, "name", to="../../etc"), "recipes.1.name is '../../etc'"),
    "recipes that name an unknown teacher": (
        changed("recipes", 1, "teachers", to=["oracle"]),
        "'student' names the unknown teacher 'oracle', expected one of position, click",
    ),
    "a recipe that starts from a later one": (
        changed("recipes", 0, "starts_from", to="student"),
        "'no_distillation' starts from 'student', expected an earlier recipe",
    ),
    "a recipe that learns places": (
        changed("recipes", 0, "learns", to="position"),
        "learns 'position', expected one",
    ),
    "a recipe that learns a text": (changed("recipes", 0, "learns", to="title"), "learns 'title', expected one of"),
    "no recipes": (changed("recipes", to=[]), "recipes is empty, expected at least one"),
    "recipes that are no list": (changed("recipes", to={"name": "x"}), "expected a list of mappings"),
    "an unknown baseline": (changed("evaluation", "baseline", to="best"), "evaluation.baseline is 'best', expected"),
    "an unknown recipe to export": (changed("export", "recipe", to="best"), "export.recipe is 'best', expected"),
    "a label marked regular": (
        changed("features", "purchase", "role", to="regular"),
        "so it cannot be regular: make its role privileged or label",
    ),
    "a click marked regular": (changed("features", "click", "role", to="regular"), "so it cannot be regular"),
    "no label": (changed("features", "purchase", "role", to="privileged"), "0 have role label"),
    "no name": (changed("name", to=None), "name is None, expected a str"),
    "a seed that is text": (changed("seed", to="seven"), "seed is 'seven', expected an integer"),
    "paths in the task file": (
        changed("data", to={"dataset": "build/shop/dataset"}),
        "unknown key 'data', expected one of extends, name, seed",
    ),
    "other features than the dataset's": (
        changed("features", "price", "default", to=11.0),
        "was made with other features (price: default 11.0 here, 10.0 there): run build_elwc",
    ),
    "a feature the dataset has not": (
        changed("features", "size", to={"type": "int", "level": "item"}),
        "was made with other features (size: present here, absent there)",
    ),
}


@pytest.mark.parametrize(("change", "complaint"), WRONG.values(), ids=WRONG)
def test_a_wrong_task_file_is_refused(
    shop: Path, tmp_path: Path, complain: Callable[..., str], change: Callable[[Task], None], complaint: str
) -> None:
    task = read(shop)
    change(task)
    said = complain("fit", "--config", write(tmp_path, task), *data_arguments(shop), "--workdir", tmp_path / "run")
    assert complaint in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("place", "path", "complaint"),
    [
        ("--dataset", "/nowhere/at/all", "/nowhere/at/all is not complete"),
        ("--vocabulary", "/nowhere", "/nowhere is not complete"),
        ("--vocabulary", None, "--vocabulary is missing, expected the directory that build_vocabulary wrote"),
        ("--relevance", "/nowhere.tsv", "cannot read /nowhere.tsv (no such file): give --relevance a TSV"),
    ],
)
def test_an_input_that_is_not_there_is_refused(
    shop: Path, tmp_path: Path, complain: Callable[..., str], place: str, path: str | None, complaint: str
) -> None:
    said = complain(
        "fit", "--config", shop / "task.yaml", *data_arguments(shop, {place: path}), "--workdir", tmp_path / "run"
    )
    assert complaint in said
    assert not (tmp_path / "run").exists()


@pytest.fixture
def copied(shop: Path, tmp_path: Path) -> Path:
    """A copy of the shop that a test may damage."""
    for name in ("dataset", "vocabulary"):
        shutil.copytree(shop / name, tmp_path / name)
    task = read(shop)
    (tmp_path / "relevance.tsv").write_text((shop / "relevance.tsv").read_text())
    write(tmp_path, task)
    return tmp_path


def fit_complaint(complain: Callable[..., str], copied: Path) -> str:
    return complain("fit", "--config", copied / "wrong.yaml", *data_arguments(copied), "--workdir", copied / "run")


def test_a_dataset_without_a_manifest_is_not_complete(copied: Path, complain: Callable[..., str]) -> None:
    (copied / "dataset" / "manifest.json").unlink()
    assert "is not complete, for it has no manifest.json: make it again" in fit_complaint(complain, copied)
    assert not (copied / "run").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"kind": "dataset"}'])
def test_a_damaged_manifest_is_refused(copied: Path, complain: Callable[..., str], content: bytes) -> None:
    (copied / "dataset" / "manifest.json").write_bytes(content)
    assert "manifest.json is no dataset manifest" in fit_complaint(complain, copied)
    assert not (copied / "run").exists()


def test_a_vocabulary_of_another_kind_is_refused(copied: Path, complain: Callable[..., str]) -> None:
    shutil.copy(copied / "dataset" / "manifest.json", copied / "vocabulary" / "manifest.json")
    assert "no vocabulary manifest" in fit_complaint(complain, copied)


def test_a_vocabulary_changed_by_hand_is_refused(copied: Path, complain: Callable[..., str]) -> None:
    with (copied / "vocabulary" / "vocabulary.txt").open("a") as file:
        file.write("zebra\n")
    said = fit_complaint(complain, copied)
    assert "vocabulary.txt has SHA-256" in said
    assert "run build_vocabulary again" in said


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_split_without_a_purchase_is_refused_before_anything_is_trained(
    copied: Path, complain: Callable[..., str], split: str
) -> None:
    path = copied / "dataset" / "manifest.json"
    manifest = parse_manifest(path.read_bytes(), "test", DatasetManifest)
    statistics = manifest.splits[split].model_copy(update={"groups_with_label": 0})
    path.write_bytes(manifest.model_copy(update={"splits": {**manifest.splits, split: statistics}}).to_bytes())
    assert f"{split} has" in (said := fit_complaint(complain, copied))
    assert "none with a purchase" in said
    assert not (copied / "run").exists()


def test_a_split_without_its_files_is_refused(copied: Path, complain: Callable[..., str]) -> None:
    for path in (copied / "dataset" / "train").glob("training_elwc-*"):
        path.unlink()
    assert "is not there, though the manifest lists it: run build_elwc again" in fit_complaint(complain, copied)


def test_a_shard_cut_short_is_refused(copied: Path, complain: Callable[..., str]) -> None:
    path = next((copied / "dataset" / "train").glob("training_elwc-00001*"))
    content = path.read_bytes()
    path.write_bytes(content[:-400])
    said = fit_complaint(complain, copied)
    assert f"{path} has {len(content) - 400} bytes, expected {len(content)}, as the manifest says" in said
    assert "run build_elwc again" in said


def test_a_damaged_shard_is_refused(copied: Path, complain: Callable[..., str]) -> None:
    path = next((copied / "dataset" / "train").glob("training_elwc-00001*"))
    content = path.read_bytes()
    path.write_bytes(content[:-400] + bytes(400))
    said = fit_complaint(complain, copied)
    assert f"a file of dataset {copied}/dataset" in said
    assert "run build_elwc again" in said


RELEVANCE = {
    "without its columns": (b"q\titem\tgrade\nred\tp1\t1\n", "without ['item_id', 'query', 'relevance']"),
    "empty": (b"", "has the columns []"),
    "with a word for a number": (b"query\titem_id\trelevance\nred\tp1\thigh\n", "line 2"),
    "with a short line": (b"query\titem_id\trelevance\nred\tp1\t1\nred\n", "line 3"),
    "that is no UTF-8": (b"query\titem_id\trelevance\n\xff\xfe\tp1\t1\n", "cannot read"),
}


@pytest.mark.parametrize(("content", "complaint"), RELEVANCE.values(), ids=RELEVANCE)
def test_a_bad_relevance_file_is_refused_before_anything_is_trained(
    copied: Path, complain: Callable[..., str], content: bytes, complaint: str
) -> None:
    (copied / "relevance.tsv").write_bytes(content)
    said = fit_complaint(complain, copied)
    assert complaint in said
    assert "relevance.tsv" in said
    assert "or leave it out" in said
    assert not (copied / "run").exists()


def test_a_workdir_that_is_a_file_is_refused(copied: Path, complain: Callable[..., str]) -> None:
    (copied / "run").write_text("mine")
    assert "cannot write" in fit_complaint(complain, copied)
    assert (copied / "run").read_text() == "mine"


@pytest.mark.parametrize("workdir", ["", "/", "//"])
def test_the_root_of_the_file_system_is_no_workdir(shop: Path, workdir: str) -> None:
    from trainer.config import load_config
    from trainer.pipeline.run import Run

    with pytest.raises(InputError, match=r"workdir is '/?/?', expected a directory of the run's own"):
        Run(load_config(str(shop / "task.yaml")), data_of(shop), workdir)


@pytest.mark.parametrize("command", ["summary", "chart"])
def test_summary_and_chart_need_a_finished_run(tmp_path: Path, complain: Callable[..., str], command: str) -> None:
    more = ["--output", tmp_path / "chart.png"] if command == "chart" else []
    said = complain(command, "--workdir", tmp_path / "nowhere", *more)
    assert "metrics.json (no such file): run `python -m trainer fit` first" in said
    (tmp_path / "metrics.json").write_text('{"models": {"half')
    assert "is not what fit wrote" in complain(command, "--workdir", tmp_path, *more)
    assert not (tmp_path / "chart.png").exists()


def test_the_chart_needs_a_writable_place(fitted: Fitted, tmp_path: Path, complain: Callable[..., str]) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write" in complain("chart", "--workdir", fitted.workdir, "--output", tmp_path / "file" / "chart.png")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot read task file"),
        (b"features: [", "is not valid YAML"),
        (b"- a list", "holds list, expected a mapping of extends"),
        (b"!!python/object/apply:os.system ['true']", "is not valid YAML"),
    ],
    ids=["missing", "broken", "a list", "hostile"],
)
def test_the_real_command_ends_with_one_message(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    path = tmp_path / "task.yaml"
    if content is not None:
        path.write_bytes(content)
    done = trainer("fit", "--config", path, *data_arguments(tmp_path), "--workdir", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "run").exists()


def test_the_real_command_refuses_another_fingerprint_with_nothing_on_its_error_but_the_message(
    shop: Path, tmp_path: Path
) -> None:
    task = read(shop)
    task["features"]["price"]["default"] = 11.0
    done = trainer("fit", "--config", write(tmp_path, task), *data_arguments(shop), "--workdir", tmp_path / "run")
    assert done.returncode == 2
    assert [line[:6] for line in done.stderr.splitlines()] == ["error:"]
    assert "price: default 11.0 here, 10.0 there" in done.stderr
    assert not (tmp_path / "run").exists()


def test_help_has_an_example_and_does_not_wait_for_tensorflow() -> None:
    done = trainer("--help")
    assert done.returncode == 0
    assert "python -m trainer fit --config configs/product_search.yaml --dataset build/demo/dataset" in done.stdout
