"""log lines -> query groups -> dataset files: thin Beam transforms around the pure modules."""

import gc
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import orjson

from beam_jobs.attribution import SKIPPED, Attribution, LoggedEvent, leave_out
from beam_jobs.blocks import Block, Blocks, Packer, lines_by_key, unpacked
from beam_jobs.caps import HOUR_MS
from beam_jobs.counting import DEAD_LETTERS, TALLY, CountingDoFn, SumTallies, Tally, of_bundle
from beam_jobs.dataset_statistics import SplitTally
from beam_jobs.dead_letters import dead_letter, item_dead_letter
from beam_jobs.log_reader import LogReader
from beam_jobs.logs import QUERY, Event, Malformed
from beam_jobs.products import MalformedProduct, Products, read_product, read_table
from beam_jobs.query_groups import SPLITS, BuiltGroup, GroupBuilder, normalise_locale
from beam_jobs.reading import ReadLines
from beam_jobs.shard_files import Written
from features.spec import FeatureSpec

PROGRESS = logging.getLogger("privrank")
PROGRESS_SECONDS = 5.0
ITEMS_AT_ONCE = 4096  # of groups in one element
SEARCHES = "searches"
SEARCHED = ("impression", QUERY)  # types of events that tell of a search


class KeyEvents(CountingDoFn):
    """Log lines -> (shard, a block of its lines by the key of their events); lines that are no events: dead letters.

    span_ms: the first moment of the events to use, and the first one after; None uses all.
    finds_bots: whether ((user, hour), request id) comes out on SEARCHES, for every event that tells of a search.
    """

    def __init__(self, reader: LogReader, span_ms: tuple[int, int] | None, finds_bots: bool, shards: int) -> None:
        self._reader = reader
        self._shards = shards
        self._span_ms = span_ms
        self._finds_bots = finds_bots

    def start_bundle(self) -> None:
        super().start_bundle()
        self._blocks = Blocks(self._shards)

    def process(self, lines: Sequence[bytes]) -> Iterator[Any]:
        for line in lines:
            yield from self._line(line)

    def _line(self, line: bytes) -> Iterator[Any]:
        key = None
        for found in self._reader.read(line):
            if isinstance(found, Event):
                if self._span_ms is None or self._span_ms[0] <= found.timestamp_ms < self._span_ms[1]:
                    self.tally[f"read/{found.type}"] += 1
                    key = self._reader.key(found)
                    if self._finds_bots and found.type in SEARCHED and found.user_id:
                        search = (found.user_id, found.timestamp_ms // HOUR_MS), found.request_id
                        yield beam.pvalue.TaggedOutput(SEARCHES, search)
                else:
                    self.tally["skipped/outside_dates"] += 1
            elif isinstance(found, Malformed):
                self.tally[f"read/{found.type}"] += 1
                self.tally[f"malformed/{found.type}"] += 1
                self.tally["unreadable"] += 1
                yield self.refuse(found.reason, dead_letter(found.reason, found.detail, line))
            else:
                self.count_named("skipped", found.what)
        if key is not None and (full := self._blocks.add(key, line)):
            yield full

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(of_bundle, self._blocks.rest())
        yield from super().finish_bundle()


class CheckProducts(CountingDoFn):
    """Lines of the product table -> blocks of them; lines that are no rows become dead letters."""

    def __init__(self, spec: FeatureSpec) -> None:
        self._spec = spec

    def start_bundle(self) -> None:
        super().start_bundle()
        self._packer = Packer()

    def process(self, lines: Sequence[bytes]) -> Iterator[Any]:
        for line in lines:
            row = read_product(line, self._spec)
            if isinstance(row, MalformedProduct):
                yield self.refuse(row.reason, dead_letter(row.reason, row.detail, line))
            elif full := self._packer.add(line):
                yield full

    def finish_bundle(self) -> Iterator[Any]:
        if rest := self._packer.rest():
            yield of_bundle(rest)
        yield from super().finish_bundle()


class BuildGroups(CountingDoFn):
    """(shard, its blocks), product table, bots -> query groups; what they could not use becomes dead letters.

    Groups come out as lists of one shard's, since what follows is cheaper for many at a time. The product table comes
    in blocks too, and a worker reads it once.
    """

    def __init__(self, builder: GroupBuilder, reader: LogReader, spec: FeatureSpec) -> None:
        self._builder = builder
        self._reader = reader
        self._spec = spec

    def setup(self) -> None:
        self._products: Products | None = None
        self._built = 0
        self._said = time.monotonic()

    def process(
        self, keyed: tuple[int, Iterable[Block]], products: Iterable[Block], bots: Mapping[str, bool]
    ) -> Iterator[Any]:
        if self._products is None:
            rows = (row for block in products for row in unpacked(block))
            self._products = read_table(rows, self._spec)
            gc.freeze()  # the table stays to the worker's end: no collection need go through it
        shard, blocks = keyed
        groups, items = list[BuiltGroup](), 0
        for lines in lines_by_key(blocks):
            for found in self._groups(lines, shard, self._products, bots):
                if isinstance(found, BuiltGroup):
                    groups.append(found)
                    items += found.group.count
                else:
                    yield found
            if items >= ITEMS_AT_ONCE:
                yield groups
                groups, items = [], 0
        if groups:
            yield groups

    def _groups(
        self, lines: Sequence[bytes], shard: int, products: Products, bots: Mapping[str, bool]
    ) -> Iterator[Any]:
        read = self._reader.read
        logged = [LoggedEvent(found, line) for line in lines for found in read(line) if isinstance(found, Event)]
        for request in self._reader.requests(logged):
            if request.notes:
                self.tally.update(request.notes)
            if bots and any(
                entry.event.type == "impression" and entry.event.user_id in bots for entry in request.logged
            ):
                group, attribution = None, leave_out(request, "capped", "bot")
            else:
                group, attribution = self._builder.build(request, products, shard)
            yield from self._account(attribution)
            if group is not None:
                self._say_progress()
                yield group

    def _account(self, attribution: Attribution) -> Iterator[Any]:
        for logged, fate, reason, detail in attribution.fates:
            if fate == SKIPPED:  # counted as read before it was known that it is not asked for
                self.tally[f"read/{logged.event.type}"] -= 1
                self.tally[f"skipped/{reason}"] += 1
                continue
            self.tally[f"{fate}/{logged.event.type}"] += 1
            if reason and detail:
                yield self.refuse(reason, dead_letter(reason, detail, logged.line))
            elif reason:
                self.tally[f"refused/{reason}"] += 1
        for item in attribution.refused_items:
            first = attribution.fates[0].logged.event
            letter = item_dead_letter(item.reason, item.detail, first.request_id, first.user_id, item.raw)
            yield self.refuse(item.reason, letter)
        if attribution.impression is not None:
            self.tally["noted/items"] += len(attribution.items.ids)
            self.tally["noted/items_acted_on"] += len(frozenset().union(*attribution.acted.values()))
            if locale := attribution.impression.body.get("locale"):
                self.count_named("locale", normalise_locale(locale))

    def _say_progress(self) -> None:
        self._built += 1
        if time.monotonic() - self._said > PROGRESS_SECONDS:
            self._said = time.monotonic()
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
    """Files -> what a keying DoFn makes of their lines: (keyed, dead letters, tallies, and the tags that it names)."""

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
            | "Read" >> beam.ParDo(self._reading).with_output_types(list[bytes])
            | "Key"
            >> beam.ParDo(self._keying)
            .with_output_types(self._keyed)
            .with_outputs(DEAD_LETTERS, TALLY, *self._tags, main="keyed")
        )


def by_split(groups: Iterable[BuiltGroup]) -> Iterable[tuple[str, list[BuiltGroup]]]:
    """The groups of each split that has some."""
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
        | "Told" >> beam.MapTuple(lambda split, tally: (split, told(split, tally)))
    )


def told(split: str, tally: SplitTally) -> tuple[dict[str, Any], list[str]]:
    """A split's statistics and warnings."""
    return tally.to_statistics().model_dump(), list(tally.warnings(split))


def total(tallies: Any) -> Any:
    """Tallies -> their one sum."""
    return tallies | beam.CombineGlobally(SumTallies())


def summary(splits: Mapping[str, Any], tally: Tally, written: Iterable[Written], spec: FeatureSpec) -> bytes:
    """What the pipeline tells its driver, as JSON: counts, statistics, warnings, files."""
    whole = {split: splits.get(split) or told(split, SplitTally(spec)) for split in SPLITS}
    return orjson.dumps(
        {
            "tally": dict(tally),
            "splits": {split: statistics for split, (statistics, _) in whole.items()},
            "warnings": [warning for _, warnings in whole.values() for warning in warnings],
            "written": [tuple(file) for file in written],
        }
    )
