"""log lines -> query groups -> dataset files: thin Beam transforms around the pure modules."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import orjson

from beam_jobs.attribution import SKIPPED, Attribution, LoggedEvent, leave_out
from beam_jobs.caps import HOUR_MS, DistinctFn
from beam_jobs.counting import DEAD_LETTERS, TALLY, CountingDoFn, SumTallies, Tally
from beam_jobs.dataset_statistics import SplitTally
from beam_jobs.dead_letters import dead_letter, item_dead_letter
from beam_jobs.log_reader import LogReader
from beam_jobs.logs import QUERY, Event, Malformed
from beam_jobs.products import MalformedProduct, Product, latest, read_product
from beam_jobs.query_groups import SPLITS, BuiltGroup, GroupBuilder, normalise_locale
from beam_jobs.reading import ReadLines
from features.elwc import View, encode_group
from features.spec import FeatureSpec

PROGRESS = logging.getLogger("privrank")
VIEWS: tuple[View, ...] = ("training", "serving")
PROGRESS_SECONDS = 5.0
SEARCHES = "searches"
SEARCHED = ("impression", QUERY)  # types of events that tell of a search


class KeyEvents(CountingDoFn):
    """Log lines -> (key of the events in it, line); lines that are no events become dead letters.

    span_ms: the first moment of the events to use, and the first one after; None uses all.
    finds_bots: whether ((user, hour), request id) comes out on SEARCHES, for every event that tells of a search.
    """

    def __init__(self, reader: LogReader, span_ms: tuple[int, int] | None, finds_bots: bool) -> None:
        self._reader = reader
        self._span_ms = span_ms
        self._finds_bots = finds_bots

    def process(self, line: bytes) -> Iterator[Any]:
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
        if key is not None:
            yield key.encode(), line


class KeyByItem(CountingDoFn):
    """Lines of the product table -> (item id, row); lines that are no rows become dead letters."""

    def __init__(self, spec: FeatureSpec) -> None:
        self._spec = spec

    def process(self, line: bytes) -> Iterator[Any]:
        row = read_product(line, self._spec)
        if isinstance(row, MalformedProduct):
            yield self.refuse(row.reason, dead_letter(row.reason, row.detail, line))
        else:
            yield row.item_id, row


class BuildGroups(CountingDoFn):
    """(key, its lines), product table, bots -> query groups; what they could not use becomes dead letters."""

    def __init__(self, builder: GroupBuilder, reader: LogReader) -> None:
        self._builder = builder
        self._reader = reader

    def setup(self) -> None:
        self._built = 0
        self._said = time.monotonic()

    def process(
        self, keyed: tuple[bytes, Iterable[bytes]], products: Mapping[str, Product], bots: Mapping[str, bool]
    ) -> Iterator[Any]:
        read = self._reader.read
        logged = [LoggedEvent(found, line) for line in keyed[1] for found in read(line) if isinstance(found, Event)]
        for request in self._reader.requests(logged):
            if request.notes:
                self.tally.update(request.notes)
            if bots and any(
                entry.event.type == "impression" and entry.event.user_id in bots for entry in request.logged
            ):
                group, attribution = None, leave_out(request, "capped", "bot")
            else:
                group, attribution = self._builder.build(request, products)
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
            self.tally["noted/items"] += len(attribution.items)
            self.tally["noted/items_acted_on"] += len(set[str]().union(*attribution.acted.values()))
            if locale := attribution.impression.body.get("locale"):
                self.count_named("locale", normalise_locale(locale))

    def _say_progress(self) -> None:
        self._built += 1
        if time.monotonic() - self._said > PROGRESS_SECONDS:
            self._said = time.monotonic()
            PROGRESS.info("  built %d query groups", self._built)


class EncodeViews(beam.DoFn):
    """A query group -> its bytes on the output '<split>_<view>', both views at once, so that they stay aligned."""

    def __init__(self, spec: FeatureSpec) -> None:
        self._spec = spec

    def process(self, built: BuiltGroup) -> Iterator[Any]:
        for view in VIEWS:
            yield beam.pvalue.TaggedOutput(view_tag(built.split, view), encode_group(built.group, self._spec, view))


def view_tag(split: str, view: View) -> str:
    return f"{split}_{view}"


class SplitStatisticsFn(beam.CombineFn):
    """Query groups -> SplitTally."""

    def __init__(self, spec: FeatureSpec) -> None:
        self._spec = spec

    def create_accumulator(self) -> SplitTally:
        return SplitTally(self._spec)

    def add_input(self, tally: SplitTally, built: BuiltGroup) -> SplitTally:
        tally.add(built)
        return tally

    def merge_accumulators(self, tallies: Iterable[SplitTally]) -> SplitTally:
        merged = SplitTally(self._spec)
        for tally in tallies:
            merged.merge(tally)
        return merged

    def compact(self, tally: SplitTally) -> SplitTally:
        return tally.settle()

    def extract_output(self, tally: SplitTally) -> SplitTally:
        return tally.settle()


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
            | "Read" >> beam.ParDo(self._reading).with_output_types(bytes)
            | "Key"
            >> beam.ParDo(self._keying)
            .with_output_types(self._keyed)
            .with_outputs(DEAD_LETTERS, TALLY, *self._tags, main="keyed")
        )


def latest_products(rows: Any) -> Any:
    """(item id, row) -> (item id, the row that counts)."""
    return (
        rows
        | "ByItem" >> beam.GroupByKey()
        | "Latest" >> beam.MapTuple(lambda item_id, several: (item_id, latest(several)))
    )


def frequent_queries(groups: Any, min_distinct_users: int) -> Any:
    """Training groups -> JSON lines {query, requests} of the queries that enough distinct users made."""
    return (
        groups
        | "OfTraining" >> beam.Filter(lambda built: built.split == "train")
        | "QueryAndUser" >> beam.Map(lambda built: (built.query, built.user_id)).with_output_types(tuple[str, str])
        | "Users" >> beam.CombinePerKey(DistinctFn(min_distinct_users))
        | "Enough" >> beam.Filter(lambda entry: entry[1][1] >= min_distinct_users)
        | "Line" >> beam.MapTuple(lambda query, seen: orjson.dumps({"query": query, "requests": seen[0]}))
    )


def split_tallies(groups: Any, spec: FeatureSpec) -> Any:
    """Groups -> (split, SplitTally), one for each split that has groups."""
    return (
        groups
        | "BySplit" >> beam.Map(lambda built: (built.split, built))
        | "Statistics" >> beam.CombinePerKey(SplitStatisticsFn(spec))
    )


def total(tallies: Any) -> Any:
    """Tallies -> their one sum."""
    return tallies | beam.CombineGlobally(SumTallies())


def summary(splits: Mapping[str, SplitTally], tally: Tally, spec: FeatureSpec) -> bytes:
    """What the pipeline tells its driver, as JSON: counts, statistics, warnings."""
    tallies = {split: splits.get(split, SplitTally(spec)) for split in SPLITS}
    return orjson.dumps(
        {
            "tally": dict(tally),
            "splits": {split: entry.to_statistics().model_dump() for split, entry in tallies.items()},
            "warnings": [warning for split, entry in tallies.items() for warning in entry.warnings(split)],
        }
    )
