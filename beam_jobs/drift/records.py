"""The records of finished datasets: each looked at once, a bounded random sample of them kept. Thin Beam transforms."""

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

from beam_jobs.counting import TALLY, CountingDoFn, SumTallies, Tally
from beam_jobs.reading import UNREADABLE, UnreadableFileError
from beam_jobs.storage import join, match_files, read_bytes
from beam_jobs.tfrecords import read_records
from beam_jobs.view_skew import ViewSkew
from features.elwc import View
from features.errors import InputError
from features.spec import FeatureSpec

SIDES = ("a", "b")
RECORDS = "records"


class Part(NamedTuple):
    """One file of records of side a or b. share: of its records, to sample."""

    side: str
    view: View
    path: str
    share: float

    @property
    def shard(self) -> str:
        """What the files of both views have alike: split and number."""
        folder, name = FileSystems.split(self.path)
        return f"{FileSystems.split(folder)[1]}/{name.partition('_elwc')[2]}"


class Found(NamedTuple):
    """What a pass over both sides found. groups: by side. sample: by side, the files of sampled records."""

    groups: dict[str, int]
    sample: dict[str, list[FileMetadata]]
    skew: dict[str, Any]  # ViewSkew.to_json, where it was asked for


def records_of(path: str) -> Iterator[bytes]:
    """The records of a TFRecord file, gzipped where its name says so.

    Errors: UnreadableFileError when the file ends early or a checksum is wrong.
    """
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as stored:
            yield from read_records(gzip.GzipFile(fileobj=stored) if path.endswith(".gz") else stored)  # type: ignore[arg-type]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UnreadableFileError(f"{path} {UNREADABLE}{error}") from None


class ReadRecords(CountingDoFn):
    """Parts -> their records as (view, record); on the outputs a and b, those of each side that are sampled."""

    def process(self, part: Part) -> Iterator[Any]:
        draw = random.Random(part.shard)  # the same records of both views, where they stand in the same order
        try:
            for record in records_of(part.path):
                self.tally[f"groups/{part.side}"] += 1
                if draw.random() < part.share:
                    yield beam.pvalue.TaggedOutput(part.side, record)
                yield part.view, record
        except UnreadableFileError as error:
            self.tally[f"damaged/{error}"] += 1  # the driver says so: an exception here would come to it wrapped


class SkewOfRecords(beam.DoFn):
    """(view, record) -> one ViewSkew a bundle."""

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
    """ViewSkews -> their sum."""

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


def read_all(parts: Sequence[Part], staging: str, options: PipelineOptions, skew_of: FeatureSpec | None) -> Found:
    """One pass over all parts. staging: a place, seen by all workers, for what they find.

    skew_of: the spec of the dataset whose views the two sides are; None when they are two datasets.
    Errors: InputError when a file is damaged.
    """
    with beam.Pipeline(options=options) as pipeline:
        read = (
            pipeline
            | "Parts" >> beam.Create(list(parts), reshuffle=True)
            | "Read" >> beam.ParDo(ReadRecords()).with_outputs(*SIDES, TALLY, main=RECORDS)
        )
        for side in SIDES:
            read[side] | f"Write_{side}" >> beam.io.WriteToTFRecord(join(staging, f"sample_{side}"))
        tally = read[TALLY] | "Total" >> beam.CombineGlobally(SumTallies()) | "AsJson" >> beam.Map(orjson.dumps)
        _write_line(tally, "WriteTally", join(staging, "tally"))
        if skew_of is not None:
            left = (
                read[RECORDS]
                | "Skew" >> beam.ParDo(SkewOfRecords(skew_of))
                | "SumSkew" >> beam.CombineGlobally(SumSkews(skew_of))
                | "SkewAsJson" >> beam.Map(lambda total: orjson.dumps(total.to_json()))
            )
            _write_line(left, "WriteSkew", join(staging, "skew"))
    counted = orjson.loads(read_bytes(join(staging, "tally")))
    skew = orjson.loads(read_bytes(join(staging, "skew"))) if skew_of is not None else {}
    refuse_damaged(counted, skew.get("unreadable", 0))
    return Found(
        groups={side: counted.get(f"groups/{side}", 0) for side in SIDES},
        sample={side: match_files([join(staging, f"sample_{side}-*")], "samples") for side in SIDES},
        skew=skew,
    )


def _write_line(lines: Any, name: str, path: str) -> None:
    lines | name >> beam.io.WriteToText(path, num_shards=1, shard_name_template="", coder=beam.coders.BytesCoder())


def refuse_damaged(tally: Tally, unreadable: int) -> None:
    """Errors: InputError naming the first damaged file, or telling of records that are none of query groups."""
    damaged = sorted(name.removeprefix("damaged/") for name in tally if name.startswith("damaged/"))
    if damaged:
        more = f" (and {len(damaged) - 1} more files)" if len(damaged) > 1 else ""
        raise InputError(f"{damaged[0]}{more}: the dataset is damaged; build it again")
    if unreadable:
        raise InputError(f"{unreadable} records are no group of any dataset: it is damaged; build it again")
