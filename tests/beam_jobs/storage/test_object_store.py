"""Publishing to an object store that renames nothing: foreign objects, two writers, a crash at every change."""

import gzip
import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from beam_jobs import build_vocabulary
from beam_jobs.build_elwc import main
from beam_jobs.sinks.output_directory import new_output_version
from beam_jobs.storage.beam_store import beam_store_for
from beam_jobs.storage.files import existing_manifest, write_bytes
from features import publication
from features.errors import InputError
from features.manifest import DatasetManifest, PublishedManifest
from features.publication import finish_killed_runs
from tests.beam_jobs.datasets import ANY_LOSS, write_task
from tests.beam_jobs.log_lines import impression, write_jsonl
from tests.beam_jobs.storage.fake_gcs import FakeGcs, serving

OUTPUT = "gs://shop/search"
FOREIGN = {
    "shop/search/model/weights.bin": b"somebody's model",
    "shop/search/train/training_elwc-00000-of-00001.tfrecord.gz": b"somebody's records",
    "shop/search.txt": b"a neighbour",
    "shop/searches/a.txt": b"another",
}


class Numbers(PublishedManifest):
    """A small published directory: its files tell of which version they are."""

    kind: str = "numbers"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGcs]:
    found = FakeGcs()
    with serving(found) as address:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
        monkeypatch.setenv("NO_GCE_CHECK", "true")  # no credentials are looked for on the network
        yield found


def publish(number: int, output: str = OUTPUT) -> None:
    """Publishes a version of two files, after writing scratch, as a job does."""
    with new_output_version(output) as version:
        write_bytes(f"{version.scratch}/parts/part", b"part")
        files = {name: version.write(name, f"{number} {name}".encode()) for name in (f"train/{number}", "same")}
        version.publish(Numbers(stage_key=str(number)), files)


def version_read(output: str = OUTPUT) -> int | None:
    """What a reader sees: the version, after checking that all its files are of it."""
    manifest = existing_manifest(output, Numbers)
    if manifest is None:
        return None
    for name, stored in manifest.files.items():
        content = beam_store_for(output).read(manifest.file_path(output, name))
        assert content == f"{manifest.stage_key} {name}".encode()
        assert publication.stored_file(content) == stored
    return int(manifest.stage_key)


def ours(store: FakeGcs) -> dict[str, bytes]:
    """The objects of the output, foreign ones aside."""
    return {
        name: content for name, content in store.below("shop/search/").items() if f"shop/search/{name}" not in FOREIGN
    }


def test_an_output_that_holds_foreign_objects_is_refused_and_they_stay(store: FakeGcs, tmp_path: Path) -> None:
    store.objects |= FOREIGN
    store.generations |= dict.fromkeys(FOREIGN, 1)
    write_task(tmp_path)
    write_jsonl(tmp_path / "events.jsonl", *[impression(f"r{n}", f"query {n}", "p1", "p2") for n in range(5)])
    with pytest.raises(InputError, match=r"gs://shop/search holds files but no manifest\.json, such as model/"):
        main(["--config", str(tmp_path / "task.yaml"), "--input", str(tmp_path / "events.jsonl"), "--output", OUTPUT])
    assert store.objects == FOREIGN


def test_a_dataset_and_its_vocabulary_on_an_object_store_are_replaced_beside_foreign_objects(
    store: FakeGcs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_task(tmp_path, dataset={"limits": ANY_LOSS, "min_distinct_users": 1})
    job = ["--config", str(config), "--input", str(tmp_path / "events.jsonl"), "--output", OUTPUT]
    words = ["--config", str(config), "--dataset", OUTPUT, "--output", "gs://shop/words"]
    found = []
    for count in (20, 21):
        rows = [impression(f"r{n}", f"query {n}", "p1", "p2") for n in range(count)]
        write_jsonl(tmp_path / "events.jsonl", *rows, b"garbage")
        main(job)
        build_vocabulary.main(words)
        manifest = existing_manifest(OUTPUT, DatasetManifest)
        assert manifest is not None
        found.append(manifest)
        assert set(ours(store)) == {"manifest.json", *(manifest.stored_path(name) for name in manifest.files)}
        letters = store.objects[
            f"shop/search/{manifest.stored_path('dead_letters/dead_letters-00000-of-00001.jsonl.gz')}"
        ]
        assert b"not_json" in gzip.decompress(letters)
        store.objects |= FOREIGN
        store.generations |= dict.fromkeys(FOREIGN, 1)
    assert [sum(split.groups for split in manifest.splits.values()) for manifest in found] == [20, 21]
    assert found[0].run != found[1].run
    assert {name: store.objects[name] for name in FOREIGN} == FOREIGN
    assert len(store.below("shop/words/")) == 2
    assert "kept 2 files in gs://shop/search that manifest.json does not list" in capsys.readouterr().out


def changes_of_a_run(store: FakeGcs) -> int:
    publish(0)
    before = len(store.changes)
    publish(1)
    return len(store.changes) - before


def test_a_crash_at_each_change_leaves_the_old_or_the_new_version_whole(
    store: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = changes_of_a_run(store)
    assert count >= 9  # claim, scratch, two files, claim, manifest, two old files, scratch, claim
    seen = []
    for last in range(count + 1):
        store.objects.clear()
        store.generations.clear()
        publish(1)
        store.objects |= FOREIGN
        store.generations |= dict.fromkeys(FOREIGN, 1)
        store.freeze_after(last)
        try:
            publish(2)
        except Exception:  # of many kinds: the store is gone
            assert last < count
        store.freeze_after(None)
        seen.append(version_read())
        with monkeypatch.context() as later:
            later.setattr(publication, "ABANDONED_AFTER", publication.ABANDONED_AFTER * 0)  # as if a week had passed
            publish(3)
        assert version_read() == 3
        assert len(ours(store)) == 3, f"crash after {last} changes left {sorted(ours(store))}"
        assert {name: store.objects[name] for name in FOREIGN} == FOREIGN
    assert set(seen) == {1, 2}
    assert seen == sorted(seen)
    print(f"\n{count} changes, a crash after each: {seen.count(1)} times the old version, {seen.count(2)} the new one")


def test_what_a_run_of_today_left_is_not_removed_for_it_may_still_be_writing(store: FakeGcs) -> None:
    store.freeze_after(3)
    with pytest.raises(Exception):  # noqa: B017, PT011 - of many kinds: the store is gone
        publish(1)
    store.freeze_after(None)
    left = ours(store)
    assert left
    publish(2)
    assert {name: ours(store)[name] for name in left} == left
    finish_killed_runs(beam_store_for(OUTPUT), OUTPUT, alone=True)
    assert len(ours(store)) == 3


def test_of_two_writers_at_the_same_moment_one_wins_and_nothing_is_left_of_the_other(store: FakeGcs) -> None:
    publish(1)
    arrivals, both = itertools.count(), threading.Barrier(2, timeout=30)

    def meet(change: str) -> None:
        """Holds the first two writes of the manifest until both have been asked for."""
        if change == "write shop/search/manifest.json" and next(arrivals) < 2:
            both.wait()

    store.before_change = meet
    with ThreadPoolExecutor(2) as writers:
        for writing in [writers.submit(publish, number) for number in (2, 3)]:
            writing.result(60)
    assert next(arrivals) == 3  # the loser of the first try replaced the winner's version by its own
    assert version_read() in (2, 3)
    assert len(ours(store)) == 3
