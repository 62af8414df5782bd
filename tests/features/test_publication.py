"""Publishing on a local disk: a process killed at each change of the disk, two writers, files that are not ours."""

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from features.errors import InputError
from features.local_store import LocalStore
from features.manifest import PublishedManifest, parse_manifest, published_paths
from features.publication import (
    Publication,
    check_ownership,
    finish_killed_runs,
    remove_files,
    remove_publication,
    stored_file,
    unlisted_files_message,
)
from tests.published import everything

CHANGES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"}  # audit events of what changes a disk
FOREIGN = {"model/weights.bin": b"somebody's", "train/same": b"somebody's records", "run-of-mine/run.json": b"{}"}


class Numbers(PublishedManifest):
    kind: str = "numbers"


def publish(output: Path, number: int, alone: bool = True) -> Numbers:
    store = LocalStore()
    finish_killed_runs(store, str(output), alone)
    version = Publication(store, str(output))
    try:
        version.begin()
        store.write(f"{version.scratch}/parts/part", b"part")
        files = {name: version.write(name, f"{number} {name}".encode()) for name in (f"train/{number}", "same")}
        return version.publish(Numbers(stage_key=str(number)), files)
    finally:
        version.abandon()


def manifest_of(output: Path) -> Numbers:
    return parse_manifest((output / "manifest.json").read_bytes(), "test", Numbers)


def version_read(output: Path) -> int:
    """What a reader sees: the version, after checking that all its files are of it."""
    manifest = manifest_of(output)
    for name, stored in manifest.files.items():
        content = Path(manifest.file_path(str(output), name)).read_bytes()
        assert content == f"{manifest.stage_key} {name}".encode()
        assert stored_file(content) == stored
    return int(manifest.stage_key)


def write_foreign(output: Path) -> None:
    for name, content in FOREIGN.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_bytes(content)


def ours(output: Path) -> set[str]:
    return {name for name in everything(output) if name not in FOREIGN}


def killed_after(changes: int, work: Callable[[], object]) -> bool:
    """Runs `work` in a process that kills itself before the change after so many. Returns whether it was killed."""
    child = os.fork()
    if child == 0:
        left = [changes]

        def count(event: str, arguments: tuple[object, ...]) -> None:
            if event in CHANGES and not (event == "open" and not _writes(arguments)):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            work()
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status)


def _writes(arguments: tuple[object, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    return "w" in mode if isinstance(mode, str) else bool(isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR))


@pytest.mark.parametrize("first", [False, True], ids=["over a former version", "the first version"])
def test_a_kill_at_each_change_of_the_disk_leaves_the_old_or_the_new_version_whole(tmp_path: Path, first: bool) -> None:
    seen = []
    for changes in range(1000):
        output = tmp_path / str(changes) / "dataset"
        if not first:
            publish(output, 1)
            write_foreign(output)
        killed = killed_after(changes, partial(publish, output, 2))
        check_ownership(LocalStore(), str(output))  # the next run may begin
        seen.append(version_read(output) if (output / "manifest.json").exists() else 0)
        final = publish(output, 3)
        assert version_read(output) == 3
        expected = {"manifest.json", *(final.stored_path(name) for name in final.files)}
        assert ours(output) == expected, f"killed after {changes} changes"
        assert {name: content for name, content in everything(output).items() if name in FOREIGN} == (
            {} if first else FOREIGN
        )
        folders = [
            path for path in output.iterdir() if path.is_dir() and path.name not in ("model", "run-of-mine", "train")
        ]
        assert folders == [output / str(final.run)]
        if not killed:
            break
    assert set(seen) == {0 if first else 1, 2}
    assert seen == sorted(seen)
    assert len(seen) > 20
    print(f"\n{len(seen) - 1} changes, a kill before each: {len(seen) - seen.count(2)} old, {seen.count(2)} new")


def test_writers_at_the_same_time_leave_one_version_whole(tmp_path: Path) -> None:
    output = tmp_path / "dataset"
    publish(output, 1)
    with ThreadPoolExecutor(8) as writers:
        done = [writers.submit(publish, output, number, False) for number in range(2, 34)]
    assert not [fault for fault in (writing.exception() for writing in done) if fault]
    assert 2 <= version_read(output) < 34


def test_a_directory_that_holds_other_files_is_refused(tmp_path: Path) -> None:
    write_foreign(tmp_path)
    with pytest.raises(InputError, match=r"holds files but no manifest\.json, such as .* not ours to replace"):
        check_ownership(LocalStore(), str(tmp_path))
    assert everything(tmp_path) == FOREIGN


def test_what_is_kept_is_said(tmp_path: Path) -> None:
    manifest = publish(tmp_path, 1)
    assert unlisted_files_message(LocalStore(), str(tmp_path), manifest) == ""
    write_foreign(tmp_path)
    assert unlisted_files_message(LocalStore(), str(tmp_path), manifest).startswith(
        f"kept 3 files in {tmp_path} that manifest.json"
    )


@pytest.mark.parametrize("remove", [remove_publication, lambda *given: remove_files(*given, ["same"])])
def test_a_kill_while_files_are_removed_is_finished_by_the_next_try(
    tmp_path: Path, remove: Callable[[LocalStore, str, Numbers], object]
) -> None:
    for changes in range(100):
        output = tmp_path / str(changes)
        manifest = publish(output, 1)
        (output / str(manifest.run) / "thesis.txt").write_bytes(b"years of work")
        killed = killed_after(
            changes, lambda output=output, manifest=manifest: remove(LocalStore(), str(output), manifest)
        )
        finish_killed_runs(LocalStore(), str(output), alone=True)
        if (output / "manifest.json").exists():
            remove(LocalStore(), str(output), manifest_of(output))
        left = ours(output)
        thesis = f"{manifest.run}/thesis.txt"
        assert left in ({thesis}, {thesis, "manifest.json", f"{manifest.run}/train/1"})
        if "manifest.json" in left:
            assert set(manifest_of(output).files) == {"train/1"}
        if not killed:
            return
    raise AssertionError("it was killed every time")


@pytest.mark.parametrize("name", ["../thesis.txt", "/etc/passwd", "a/../../b", "gs://shop/a", "", "a//b", "a\\b", "."])
def test_a_manifest_that_lists_files_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    listed = {name: stored_file(b"")}
    content = Numbers(stage_key="1").model_copy(update={"files": listed, "run": "run"}).model_dump_json().encode()
    with pytest.raises(InputError, match="no path below the manifest's directory"):
        parse_manifest(content, "manifest.json", Numbers)
    assert not published_paths(content, "*")


@pytest.mark.parametrize("run", ["..", "../a", "a/b", "", "."])
def test_a_manifest_whose_run_leads_elsewhere_is_refused(run: str) -> None:
    content = Numbers(stage_key="1").model_copy(update={"run": run}).model_dump_json().encode()
    with pytest.raises(InputError, match="run: String should match pattern"):
        parse_manifest(content, "manifest.json", Numbers)
