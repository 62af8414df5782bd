"""A version is loaded from a private copy: changes to the export meanwhile have no effect, and the copy is removed."""

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from features.errors import InputError
from serving.backends import registry as backends
from serving.exports import store as model_store
from serving.exports.private_directory import LOCK, PREFIX, private_directory, remove_stale_directories
from serving.models.loaded_model import load
from serving.settings import Settings
from tests.serving.models.failing_store import VARIABLE
from tests.serving.processes import ROOT, GatewayProcess, environment

SOFAS = {"query": "blue sofa", "items": ["blue sofa", "red sofa", "table"]}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets the temporary directory of this process and of those that it starts."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1, and outside the export directory a version with different scores."""
    from tests.serving import exported_models

    folder = tmp_path_factory.mktemp("made")
    other = exported_models.Overlap(exported_models.SHOP)
    other.bias.assign(5.0)
    exported_models.export(folder / "export")
    exported_models.export(folder / "other", module=other)
    return folder


def replace_files(path: Path, by: Path) -> None:
    """Replaces every file in place: readers with an open file see the new bytes."""
    for file in by.rglob("*"):
        if file.is_file():
            (path / file.relative_to(by)).write_bytes(file.read_bytes())


def scores(folder: Path, backend: str = "embedded") -> list[float]:
    from serving.observability.request_record import RequestRecord
    from serving.observability.trace_context import span_of

    served = load(Settings(export_dir=str(folder), backend=backend), 1)
    [ranking] = served.ranker.rank([served.reader.read(orjson.dumps(SOFAS))], RequestRecord("test", span_of("")))
    return [float(score) for score in ranking.scores]  # type: ignore[union-attr]


STEPS: list[tuple[Any, str]] = [
    (model_store, "_check_hashes"),
    (model_store, "check_graph"),
    (backends, "create_backend"),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("module", "step"), STEPS, ids=[step for _, step in STEPS])
def test_files_swapped_between_the_steps_have_no_effect(
    versions: Path,
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    step: str,
    after: bool,
) -> None:
    expected, other = scores(versions / "export"), scores(versions / "other")
    assert max(expected) < 0.9 < min(other)
    shutil.copytree(versions / "export", tmp_path / "export")
    plain, swaps = getattr(module, step), list[str]()

    def swapping(*arguments: Any) -> Any:
        if not after:
            replace_files(tmp_path / "export" / "1", versions / "other" / "1")
        result = plain(*arguments)
        if after:
            replace_files(tmp_path / "export" / "1", versions / "other" / "1")
        swaps.append(step)
        return result

    monkeypatch.setattr(module, step, swapping)
    assert scores(tmp_path / "export") == expected
    assert swaps == [step]
    assert list(temporary.iterdir()) == []


def test_only_its_user_can_read_the_copy_and_it_is_removed_after_the_load(versions: Path, temporary: Path) -> None:
    with model_store.verified_copy(str(versions / "export"), 1) as model:
        [outer] = temporary.iterdir()
        assert Path(model.path).parent == outer
        assert model.source == str(versions / "export" / "1")
        assert stat.S_IMODE(outer.stat().st_mode) == 0o700
        copied = {str(file.relative_to(model.path)) for file in Path(model.path).rglob("*") if file.is_file()}
        assert copied == set(model.manifest.files)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("backend", ["embedded", "litert"])
def test_a_version_that_is_refused_leaves_nothing_behind(versions: Path, temporary: Path, backend: str) -> None:
    settings = Settings(export_dir=str(versions / "export"), backend=backend, limits={"items": 1})  # type: ignore[arg-type]
    if backend == "litert":
        with pytest.raises(InputError, match="holds no LiteRT files"):
            load(settings, 1)
    else:
        load(settings, 1)
    assert list(temporary.iterdir()) == []


