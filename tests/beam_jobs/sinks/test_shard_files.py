"""Workers' files get their names from the driver: views aligned, none that no worker told of."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystems import FileSystems

from beam_jobs.joins.query_groups import BuiltGroup
from beam_jobs.sinks.shard_files import (
    DEAD_LETTER_FILES,
    FREQUENT_QUERIES,
    PARTS_FOLDER,
    WriteLines,
    WriteShards,
    WrittenFile,
    place_files,
)
from beam_jobs.storage.tfrecords import read_records
from features.elwc import DATASET_VIEWS, GroupColumns, decode_group
from features.local_store import LocalStore
from features.publication import Publication
from features.spec import spec_from_json
from tests.features.specs import DEMO

SPEC = spec_from_json(DEMO)


def bundle(writing: Any, elements: list[Any]) -> list[WrittenFile]:
    """One bundle, as a runner has it processed."""
    writing.setup()
    writing.start_bundle()
    for element in elements:
        writing.process(element)
    return [found.value for found in writing.finish_bundle()]


def group(number: int, shard: int, split: str = "train") -> BuiltGroup:
    behaviour = {"position": [0], "click": [False], "add_to_cart": [False], "purchase": [True]}
    context = {"request_id": f"r{number}", "query": f"q{number}"}
    items = {"item_id": [f"p{number}"], "title": ["t"], **behaviour}
    return BuiltGroup(split, f"q{number}", "u1", GroupColumns(context, items, 1), bytes(8), number, shard)


def version_in(tmp_path: Path) -> Publication:
    version = Publication(LocalStore(), str(tmp_path))
    Path(version.scratch, PARTS_FOLDER).mkdir(parents=True)
    return version


def queries(path: Path) -> list[str]:
    with gzip.open(path) as file:
        return [str(decode_group(record, SPEC).context["query"]) for record in read_records(file)]


def test_shards_of_several_bundles_are_numbered_together_and_views_stay_aligned(tmp_path):
    version = version_in(tmp_path)
    root = Path(version.folder)
    writing = WriteShards(SPEC, f"{version.scratch}/{PARTS_FOLDER}")
    written = bundle(writing, [[group(1, 3)], [group(2, 3)], [group(3, 5, "test")]])
    written += bundle(writing, [[group(4, 0)], [group(5, 3)], [group(6, 0)]])  # shard 0 comes twice, shard 3 again
    place_files(written, version, letters=False)
    found = {}
    for view in ("training", "serving"):
        names = sorted(path.name for path in (root / "train").glob(f"{view}*"))
        assert names == [f"{view}_elwc-0000{number}-of-00004.tfrecord.gz" for number in range(4)]
        found[view] = [queries(root / "train" / name) for name in names]
    assert found["training"] == found["serving"]
    assert sorted(found["training"][:2]) == [["q4"], ["q6"]]
    assert sorted(found["training"][2:]) == [["q1", "q2"], ["q5"]]
    assert [queries(path) for path in sorted((root / "test").glob("training*"))] == [["q3"]]


def test_what_no_bundle_told_of_is_not_of_the_dataset(tmp_path):
    version = version_in(tmp_path)
    root = Path(version.folder)
    bundle(
        WriteShards(SPEC, f"{version.scratch}/{PARTS_FOLDER}"), [[group(1, 0)]]
    )  # a bundle whose output a runner threw away
    written = bundle(WriteShards(SPEC, f"{version.scratch}/{PARTS_FOLDER}"), [[group(2, 0)]])
    place_files(written, version, letters=False)
    assert [queries(path) for path in sorted((root / "train").glob("training*"))] == [["q2"]]
    assert len(list((root / "train").glob("training*"))) == 1


def test_splits_without_groups_have_one_empty_shard(tmp_path):
    version = version_in(tmp_path)
    root = Path(version.folder)
    place_files([], version, letters=True)
    files = sorted(str(path.relative_to(root)) for path in root.rglob("*.gz"))
    views = [f"{s}/{v}_elwc-00000-of-00001.tfrecord.gz" for s in ("test", "train", "valid") for v in DATASET_VIEWS]
    expected = [f"{DEAD_LETTER_FILES}-00000-of-00001.jsonl.gz", f"{FREQUENT_QUERIES}.jsonl.gz", *views]
    assert files == sorted(expected)
    assert all(gzip.decompress((root / file).read_bytes()) == b"" for file in files)


@pytest.mark.parametrize("bundles", [[[b"one"]], [[b"one", b"two"], [], [b"three"]]])
def test_lines_of_all_bundles_make_one_file(tmp_path, bundles):
    version = version_in(tmp_path)
    root = Path(version.folder)
    writing = WriteLines(FREQUENT_QUERIES, f"{version.scratch}/{PARTS_FOLDER}")
    place_files([file for lines in bundles for file in bundle(writing, lines)], version, letters=False)
    content = gzip.decompress((root / f"{FREQUENT_QUERIES}.jsonl.gz").read_bytes())
    assert sorted(content.splitlines()) == sorted(line for lines in bundles for line in lines)


def test_copies_that_were_cut_short_are_made_again_from_the_parts_that_stay(tmp_path):
    version = version_in(tmp_path / "dataset")
    parts, output = Path(version.scratch, PARTS_FOLDER), Path(version.folder)
    written = bundle(WriteShards(SPEC, str(parts)), [[group(1, 0)], [group(2, 1)]])

    def cut_short(paths: list[str], names: list[str]) -> None:
        FileSystems.copy(paths[:1], names[:1])
        raise ConnectionError("the worker went away")

    with pytest.raises(ConnectionError):
        place_files(written, version, letters=True, place=cut_short)
    for _ in range(2):
        place_files(written, version, letters=True, place=FileSystems.copy)
    assert [queries(path) for path in sorted((output / "train").glob("training*"))] == [["q1"], ["q2"]]
    assert len(list((output / "train").glob("*_elwc-*"))) == 4
    assert len(list(parts.iterdir())) == 4
    assert (output / "dead_letters").stat().st_mode & 0o777 == 0o700
