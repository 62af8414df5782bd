"""Files that a pipeline's workers write and its driver names: both views together, so that they stay aligned.

A bundle writes files that no other bundle writes, and says where they are in its output. A bundle that a runner tries
again writes others; what no output tells of is never published.
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

from beam_jobs.counting import of_bundle
from beam_jobs.query_groups import SPLITS, BuiltGroup
from beam_jobs.storage import join, make_directory, read_bytes, remove_tree, write_bytes
from beam_jobs.tfrecords import framed, gzip_writer
from features.elwc import GroupEncoder, View
from features.spec import FeatureSpec

VIEWS: tuple[View, ...] = ("training", "serving")
PRIVATE = 0o700
PARTS = "parts"  # where files lie until the driver names them, below the directory of the dataset
FREQUENT_QUERIES = "train/frequent_queries"
LETTERS = "dead_letters/dead_letters"
RECORDS, LINES = ".tfrecord.gz", ".jsonl.gz"  # endings of names


class Written(NamedTuple):
    """A complete file. what: its name in the dataset, without number and ending; path: where it is until then."""

    what: str
    shard: int
    path: str


class WriteShards(beam.DoFn):
    """Lists of a shard's query groups -> Written: for every shard and split a file of each view, with the same groups
    in the same order.

    Shards come one after the other; one that comes again gets further files.
    """

    def __init__(self, spec: FeatureSpec, directory: str) -> None:
        self._spec = spec
        self._directory = directory

    def setup(self) -> None:
        self._encoder = GroupEncoder(self._spec, *VIEWS)

    def start_bundle(self) -> None:
        self._shard = -1  # none yet
        self._writers: dict[str, Any] = {}  # split -> the functions that write its views
        self._files = ExitStack()
        self._written: list[Written] = []

    def process(self, groups: Sequence[BuiltGroup]) -> None:
        if groups[0].shard != self._shard:
            self._finish_shard()
            self._shard = groups[0].shard
        encoded = self._encoder.encode([built.group for built in groups])
        for split in dict.fromkeys(built.split for built in groups):
            for write, records in zip(self._writers.get(split) or self._open(split), encoded, strict=True):
                of_split = [framed(rec) for built, rec in zip(groups, records, strict=True) if built.split == split]
                write(b"".join(of_split))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        self._finish_shard()
        yield from map(of_bundle, self._written)

    def _open(self, split: str) -> Any:
        name = uuid.uuid4().hex
        writers = []
        for view in VIEWS:
            path = join(self._directory, f"{name}.{view}")
            writers.append(self._files.enter_context(gzip_writer(path)))
            self._written.append(Written(f"{split}/{view}_elwc", self._shard, path))
        self._writers[split] = writers
        return writers

    def _finish_shard(self) -> None:
        self._files.close()
        self._writers = {}


class WriteLines(beam.DoFn):
    """Lines -> Written, one file a bundle."""

    def __init__(self, what: str, directory: str) -> None:
        self._what = what
        self._directory = directory

    def start_bundle(self) -> None:
        self._written: list[Written] = []
        self._file = ExitStack()

    def process(self, line: bytes) -> None:
        if not self._written:
            path = join(self._directory, f"{uuid.uuid4().hex}.lines")
            self._write = self._file.enter_context(gzip_writer(path))
            self._written.append(Written(self._what, 0, path))
        self._write(line + b"\n")

    def finish_bundle(self) -> Iterator[WindowedValue]:
        self._file.close()
        yield from map(of_bundle, self._written)


def place_files(
    written: Iterable[Written],
    directory: str,
    letters: bool,
    place: Callable[[list[str], list[str]], None] = FileSystems.rename,
) -> None:
    """Gives the parts of a dataset their names in its directory, and removes those there that no one told of.

    Every split has at least one shard, which may be empty. letters: whether dead letters are kept. place: what brings
    paths to names.
    """
    for split in SPLITS:
        make_directory(join(directory, split))
    if letters:
        make_directory(join(directory, "dead_letters"), PRIVATE)
    found = defaultdict(list)
    for file in written:
        found[file.what].append((file.shard, file.path))
    nothing = gzip.compress(b"", mtime=0)
    numbered = [(f"{split}/{view}_elwc", RECORDS) for split in SPLITS for view in VIEWS]
    for what, ending in [*numbered, *([(LETTERS, LINES)] if letters else [])]:
        paths = [path for _, path in sorted(found[what])]
        files = max(len(paths), 1)
        names = [_named(directory, f"{what}-{number:05d}-of-{files:05d}{ending}") for number in range(files)]
        if paths:
            place(paths, names)
        else:
            write_bytes(names[0], nothing)
    queries = [read_bytes(path) for _, path in sorted(found[FREQUENT_QUERIES])]  # gzip files may follow one another
    write_bytes(_named(directory, FREQUENT_QUERIES + LINES), b"".join(queries) or nothing)
    remove_tree(join(directory, PARTS))


def _named(directory: str, name: str) -> str:
    """A file of a dataset directory by its name there, whose folders a slash ends."""
    return join(directory, *name.split("/"))
