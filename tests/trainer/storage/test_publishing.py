"""Stages and exports on a disk and on a store that renames no directory: other files stay, numbers are taken once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from features.errors import InputError
from features.manifest import PublishedManifest
from features.publication import stored_file
from trainer.export import versions as export_versions
from trainer.export.versions import MANIFEST_PATH, place_version, remove_abandoned_copies, versions
from trainer.storage.gfile_store import GfileStore, store_of
from trainer.storage.stages import claim_workdir, is_up_to_date, make_stage, published_path, stage_folder
from trainer.training.progress import new_curves

MODEL = {
    "saved_model.pb": b"graph",
    "variables/variables.index": b"index",
    MANIFEST_PATH: b"manifest",
    "fingerprint.pb": b"f",
}
numbers = iter(range(10_000))


@pytest.fixture(params=["disk", "store without renames"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "disk" else f"ram://bucket{next(numbers)}"


@pytest.fixture(autouse=True)
def truncating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has ram:// replace a file that is written again, as stores do: TensorFlow's appends to it."""
    opened = tf.io.gfile.GFile

    def open_file(path: str, mode: str = "r") -> Any:
        if "w" in mode and path.startswith("ram://") and tf.io.gfile.exists(path):
            tf.io.gfile.remove(path)
        return opened(path, mode)

    monkeypatch.setattr(tf.io.gfile, "GFile", open_file)


def listing(root: str) -> dict[str, bytes | None]:
    return {name: store_of(root).read(f"{root}/{name}") for name in store_of(root).files(root)}


def write_model(directory: str, content: dict[str, bytes] = MODEL) -> str:
    for name, written in content.items():
        store_of(directory).write(f"{directory}/{name}", written)
    return directory


def complete(root: str) -> list[int]:
    return [v for v in versions(root) if tf.io.gfile.exists(f"{root}/{v}/{MANIFEST_PATH}")]


# ---- stages


def make(root: str, key: str, content: bytes) -> bool:
    def write(folder: str) -> dict[str, Any]:
        store_of(folder).write(f"{folder}/weights", content)
        return {"of": key}

    return make_stage(f"{root}/students/student", key, write)


