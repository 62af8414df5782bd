"""Log lines -> query groups -> statistics: thin Beam transforms around the pure modules."""

import gc
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam

from beam_jobs.joins.attribution import SKIPPED, Attribution, LoggedEvent, reject_request
from beam_jobs.joins.log_names import LOCALE_NAME
from beam_jobs.joins.log_warnings import WITHOUT_POSITIONS
from beam_jobs.joins.query_groups import BuiltGroup, GroupBuilder, normalise_locale
from beam_jobs.sinks.dead_letters import DeadLetters, RecordSource
from beam_jobs.sources.log_reader import LogReader
from beam_jobs.sources.native_log import QUERY, Event, Malformed
from beam_jobs.sources.products import MalformedProduct, ProductTable, read_product, read_table
from beam_jobs.sources.reading import PROGRESS, LineBatch, ReadLines
from beam_jobs.sources.timestamps import TIMESTAMP_FAULTS
from beam_jobs.transforms.blocks import Blocks, LineBlock, Packer, lines_by_key, unpack_lines
from beam_jobs.transforms.caps import HOUR_MS
from beam_jobs.transforms.counts import DEAD_LETTERS, TALLY, CountingDoFn, SumTallies, bundle_output
from beam_jobs.transforms.job_summary import statistics_and_warnings
from beam_jobs.transforms.statistics import SplitTally
from features.spec import FeatureSpec

_PROGRESS_SECONDS = 5.0
_ITEMS_PER_ELEMENT = 4096  # of the groups in one element
SEARCHES = "searches"
SEARCH_EVENT_TYPES = ("impression", QUERY)  # event types that show a search


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


class BuildGroups(CountingDoFn):
    """(shard, blocks), product table, bots -> query groups; refused events and items become dead letters.

    Emits lists of groups of one shard, because later steps are cheaper on batches. The product table is a side input of
    blocks; each worker decodes it once.
    """

    def __init__(self, builder: GroupBuilder, reader: LogReader, spec: FeatureSpec, letters: DeadLetters) -> None:
        self._builder = builder
        self._letters = letters
        self._reader = reader
        self._spec = spec

    def setup(self) -> None:
        self._products: ProductTable | None = None
        self._built = 0
        self._last_progress = time.monotonic()

    def process(
        self, keyed: tuple[int, Iterable[LineBlock]], products: Iterable[LineBlock], bots: Mapping[str, bool]
    ) -> Iterator[Any]:
        if self._products is None:
            rows = (row for block in products for row in unpack_lines(block))
            self._products = read_table(rows, self._spec)
            gc.freeze()  # the table lives as long as the worker: garbage collections skip it
        shard, blocks = keyed
        groups, items = list[BuiltGroup](), 0
        for lines in lines_by_key(blocks):
            for found in self._groups(lines, shard, self._products, bots):
                if isinstance(found, BuiltGroup):
                    groups.append(found)
                    items += found.group.count
                else:
                    yield found
            if items >= _ITEMS_PER_ELEMENT:
                yield groups
                groups, items = [], 0
        if groups:
            yield groups

    def _groups(
        self, lines: Sequence[bytes], shard: int, products: ProductTable, bots: Mapping[str, bool]
    ) -> Iterator[Any]:
        read = self._reader.read
        logged = [LoggedEvent(found, line) for line in lines for found in read(line) if isinstance(found, Event)]
        for request in self._reader.requests(logged):
            if request.notes:
                self.tally.update(request.notes)
            if bots and any(
                entry.event.type == "impression" and entry.event.user_id in bots for entry in request.logged
            ):
                group, attribution = None, reject_request(request, "capped", "bot")
            else:
                group, attribution = self._builder.build(request, products, shard)
            yield from self._account(attribution)
            if group is not None:
                self._log_progress()
                yield group

    def _account(self, attribution: Attribution) -> Iterator[Any]:
        for logged, fate, reason, detail in attribution.fates:
            if fate == SKIPPED:  # KeyEvents counted it as read
                self.tally[f"read/{logged.event.type}"] -= 1
                self.tally[f"skipped/{reason}"] += 1
                continue
            self.tally[f"{fate}/{logged.event.type}"] += 1
            if reason and detail:
                yield self.refuse(reason, self._letters.event_letter(fate, reason, detail, logged.event))
            elif reason:
                self.tally[f"refused/{reason}"] += 1
        if attribution.refused_items:
            events = [fate.logged.event for fate in attribution.fates]
            impression = next((event for event in events if event.type == "impression"), events[0])
        for item in attribution.refused_items:
            yield self.refuse(item.reason, self._letters.item_letter(item.reason, item.detail, impression, item.raw))
        if attribution.impression is not None:
            self.tally["noted/items"] += len(attribution.items.ids)
            self.tally["noted/items_acted_on"] += len(frozenset().union(*attribution.interacted.values()))
            self.tally[WITHOUT_POSITIONS] += attribution.without_positions
            if locale := attribution.impression.body.get("locale"):
                self.count_named("locale", normalise_locale(locale), LOCALE_NAME)

    def _log_progress(self) -> None:
        self._built += 1
        if time.monotonic() - self._last_progress > _PROGRESS_SECONDS:
            self._last_progress = time.monotonic()
            PROGRESS.info("  built %d query groups", self._built)


class SplitStatisticsFn(beam.CombineFn):
    """Lists of query groups -> SplitTally."""

    def __init__(self, spec: FeatureSpec) -> None:
        self._spec = spec

    def create_accumulator(self) -> SplitTally:
        return SplitTally(self._spec)

    def add_input(self, tally: SplitTally, groups: Sequence[BuiltGroup]) -> SplitTally:
        tally.add(groups)
        return tally

    def merge_accumulators(self, tallies: Iterable[SplitTally]) -> SplitTally:
        merged = SplitTally(self._spec)
        for tally in tallies:
            merged.merge(tally)
        return merged

    def extract_output(self, tally: SplitTally) -> SplitTally:
        return tally


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


def by_split(groups: Iterable[BuiltGroup]) -> Iterable[tuple[str, list[BuiltGroup]]]:
    """Groups by split."""
    found: dict[str, list[BuiltGroup]] = {}
    for built in groups:
        found.setdefault(built.split, []).append(built)
    return found.items()


def split_statistics(groups: Any, spec: FeatureSpec) -> Any:
    """Groups -> (split, (statistics, warnings)) as JSON values, for each split that has groups."""
    return (
        groups
        | "BySplit" >> beam.FlatMap(by_split)
        | "Statistics" >> beam.CombinePerKey(SplitStatisticsFn(spec))
        | "Told" >> beam.MapTuple(lambda split, tally: (split, statistics_and_warnings(split, tally)))
    )


def total(tallies: Any) -> Any:
    """Tallies -> their sum."""
    return tallies | beam.CombineGlobally(SumTallies())
