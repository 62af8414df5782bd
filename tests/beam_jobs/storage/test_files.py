from pathlib import Path

import pytest

from beam_jobs.sinks.output_directory import new_output_version
from beam_jobs.storage.files import match_files, write_bytes
from features.errors import InputError
from features.manifest import PublishedManifest
from tests.published import contents, everything, version_of


class TestManifest(PublishedManifest):
    __test__ = False
    kind: str = "test"


def publish(output: Path, *names: str) -> None:
    with new_output_version(str(output)) as version:
        version.publish(TestManifest(stage_key="key"), {name: version.write(name, b"") for name in names})


def test_a_version_appears_when_it_is_published_and_replaces_the_former(tmp_path):
    output = tmp_path / "deep" / "dataset"
    for name in ("one", "two"):
        publish(output, f"train/{name}")
        assert contents(output) == {f"train/{name}": b""}
        assert [path.name for path in sorted(output.iterdir())] == ["manifest.json", version_of(output).name]
    assert sorted(path.name for path in output.parent.iterdir()) == [".dataset.lock", "dataset"]


def test_a_block_that_fails_leaves_the_former(tmp_path):
    output = tmp_path / "dataset"
    publish(output, "one")
    before = everything(output)
    with pytest.raises(ZeroDivisionError), new_output_version(str(output)) as version:
        version.write("two", str(1 // 0).encode())
    assert everything(output) == before


def test_workers_of_a_job_whose_command_was_killed_write_nothing_into_the_next_dataset(tmp_path):
    output = tmp_path / "dataset"
    with pytest.raises(ZeroDivisionError), new_output_version(str(output)) as earlier:
        raise ZeroDivisionError
    with new_output_version(str(output)) as version:
        write_bytes(f"{earlier.scratch}/summary.json", b"of the earlier job")  # Beam makes the directory again
        version.publish(TestManifest(stage_key="key"), {"one": version.write("one", b"")})
    assert contents(output) == {"one": b""}


def test_two_jobs_do_not_write_the_same_output(tmp_path):
    output = str(tmp_path / "dataset")
    with (
        new_output_version(output),
        pytest.raises(InputError, match=r"another job is writing .*: wait for it, or give another --output"),
        new_output_version(output),
    ):
        raise AssertionError("the second job got in")


def test_an_output_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(InputError, match="cannot write --output"),
        new_output_version(str(tmp_path / "file" / "dataset")),
    ):
        raise AssertionError("a file is no place for a directory")


def test_a_glob_in_a_published_folder_finds_what_the_manifest_lists_and_nothing_else(tmp_path):
    publish(tmp_path / "logs", "events-0.jsonl", "events-1.jsonl", "products.jsonl")
    (tmp_path / "logs" / "events-9.jsonl").touch()  # of an older layout, or somebody else's
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "events-3.jsonl").touch()
    found = match_files([str(tmp_path / "*" / "events-*.jsonl")], "--input")
    version = version_of(tmp_path / "logs")
    paths = [version / "events-0.jsonl", version / "events-1.jsonl", tmp_path / "plain" / "events-3.jsonl"]
    assert [Path(entry.path) for entry in found] == paths


def test_files_come_by_path_and_once(tmp_path):
    for name in ("b.jsonl", "a.jsonl"):
        (tmp_path / name).touch()
    found = match_files([str(tmp_path / "*.jsonl"), str(tmp_path / "a.jsonl")], "--input")
    assert [Path(entry.path).name for entry in found] == ["a.jsonl", "b.jsonl"]


def test_an_unknown_filesystem_is_refused():
    with pytest.raises(InputError, match="cannot list --input 'nowhere://logs"):
        match_files(["nowhere://logs/*"], "--input")