def test_a_stage_is_replaced_whole_and_other_files_stay(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    stage = f"{root}/students/student"
    assert make(root, "one", b"1")
    store_of(root).write(f"{stage}/notes.txt", b"mine")
    store_of(root).write(f"{root}/students/old/weights", b"mine too")
    assert not make(root, "one", b"?")
    assert make(root, "two", b"2")
    folder = stage_folder(stage)
    assert listing(stage) == {
        "manifest.json": store_of(stage).read(f"{stage}/manifest.json"),
        "notes.txt": b"mine",
        f"{folder.removeprefix(stage)[1:]}/weights": b"2",
    }
    assert store_of(root).read(f"{root}/students/old/weights") == b"mine too"
    assert "kept 1 files" in capsys.readouterr().out


def test_a_stage_that_fails_leaves_the_former(root: str) -> None:
    make(root, "one", b"1")
    before = listing(f"{root}/students/student")

    def fail(folder: str) -> dict[str, Any]:
        store_of(folder).write(f"{folder}/weights", b"half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        make_stage(f"{root}/students/student", "two", fail)
    assert listing(f"{root}/students/student") == before
    assert is_up_to_date(f"{root}/students/student", "one")


def test_a_directory_of_somebody_else_is_no_stage(root: str) -> None:
    store_of(root).write(f"{root}/students/student/thesis.txt", b"years of work")
    with pytest.raises(InputError, match=r"holds files but no manifest\.json, such as thesis\.txt"):
        make(root, "one", b"1")
    assert listing(root) == {"students/student/thesis.txt": b"years of work"}


def test_learning_curves_replace_those_of_the_former_training_and_no_others(root: str) -> None:
    store_of(root).write(f"{root}/curves/events.out.tfevents.1.mine", b"mine")
    for _ in range(3):
        writer = new_curves(f"{root}/curves")
        writer.close()
    assert len([name for name in listing(f"{root}/curves") if name.startswith("events")]) == 2
    assert listing(f"{root}/curves")["events.out.tfevents.1.mine"] == b"mine"


def test_a_path_in_a_published_directory_is_found_by_its_name(root: str) -> None:
    manifest = PublishedManifest(
        kind="logs", stage_key="k", run="run-1", files={n: stored_file(b"") for n in ("a.tsv", "test/b.tsv")}
    )
    store_of(root).write(f"{root}/logs/manifest.json", manifest.to_bytes())
    assert published_path(f"{root}/logs/a.tsv") == f"{root}/logs/run-1/a.tsv"
    assert published_path(f"{root}/logs/test/b.tsv") == f"{root}/logs/run-1/test/b.tsv"
    assert published_path(f"{root}/logs/c.tsv") == f"{root}/logs/c.tsv"
    assert published_path("plain.tsv") == "plain.tsv"


def test_a_run_writes_over_nothing_that_is_not_its_own(root: str) -> None:
    store_of(root).write(f"{root}/run/report.html", b"somebody's report")
    with pytest.raises(InputError, match=r"holds report\.html but no manifest\.json of a run"):
        claim_workdir(f"{root}/run", "shop")
    assert listing(root) == {"run/report.html": b"somebody's report"}
    claim_workdir(f"{root}/other", "shop")
    store_of(root).write(f"{root}/other/report.html", b"ours")
    claim_workdir(f"{root}/other", "shop")


# ---- exports


def test_an_export_takes_the_next_number_and_touches_no_other_version(root: str) -> None:
    write_model(f"{root}/3", {"saved_model.pb": b"somebody's model"})
    write_model(f"{root}/readme", {"a.txt": b"somebody's"})
    before = listing(root)
    assert place_version(write_model(f"{root}/draft"), root, "one") == f"{root}/4"
    after = listing(root)
    assert {name: content for name, content in after.items() if not name.startswith(("4/", "draft/"))} == before
    assert {name.removeprefix("4/"): content for name, content in after.items() if name.startswith("4/")} == MODEL


def test_exports_at_the_same_time_take_different_numbers(root: str) -> None:
    drafts = [write_model(f"{root}/draft{n}", {**MODEL, "saved_model.pb": str(n).encode()}) for n in range(8)]
    with ThreadPoolExecutor(8) as exporters:
        placed = list(exporters.map(lambda n: place_version(drafts[n], root, f"run{n}"), range(8)))
    assert len(set(placed)) == 8
    for n, version in enumerate(placed):
        assert listing(version) == {**MODEL, "saved_model.pb": str(n).encode()}
    assert not [name for name in listing(root) if name.startswith("reserved")]


class Killed(BaseException):
    """What no handler of the code catches but `finally`; the store is frozen, so that cleaning does nothing."""


def test_a_kill_at_each_copy_leaves_no_version_that_looks_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = ("copy", "remove", "GFile")
    seen = []
    for last in range(40):
        root = f"ram://bucket{next(numbers)}"
        write_model(f"{root}/1")
        write_model(f"{root}/notes", {"a.txt": b"mine"})
        draft = write_model(f"{root}/draft")
        with monkeypatch.context() as crash:
            left = [last]
            for name in changes:
                crash.setattr(tf.io.gfile, name, _until(getattr(tf.io.gfile, name), left))
            try:
                place_version(draft, root, "run")
                finished = True
            except Killed:
                finished = False
        for version in complete(root):
            assert listing(f"{root}/{version}") == MODEL
        seen.append(len(complete(root)))
        monkeypatch.setattr(export_versions, "ABANDONED_AFTER", timedelta(0))
        remove_abandoned_copies(root)
        assert [name for name in listing(root) if name.startswith(("2/", "reserved"))] == (
            [f"2/{name}" for name in sorted(MODEL)] if seen[-1] == 2 else []
        )
        newest = place_version(write_model(f"{root}/draft"), root, "next")
        assert listing(newest) == MODEL
        assert listing(f"{root}/1") == MODEL
        assert listing(f"{root}/notes") == {"a.txt": b"mine"}
        if finished:
            break
    assert finished
    assert set(seen) == {1, 2}
    assert seen == sorted(seen)
    assert len(seen) >= 7  # reservation, four copies, removal of the reservation


def _until(function: Any, left: list[int]) -> Any:
    def change(*given: Any, **named: Any) -> Any:
        if given[1:] == ("rb",):
            return function(*given, **named)
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return function(*given, **named)

    return change


def test_the_store_renames_no_directory() -> None:
    store = GfileStore()
    root = f"ram://bucket{next(numbers)}"
    store.write(f"{root}/a/x", b"1")
    tf.io.gfile.rename(f"{root}/a", f"{root}/b")
    assert "b/x" not in store.files(root)
