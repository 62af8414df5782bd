"""log lines -> query groups -> dataset files: thin Beam transforms around the pure modules."""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import orjson
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.attribution import Attribution, LoggedEvent
from beam_jobs.dataset_statistics import SplitTally
from beam_jobs.dead_letters import dead_letter, item_dead_letter
from beam_jobs.logs import Malformed, read_event
from beam_jobs.products import MalformedProduct, Product, latest, read_product
from beam_jobs.query_groups import SPLITS, BuiltGroup, GroupBuilder
from beam_jobs.reading import ReadLines
from features.elwc import View, encode_group
from features.spec import FeatureSpec

PROGRESS = logging.getLogger("privrank")
VIEWS: tuple[View, ...] = ("training", "serving")
TALLY, DEAD_LETTERS = "tally", "dead_letters"
PROGRESS_SECONDS = 5.0

Tally = Counter[str]
"""Counts by slash-separated name: 'read/click', 'used/click', 'refused/not_json', ..."""


class CountingDoFn(beam.DoFn):
    """A DoFn that counts in its data: one Counter a bundle, on the output TALLY."""

    def start_bundle(self) -> None:
        self.tally: Tally = Counter()

    def finish_bundle(self) -> Iterator[Any]:
        window = GlobalWindow()
        yield beam.pvalue.TaggedOutput(TALLY, WindowedValue(self.tally, window.max_timestamp(), [window]))

    def refuse(self, reason: str, letter: bytes) -> Any:
        """Counts a dead letter and returns its output."""
        self.tally[f"refused/{reason}"] += 1
        return beam.pvalue.TaggedOutput(DEAD_LETTERS, letter)


class KeyByRequest(CountingDoFn):
    """Log lines -> (request id, line); lines that are no events become dead letters."""

    def process(self, line: bytes) -> Iterator[Any]:
        event = read_event(line)
        self.tally[f"read/{event.type}"] += 1
        if isinstance(event, Malformed):
            self.tally[f"malformed/{event.type}"] += 1
            yield self.refuse(event.reason, dead_letter(event.reason, event.detail, line))
        else:
            yield event.request_id.encode(), line


class KeyByItem(CountingDoFn):
    """Lines of the product table -> (item id, row); lines that are no rows become dead letters."""

    def process(self, line: bytes) -> Iterator[Any]:
        row = read_product(line)
        if isinstance(row, MalformedProduct):
            yield self.refuse(row.reason, dead_letter(row.reason, row.detail, line))
        else:
            yield row.item_id, row


class BuildGroups(CountingDoFn):
    """(request id, its lines), product table -> query groups; what they could not use becomes dead letters."""

    def __init__(self, builder: GroupBuilder) -> None:
        self._builder = builder

    def setup(self) -> None:
        self._built = 0
        self._said = time.monotonic()

    def process(self, keyed: tuple[bytes, Iterable[bytes]], products: Mapping[str, Product]) -> Iterator[Any]:
        logged = [LoggedEvent(event, line) for line in keyed[1] if not isinstance(event := read_event(line), Malformed)]
        group, attribution = self._builder.build(logged, products)
        yield from self._account(attribution)
        if group is not None:
            self._say_progress()
            yield group

    def _account(self, attribution: Attribution) -> Iterator[Any]:
        for logged, fate, reason, detail in attribution.fates:
            self.tally[f"{fate}/{logged.event.type}"] += 1
            if reason:
                yield self.refuse(reason, dead_letter(reason, detail, logged.line))
        for item in attribution.refused_items:
            first = attribution.fates[0].logged.event
            letter = item_dead_letter(item.reason, item.detail, first.request_id, first.user_id, item.raw)
            yield self.refuse(item.reason, letter)

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


class DistinctUsersFn(beam.CombineFn):
    """Users' ids -> (requests, distinct users, counted up to `enough`): no more ids are held than are needed."""

    def __init__(self, enough: int) -> None:
        self._enough = enough

    def create_accumulator(self) -> tuple[int, frozenset[str]]:
        return 0, frozenset()

    def add_input(self, seen: tuple[int, frozenset[str]], user: str) -> tuple[int, frozenset[str]]:
        requests, users = seen
        if user and user not in users and len(users) < self._enough:
            users |= {user}
        return requests + 1, users

    def merge_accumulators(self, several: Iterable[tuple[int, frozenset[str]]]) -> tuple[int, frozenset[str]]:
        requests, users = 0, set[str]()
        for more, known in several:
            requests += more
            users |= known
        return requests, frozenset(sorted(users)[: self._enough])

    def extract_output(self, seen: tuple[int, frozenset[str]]) -> tuple[int, int]:
        return seen[0], len(seen[1])


class SumTallies(beam.CombineFn):
    """Counters -> their sum."""

    def create_accumulator(self) -> Tally:
        return Counter()

    def add_input(self, total: Tally, tally: Tally) -> Tally:
        total.update(tally)
        return total

    def merge_accumulators(self, tallies: Iterable[Tally]) -> Tally:
        total: Tally = Counter()
        for tally in tallies:
            total.update(tally)
        return total

    def extract_output(self, total: Tally) -> Tally:
        return total


class ReadKeyed(beam.PTransform):
    """Files -> what a keying DoFn makes of their lines: (keyed, dead letters, tallies)."""

    def __init__(self, paths: Sequence[str], what: str, keying: CountingDoFn, keyed: Any) -> None:
        super().__init__()
        self._keyed = keyed
        self._paths = list(paths)
        self._what = what
        self._keying = keying

    def expand(self, pipeline: Any) -> Any:
        return (
            pipeline
            | "Paths" >> beam.Create(self._paths, reshuffle=True)
            | "Read" >> beam.ParDo(ReadLines(self._what, len(self._paths))).with_output_types(bytes)
            | "Key"
            >> beam.ParDo(self._keying).with_output_types(self._keyed).with_outputs(DEAD_LETTERS, TALLY, main="keyed")
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
        | "Users" >> beam.CombinePerKey(DistinctUsersFn(min_distinct_users))
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
