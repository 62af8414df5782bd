"""Dataset files: workers write parts, the driver gives them their final names. Both views are written together.

Each bundle writes its own files and outputs their paths. A retried bundle writes new files; files that no output names
are never published.
"""

import gzip
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.joins.query_groups import DATASET_SPLITS, BuiltGroup
from beam_jobs.storage.files import join_path, make_directory, read_bytes
from beam_jobs.storage.tfrecords import GzipWriter, frame_record, gzip_writer
from beam_jobs.transforms.counts import bundle_output
from features.elwc import DATASET_VIEWS, GroupEncoder
from features.manifest import StoredFile
from features.publication import Publication
from features.spec import FeatureSpec

PRIVATE_MODE = 0o700
PARTS_FOLDER = "parts"  # folder of unnamed files, below the run's scratch folder
FREQUENT_QUERIES = "train/frequent_queries"
DEAD_LETTER_FILES = "dead_letters/dead_letters"
_TFRECORD_SUFFIX, _JSONL_SUFFIX = ".tfrecord.gz", ".jsonl.gz"  # file name suffixes
_EMPTY_GZIP = gzip.compress(b"", mtime=0)


class WrittenFile(NamedTuple):
    """A complete file. what: its name in the dataset, without number and suffix; path: its temporary path."""

    what: str
    shard: int
    path: str
    bytes: int
    sha256: str


class WriteShards(beam.DoFn):
    """Lists of one shard's query groups -> WrittenFile: one file per shard, split and view.

    Both views have the same groups in the same order. Shards come one after the other; a shard that comes again gets
    further files.
    """

    def __init__(self, spec: FeatureSpec, directory: str) -> None:
        self._spec = spec
        self._directory = directory

    def setup(self) -> None:
        self._encoder = GroupEncoder(self._spec, *DATASET_VIEWS)

    def start_bundle(self) -> None:
        self._shard = -1  # none yet
        self._writers: dict[str, list[GzipWriter]] = {}  # split -> writers of its views
        self._files = ExitStack()
        self._open_files: list[tuple[str, str, GzipWriter]] = []  # what, path
        self._written: list[WrittenFile] = []

    def process(self, groups: Sequence[BuiltGroup]) -> None:
        if groups[0].shard != self._shard:
            self._finish_shard()
            self._shard = groups[0].shard
        encoded = self._encoder.encode([built.group for built in groups])
        for split in dict.fromkeys(built.split for built in groups):
            for write, records in zip(self._writers.get(split) or self._open(split), encoded, strict=True):
                of_split = [
                    frame_record(rec) for built, rec in zip(groups, records, strict=True) if built.split == split
                ]
                write(b"".join(of_split))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        self._finish_shard()
        yield from map(bundle_output, self._written)

    def _open(self, split: str) -> Any:
        name = uuid.uuid4().hex
        writers = []
        for view in DATASET_VIEWS:
            path = join_path(self._directory, f"{name}.{view}")
            writers.append(self._files.enter_context(gzip_writer(path)))
            self._open_files.append((f"{split}/{view}_elwc", path, writers[-1]))
        self._writers[split] = writers
        return writers

    def _finish_shard(self) -> None:
        self._files.close()
        self._written += [written_file(what, self._shard, path, writer) for what, path, writer in self._open_files]
        self._open_files, self._writers = [], {}


class WriteLines(beam.DoFn):
    """Lines -> WrittenFile, one per bundle."""

    def __init__(self, what: str, directory: str) -> None:
        self._what = what
        self._directory = directory

    def start_bundle(self) -> None:
        self._path = ""
        self._file = ExitStack()

    def process(self, line: bytes) -> None:
        if not self._path:
            self._path = path = join_path(self._directory, f"{uuid.uuid4().hex}.lines")
            self._write = self._file.enter_context(gzip_writer(path))
        self._write(line + b"\n")

    def finish_bundle(self) -> Iterator[WindowedValue]:
        self._file.close()
        if self._path:
            yield bundle_output(written_file(self._what, 0, self._path, self._write))


def written_file(what: str, shard: int, path: str, writer: GzipWriter) -> WrittenFile:
    """Describes a finished writer's file."""
    stored = writer.stored_file()
    return WrittenFile(what, shard, path, stored.bytes, stored.sha256)


def place_files(
    parts: Iterable[WrittenFile],
    version: Publication,
    letters: bool,
    place: Callable[[list[str], list[str]], None] = FileSystems.rename,
) -> dict[str, StoredFile]:
    """Moves the parts of a dataset to their final names in its version. Returns the files by name.

    Every split gets at least one shard, which may be empty. letters: whether to store dead letters. place: moves or
    copies sources to destinations.
    """
    for split in DATASET_SPLITS:
        make_directory(version.path(split))
    if letters:
        make_directory(version.path("dead_letters"), PRIVATE_MODE)
    found = defaultdict(list)
    for part in parts:
        found[part.what].append(part)
    numbered = [(f"{split}/{view}_elwc", _TFRECORD_SUFFIX) for split in DATASET_SPLITS for view in DATASET_VIEWS]
    files: dict[str, StoredFile] = {}
    for what, ending in [*numbered, *([(DEAD_LETTER_FILES, _JSONL_SUFFIX)] if letters else [])]:
        ordered = sorted(found[what], key=lambda part: (part.shard, part.path))
        count = max(len(ordered), 1)
        names = [f"{what}-{number:05d}-of-{count:05d}{ending}" for number in range(count)]
        if ordered:
            place([part.path for part in ordered], [version.path(name) for name in names])
            stored = [StoredFile(bytes=part.bytes, sha256=part.sha256) for part in ordered]
            files.update(zip(names, stored, strict=True))
        else:
            files[names[0]] = version.write(names[0], _EMPTY_GZIP)
    queries = [read_bytes(part.path) for part in sorted(found[FREQUENT_QUERIES])]  # gzip files can be concatenated
    files[FREQUENT_QUERIES + _JSONL_SUFFIX] = version.write(
        FREQUENT_QUERIES + _JSONL_SUFFIX, b"".join(queries) or _EMPTY_GZIP
    )
    return files
