"""Beam transforms that read the records of finished datasets once and draw a bounded random sample."""

import gzip
import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import orjson
from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.drift.view_skew import ViewSkew
from beam_jobs.sources.reading import UNREADABLE_MESSAGE, UnreadableFileError
from beam_jobs.storage.files import join_path, match_files, read_bytes
from beam_jobs.storage.tfrecords import read_records
from beam_jobs.transforms.counts import TALLY, CountingDoFn, SumTallies, Tally
from features.elwc import View
from features.errors import InputError
from features.spec import FeatureSpec

SIDES = ("a", "b")
_RECORDS = "records"


class RecordFile(NamedTuple):
    """One TFRecord file of side a or b. share: fraction of its records to sample."""

    side: str
    view: View
    path: str
    share: float

    @property
    def shard(self) -> str:
        """Split and shard number, which are equal for the files of both views."""
        folder, name = FileSystems.split(self.path)
        return f"{FileSystems.split(folder)[1]}/{name.partition('_elwc')[2]}"


class RecordScan(NamedTuple):
    """Result of one pass over both sides. groups: count by side. sample: files of sampled records by side."""

    groups: dict[str, int]
    sample: dict[str, list[FileMetadata]]
    skew: dict[str, Any]  # ViewSkew.to_json; empty when two datasets are compared


def read_record_file(path: str) -> Iterator[bytes]:
    """Yields the records of a TFRecord file, gzipped if its name ends in .gz.

    Errors: UnreadableFileError when the file is truncated or a checksum is wrong.
    """
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as stored:
            yield from read_records(gzip.GzipFile(fileobj=stored) if path.endswith(".gz") else stored)  # type: ignore[arg-type]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UnreadableFileError(f"{path} {UNREADABLE_MESSAGE}{error}") from None


class ReadRecords(CountingDoFn):
    """RecordFile -> (view, record) for every record; sampled records go to the tagged outputs a and b."""

    def process(self, part: RecordFile) -> Iterator[Any]:
        draw = random.Random(part.shard)  # samples the same records of both views if their order is the same
        try:
            for record in read_record_file(part.path):
                self.tally[f"groups/{part.side}"] += 1
                if draw.random() < part.share:
                    yield beam.pvalue.TaggedOutput(part.side, record)
                yield part.view, record
        except UnreadableFileError as error:
            self.tally[f"damaged/{error}"] += 1  # the driver raises it: Beam would wrap an exception raised here


class ComputeSkew(beam.DoFn):
    """(view, record) -> one ViewSkew per bundle."""

    def __init__(self, spec: FeatureSpec) -> None:
        self._spec = spec

    def start_bundle(self) -> None:
        self._skew = ViewSkew(self._spec)

    def process(self, viewed: tuple[View, bytes]) -> None:
        self._skew.add(*viewed)

    def finish_bundle(self) -> Iterator[Any]:
        window = GlobalWindow()
        yield WindowedValue(self._skew, window.max_timestamp(), [window])


class SumSkews(beam.CombineFn):
    """Sums ViewSkews."""

    def __init__(self, spec: FeatureSpec) -> None:
        self._spec = spec

    def create_accumulator(self) -> ViewSkew:
        return ViewSkew(self._spec)

    def add_input(self, total: ViewSkew, skew: ViewSkew) -> ViewSkew:
        return total.merge(skew)

    def merge_accumulators(self, skews: Iterable[ViewSkew]) -> ViewSkew:
        total = ViewSkew(self._spec)
        for skew in skews:
            total.merge(skew)
        return total

    def extract_output(self, total: ViewSkew) -> ViewSkew:
        return total


def scan_records(
    parts: Sequence[RecordFile], staging: str, options: PipelineOptions, skew_spec: FeatureSpec | None
) -> RecordScan:
    """Reads all files in one pass.

    staging: a directory that all workers can write.
    skew_spec: the spec of the dataset whose two views are compared; None for two datasets.
    Errors: InputError when a file is damaged.
    """
    with beam.Pipeline(options=options) as pipeline:
        read = (
            pipeline
            | "Parts" >> beam.Create(list(parts), reshuffle=True)
            | "Read" >> beam.ParDo(ReadRecords()).with_outputs(*SIDES, TALLY, main=_RECORDS)
        )
        for side in SIDES:
            read[side] | f"Write_{side}" >> beam.io.WriteToTFRecord(join_path(staging, f"sample_{side}"))
        tally = read[TALLY] | "Total" >> beam.CombineGlobally(SumTallies()) | "AsJson" >> beam.Map(orjson.dumps)
        _write_line(tally, "WriteTally", join_path(staging, "tally"))
        if skew_spec is not None:
            skew_json = (
                read[_RECORDS]
                | "Skew" >> beam.ParDo(ComputeSkew(skew_spec))
                | "SumSkew" >> beam.CombineGlobally(SumSkews(skew_spec))
                | "SkewAsJson" >> beam.Map(lambda total: orjson.dumps(total.to_json()))
            )
            _write_line(skew_json, "WriteSkew", join_path(staging, "skew"))
    counts = orjson.loads(read_bytes(join_path(staging, "tally")))
    skew = orjson.loads(read_bytes(join_path(staging, "skew"))) if skew_spec is not None else {}
    _check_undamaged(counts, skew.get("unreadable", 0))
    return RecordScan(
        groups={side: counts.get(f"groups/{side}", 0) for side in SIDES},
        sample={side: match_files([join_path(staging, f"sample_{side}-*")], "samples") for side in SIDES},
        skew=skew,
    )


def _write_line(lines: Any, name: str, path: str) -> None:
    lines | name >> beam.io.WriteToText(path, num_shards=1, shard_name_template="", coder=beam.coders.BytesCoder())


def _check_undamaged(tally: Tally, unreadable: int) -> None:
    """Errors: InputError naming the first damaged file, or counting the records that are not query groups."""
    damaged = sorted(name.removeprefix("damaged/") for name in tally if name.startswith("damaged/"))
    if damaged:
        more = f" (and {len(damaged) - 1} more files)" if len(damaged) > 1 else ""
        raise InputError(f"{damaged[0]}{more}: the dataset is damaged; build it again")
    if unreadable:
        raise InputError(f"{unreadable} records are not query groups: the dataset is damaged; build it again")
