"""Log lines and product rows -> blocks of lines keyed by shard: thin Beam transforms around the readers."""

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from beam_jobs.sinks.dead_letters import DeadLetters, RecordSource
from beam_jobs.sources.log_reader import LogReader
from beam_jobs.sources.native_log import QUERY, Event, Malformed
from beam_jobs.sources.products import MalformedProduct, read_product
from beam_jobs.sources.reading import LineBatch, ReadLines
from beam_jobs.sources.timestamps import TIMESTAMP_FAULTS
from beam_jobs.transforms.blocks import Blocks, Packer
from beam_jobs.transforms.caps import HOUR_MS
from beam_jobs.transforms.counts import DEAD_LETTERS, TALLY, CountingDoFn, bundle_output
from features.spec import FeatureSpec

SEARCHES = "searches"
SEARCH_EVENT_TYPES = ("impression", QUERY)  # event types that show a search


class ReadKeyed(beam.PTransform):
    """Files -> outputs of a keying DoFn on their lines: keyed, dead letters, tallies, and `tags`."""

    def __init__(self, reading: ReadLines, paths: Sequence[str], keying: CountingDoFn, keyed: Any, *tags: str) -> None:
        super().__init__()
        self._reading = reading
        self._paths = list(paths)
        self._keying = keying
        self._keyed = keyed
        self._tags = tags

    def expand(self, pipeline: Any) -> Any:
        return (
            pipeline
            | "Paths" >> beam.Create(self._paths, reshuffle=True)
            | "Read" >> beam.ParDo(self._reading).with_output_types(LineBatch)
            | "Key"
            >> beam.ParDo(self._keying)
            .with_output_types(self._keyed)
            .with_outputs(DEAD_LETTERS, TALLY, *self._tags, main="keyed")
        )


class KeyEvents(CountingDoFn):
    """LineBatches of logs -> (shard, block of lines keyed by their events); unreadable lines become dead letters.

    span_ms: timestamps of the events to use, [start, end); None uses all.
    finds_bots: whether to emit ((user, hour), request id) on SEARCHES for every search event.
    """

    def __init__(
        self,
        reader: LogReader,
        span_ms: tuple[int, int] | None,
        finds_bots: bool,
        shards: int,
        letters: DeadLetters,
    ) -> None:
        self._reader = reader
        self._letters = letters
        self._shards = shards
        self._span_ms = span_ms
        self._finds_bots = finds_bots

    def start_bundle(self) -> None:
        super().start_bundle()
        self._blocks = Blocks(self._shards)

    def process(self, batch: LineBatch) -> Iterator[Any]:
        path, first, lines = batch
        for number, line in enumerate(lines, start=first):
            if line:
                yield from self._line(line, path, number)

    def _line(self, line: bytes, path: str, number: int) -> Iterator[Any]:
        key = None
        for found in self._reader.read(line):
            if isinstance(found, Event):
                if self._span_ms is None or self._span_ms[0] <= found.timestamp_ms < self._span_ms[1]:
                    self.tally[f"read/{found.type}"] += 1
                    key = self._reader.key(found)
                    for where, name in found.ignored:
                        self.count_ignored(where, name)
                    if self._finds_bots and found.type in SEARCH_EVENT_TYPES and found.user_id:
                        search = (found.user_id, found.timestamp_ms // HOUR_MS), found.request_id
                        yield beam.pvalue.TaggedOutput(SEARCHES, search)
                else:
                    self.tally["skipped/outside_dates"] += 1
            elif isinstance(found, Malformed):
                self.tally[f"read/{found.type}"] += 1
                self.tally[f"malformed/{found.type}"] += 1
                self.tally["unreadable"] += 1
                if found.reason in TIMESTAMP_FAULTS:
                    self.count_timestamp(found.type, found.reason, found.detail)
                letter = self._letters.line_letter(found.reason, found.detail, line, RecordSource(path, number))
                yield self.refuse(found.reason, letter)
            else:
                self.count_named("skipped", found.what)
        if key is not None and (full := self._blocks.add(key, line)):
            yield full

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(bundle_output, self._blocks.flush())
        yield from super().finish_bundle()


class CheckProducts(CountingDoFn):
    """LineBatches of the product table -> blocks of lines; unreadable lines become dead letters."""

    def __init__(self, spec: FeatureSpec, letters: DeadLetters) -> None:
        self._spec = spec
        self._letters = letters

    def start_bundle(self) -> None:
        super().start_bundle()
        self._packer = Packer()

    def process(self, batch: LineBatch) -> Iterator[Any]:
        path, first, lines = batch
        for number, line in enumerate(lines, start=first):
            if not line:
                continue
            row = read_product(line, self._spec)
            if isinstance(row, MalformedProduct):
                if row.reason.removeprefix("product_") in TIMESTAMP_FAULTS:
                    self.count_timestamp("product row", row.reason, row.detail)
                yield self.refuse(
                    row.reason, self._letters.line_letter(row.reason, row.detail, line, RecordSource(path, number))
                )
            elif full := self._packer.add(line):
                yield full

    def finish_bundle(self) -> Iterator[Any]:
        if rest := self._packer.flush():
            yield bundle_output(rest)
        yield from super().finish_bundle()