def test_a_version_too_large_for_the_limit_or_the_disk_is_refused_before_it_is_copied(
    versions: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(InputError, match=r"has \d+ bytes, expected at most 1000. Raise `reloading.version_bytes`"),
        model_store.verified_copy(str(versions / "export"), 1, 1000),
    ):
        pass
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
    with (
        pytest.raises(InputError, match=r"the temporary directory has 1 free. Set TMPDIR"),
        model_store.verified_copy(str(versions / "export"), 1),
    ):
        pass
    assert list(temporary.iterdir()) == []


def test_copying_stops_when_a_file_grows_above_its_size(tmp_path: Path) -> None:
    from serving.exports.export_files import copy_file

    (tmp_path / "grown").write_bytes(b"x" * 2000)
    with pytest.raises(InputError, match="has more than 1000 bytes, as it had before the copy"):
        copy_file(str(tmp_path / "grown"), str(tmp_path / "copy"), 1000, "")
    assert not (tmp_path / "copy").exists() or (tmp_path / "copy").stat().st_size <= 1000


def killed_process() -> Path:
    """The private directory of a process that was killed with `kill -9`."""
    program = (
        "import time; from serving.exports.private_directory import private_directory\n"
        "with private_directory() as path:\n (path / 'file').write_text('x'); print(path, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment()) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        process.kill()
    return path.parent


def test_only_our_own_directories_of_ended_processes_are_removed(temporary: Path) -> None:
    stale = killed_process()
    assert (stale / "files" / "file").exists()
    unmarked, open_to_others, link = (temporary / f"{PREFIX}{name}" for name in ("unmarked", "open", "link"))
    for path, mode in ((unmarked, 0o700), (open_to_others, 0o755), (temporary / "elsewhere", 0o700)):
        path.mkdir(mode=mode)
    for path in (open_to_others, temporary / "elsewhere"):
        (path / LOCK).touch()
    link.symlink_to(temporary / "elsewhere")
    with private_directory() as live:
        assert remove_stale_directories() == [str(stale)]
        assert live.is_dir()
    assert {path.name for path in temporary.iterdir()} == {unmarked.name, open_to_others.name, link.name, "elsewhere"}


def test_a_directory_is_never_seen_with_an_unlocked_lock(temporary: Path) -> None:
    with private_directory() as path:
        descriptor = os.open(path.parent / LOCK, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_sigterm_ends_a_gateway_whose_load_hangs(
    versions: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, settings = tmp_path / "order", tmp_path / "gateway.yaml"
    settings.write_text(yaml.safe_dump({"drain_seconds": 0.1}))
    monkeypatch.setenv(VARIABLE, str(orders))
    orders.write_text("hang")  # a read takes a minute
    with GatewayProcess(versions / "export", settings, module="tests.serving.models.failing_store") as gateway:
        wait_until(lambda: bool(list(temporary.glob(f"{PREFIX}*/files/saved_model.pb"))))
        began = time.monotonic()
        gateway.terminate()
        assert gateway.wait() == 0
        assert time.monotonic() - began < 15
        assert gateway.logged("threads-abandoned")[0]["loading"] is True


def test_a_gateway_killed_while_it_copies_leaves_a_directory_that_the_next_one_removes(
    versions: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, settings = tmp_path / "order", tmp_path / "gateway.yaml"
    settings.write_text(yaml.safe_dump({"limits": {"items": 1}, "reloading": {"every_seconds": 0.2}}))
    monkeypatch.setenv(VARIABLE, str(orders))
    orders.write_text("hang")
    with GatewayProcess(versions / "export", settings, module="tests.serving.models.failing_store") as gateway:
        wait_until(lambda: bool(list(temporary.glob(f"{PREFIX}*/files/saved_model.pb"))))
        gateway.kill()
    [left] = temporary.glob(f"{PREFIX}*")
    with GatewayProcess(versions / "export", settings) as gateway:
        gateway.wait_until_ready()
        assert gateway.wait_for_log("stale-copy-removed")["path"] == str(left)
        assert not list(temporary.glob(f"{PREFIX}*"))
        assert gateway.post(SOFAS | {"items": ["blue sofa"]}).status_code == 200
