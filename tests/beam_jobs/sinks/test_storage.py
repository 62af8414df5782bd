from pathlib import Path

import pytest

from beam_jobs.storage import building, match_files, publish_files, write_bytes
from features.errors import InputError


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_directory_appears_when_the_block_ends_and_replaces_the_former(tmp_path):
    output = tmp_path / "deep" / "dataset"
    for name in ("one", "two"):
        with building(str(output)) as staging:
            write_bytes(f"{staging}/{name}", b"")
            assert not (output / name).exists()
        assert names(output) == [name]
    assert sorted(path.name for path in output.parent.iterdir()) == [".dataset.lock", "dataset"]


def test_a_block_that_fails_leaves_the_former(tmp_path):
    output = tmp_path / "dataset"
    with building(str(output)) as staging:
        write_bytes(f"{staging}/one", b"")
    with pytest.raises(IsADirectoryError), building(str(output)) as staging:
        Path(staging).write_bytes(b"")
    assert names(output) == ["one"]
    assert not list(tmp_path.glob(".dataset.building*"))


def test_workers_of_a_job_whose_command_was_killed_write_nothing_into_the_next_dataset(tmp_path):
    output = tmp_path / "dataset"
    with pytest.raises(ZeroDivisionError), building(str(output)) as earlier:
        raise ZeroDivisionError
    with building(str(output)) as staging:
        write_bytes(f"{earlier}/summary.json", b"of the earlier job")  # Beam makes the directory again
        write_bytes(f"{staging}/one", b"")
    assert names(output) == ["one"]
    with building(str(output)) as staging:
        write_bytes(f"{staging}/two", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".dataset.lock", "dataset"]


def test_two_jobs_do_not_write_the_same_output(tmp_path):
    output = str(tmp_path / "dataset")
    with (
        building(output),
        pytest.raises(InputError, match=r"another job is writing .*: wait for it, or give another --output"),
        building(output),
    ):
        raise AssertionError("the second job got in")


def test_a_run_killed_between_its_two_renames_is_mended_by_the_next(tmp_path):
    (tmp_path / ".dataset.former").mkdir()
    (tmp_path / ".dataset.former" / "one").touch()
    with pytest.raises(ZeroDivisionError), building(str(tmp_path / "dataset")):
        raise ZeroDivisionError
    assert names(tmp_path / "dataset") == ["one"]


def test_an_output_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write --output"), building(str(tmp_path / "file" / "dataset")):
        raise AssertionError("a file is no place for a directory")


def test_publishing_by_file_leaves_no_stale_shard_and_writes_the_manifest_last(tmp_path, monkeypatch):
    """What happens on an object store, which renames no directory, done here on a disk."""
    from apache_beam.io.filesystems import FileSystems

    old, new = tmp_path / "dataset", tmp_path / "staging"
    for folder, shards in ((old, 3), (new, 2)):
        (folder / "train").mkdir(parents=True)
        (folder / "manifest.json").write_text(folder.name)
        for shard in range(shards):
            (folder / "train" / f"{shard}-of-{shards}").touch()
    moved = []
    rename = FileSystems.rename
    monkeypatch.setattr(FileSystems, "rename", lambda source, target: (moved.extend(target), rename(source, target)))
    publish_files(str(new), str(old))
    assert names(old) == ["manifest.json", "train/0-of-2", "train/1-of-2"]
    assert (old / "manifest.json").read_text() == "staging"
    assert moved[-1] == str(old / "manifest.json")


def test_files_come_by_path_and_once(tmp_path):
    for name in ("b.jsonl", "a.jsonl"):
        (tmp_path / name).touch()
    found = match_files([str(tmp_path / "*.jsonl"), str(tmp_path / "a.jsonl")], "--input")
    assert [Path(entry.path).name for entry in found] == ["a.jsonl", "b.jsonl"]


def test_an_unknown_filesystem_is_refused():
    with pytest.raises(InputError, match="cannot list --input 'nowhere://logs"):
        match_files(["nowhere://logs/*"], "--input")
