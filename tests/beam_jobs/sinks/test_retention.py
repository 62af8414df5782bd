"""Retention sweeps a root: dead letters of dated outputs of several ages, on a disk and on an object store."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from beam_jobs import retention
from beam_jobs.retention import sweep_dead_letters
from beam_jobs.sinks.refused_dataset import COUNTS_FILE, RefusedManifest
from beam_jobs.storage.beam_store import beam_store_for
from features.errors import InputError
from features.manifest import DatasetManifest, EventCounts, parse_manifest
from features.publication import Publication
from tests.beam_jobs.storage.fake_gcs import FakeGcs, serving

ROOT = Path(__file__).parents[3]
LETTERS = "dead_letters/dead_letters-00000-of-00001.jsonl.gz"
RECORDS = "train/training_elwc-00000-of-00001.tfrecord.gz"
AGES = {"2025-03-01": 60, "2025-03-20": 31, "2025-04-10": 10}  # days, by dated output
DAYS = 30


@pytest.fixture(params=["disk", "object store"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Dated datasets of several ages, a job that failed, a dataset of locale within, and files of somebody else."""
    if request.param == "disk":
        write_shop(str(tmp_path / "shop"))
        yield str(tmp_path / "shop")
        return
    store = FakeGcs()
    with serving(store) as address:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        write_shop("gs://bucket/shop")
        yield "gs://bucket/shop"


def write_shop(root: str) -> None:
    for name, age in {**AGES, "of_locale/en-gb": 45}.items():
        publish(f"{root}/{name}", dataset(age), {LETTERS: b"letters", RECORDS: b"records"})
    publish(f"{root}/2025-03-02.refused", refused(50), {LETTERS: b"letters", COUNTS_FILE: b"{}"})
    publish(f"{root}/2025-04-11.refused", refused(5), {LETTERS: b"letters", COUNTS_FILE: b"{}"})
    store = beam_store_for(root)
    for name in ("2025-03-01/dead_letters/mine.jsonl.gz", "notes/dead_letters/old.jsonl.gz", "notes/manifest.json"):
        store.write(f"{root}/{name}", b"somebody's")


def dataset(age: int, **options: Any) -> DatasetManifest:
    return DatasetManifest(
        stage_key="key",
        created=(datetime.now(UTC) - timedelta(days=age)).isoformat(timespec="seconds"),
        options={"dead_letter_days": DAYS, **options},
        features={},
        fingerprint="f",
        splits={},
        events={"impression": EventCounts()},
    )


def refused(age: int) -> RefusedManifest:
    made = dataset(age)
    return RefusedManifest(stage_key="key", created=made.created, options=made.options)


def publish(directory: str, manifest: Any, files: dict[str, bytes]) -> None:
    version = Publication(beam_store_for(directory), directory)
    version.begin()
    version.publish(manifest, {name: version.write(name, content) for name, content in files.items()})


def listing(root: str) -> dict[str, bytes | None]:
    store = beam_store_for(root)
    return {name: store.read(f"{root}/{name}") for name in store.files(root) if not name.endswith(".lock")}


def manifest_of(directory: str) -> DatasetManifest:
    content = beam_store_for(directory).read(f"{directory}/manifest.json")
    assert content is not None
    return parse_manifest(content, directory, DatasetManifest)


def test_dead_letters_of_every_output_go_when_they_are_too_old_and_nothing_else(root: str) -> None:
    before = listing(root)
    gone = sweep_dead_letters(root)
    after = listing(root)
    removed = {name for name in before if name not in after}
    letters = {f"{day}/{manifest_of(f'{root}/{day}').run}/{LETTERS}" for day in ("2025-03-01", "2025-03-20")}
    letters.add(f"of_locale/en-gb/{manifest_of(f'{root}/of_locale/en-gb').run}/{LETTERS}")
    assert letters <= removed
    assert {name.split("/")[0] for name in removed - letters} == {"2025-03-02.refused"}
    assert len(removed) == 3 + 3
    assert sum(len(found.files) for found in gone) == 4
    for name in (*AGES, "of_locale/en-gb"):
        manifest = manifest_of(f"{root}/{name}")
        assert set(manifest.files) == ({RECORDS, LETTERS} if name == "2025-04-10" else {RECORDS})
        assert all(f"{name}/{manifest.stored_path(file)}" in after for file in manifest.files)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {f"{name}/manifest.json" for name in ("2025-03-01", "2025-03-20", "of_locale/en-gb")}
    assert sweep_dead_letters(root) == []
    assert listing(root) == after


def test_a_dry_run_says_what_would_go_and_deletes_nothing(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = listing(root)
    retention.main(["--root", root, "--dry-run"])
    said = capsys.readouterr().out.splitlines()
    assert listing(root) == before
    assert said[0] == (
        f"would delete 1 dead-letter files (7 bytes) of {root}/2025-03-01: 60 days old, beyond dead_letter_days (30)"
    )
    assert said[-1] == f"would delete 4 files (28 bytes) of 4 directories under {root}"


def test_other_days_than_the_manifests_may_be_given(root: str) -> None:
    assert len(sweep_dead_letters(root, days=55)) == 1
    assert len(sweep_dead_letters(root, days=0)) == 5


def test_a_damaged_manifest_hinders_no_other_directory(root: str) -> None:
    beam_store_for(root).write(f"{root}/2025-03-01/manifest.json", b'{"kind": "dataset"}')
    with pytest.raises(InputError, match=r"2025-03-01/manifest\.json is no dataset manifest"):
        sweep_dead_letters(root)
    assert set(manifest_of(f"{root}/2025-03-20").files) == {RECORDS}


def test_what_a_killed_run_left_goes_after_a_week_and_not_before(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = Publication(beam_store_for(root), f"{root}/2025-05-01")
    killed.begin()
    killed.write(LETTERS, b"letters of a job that was killed")
    sweep_dead_letters(root)
    assert any(name.startswith("2025-05-01/") for name in listing(root))
    monkeypatch.setattr("features.publication.ABANDONED_AFTER", timedelta(0))
    sweep_dead_letters(root)
    assert not any(name.startswith("2025-05-01/") for name in listing(root))


def test_the_command_refuses_negative_days(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "beam_jobs.retention", "--root", str(tmp_path), "--days", "-1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: --days is -1, expected 0 or more\n"
