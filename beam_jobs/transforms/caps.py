"""What is left out because there is too much of it: users who search like machines, and the hottest queries' groups.

Both count what they remove as capped, and keep no dead letters of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.combiners import Top

from beam_jobs.counting import TALLY, CountingDoFn
from beam_jobs.query_groups import BuiltGroup

HOUR_MS = 3_600_000


def bots(searches: Any, max_per_hour: int) -> Any:
    """((user, hour), request id) -> (user, True), of the users with too many distinct requests in an hour."""
    return (
        searches
        | "Requests" >> beam.CombinePerKey(DistinctFn(max_per_hour + 1))
        | "TooMany" >> beam.Filter(lambda entry: entry[1][1] > max_per_hour)
        | "User" >> beam.Map(lambda entry: (entry[0][0], True))
        | "Once" >> beam.Distinct()
    )


def cap_hot_queries(groups: Any, most: int) -> Any:
    """Lists of groups -> (kept, tallies): of a query with more than `most`, those with the lowest hashes stay."""
    highest = (
        groups
        | "QueryAndKey" >> beam.FlatMap(queries_and_places).with_output_types(tuple[str, int])
        | "Lowest" >> Top.SmallestPerKey(most + 1)
        | "Hot" >> beam.Filter(lambda entry: len(entry[1]) > most)
        | "Highest" >> beam.MapTuple(lambda query, keys: (query, sorted(keys)[most - 1]))
    )
    return groups | "Cap" >> beam.ParDo(CapHotQueries(), beam.pvalue.AsDict(highest)).with_outputs(TALLY, main="kept")


def queries_and_places(groups: Iterable[BuiltGroup]) -> Iterator[tuple[str, int]]:
    return ((built.query, place_of(built)) for built in groups)


def place_of(built: BuiltGroup) -> int:
    """A group's place among its query's: its hash, less a bit that Beam's coder of whole numbers has no room for."""
    return built.group_key >> 1


class CapHotQueries(CountingDoFn):
    """Lists of groups, query -> the highest hash that stays -> lists of the groups that stay."""

    def process(self, groups: Sequence[BuiltGroup], highest: Mapping[str, int]) -> Iterator[list[BuiltGroup]]:
        kept = []
        for built in groups:
            place = place_of(built)
            if place <= highest.get(built.query, place):
                kept.append(built)
                continue
            self.tally["noted/hot_query_groups"] += 1
            for kind in built.used:
                self.tally[f"used/{kind}"] -= 1
                self.tally[f"capped/{kind}"] += 1
                self.tally["refused/hot_query"] += 1
        if kept:
            yield kept


class DistinctFn(beam.CombineFn):
    """Texts -> (how many, how many distinct ones, counted up to `enough`): no more are held than are needed."""

    def __init__(self, enough: int) -> None:
        self._enough = enough

    def create_accumulator(self) -> tuple[int, set[str]]:
        return 0, set()  # which Beam has a coder for; a frozen one it would pickle

    def add_input(self, seen: tuple[int, set[str]], text: str) -> tuple[int, set[str]]:
        count, texts = seen
        if text and len(texts) < self._enough:
            texts.add(text)
        return count + 1, texts

    def merge_accumulators(self, several: Iterable[tuple[int, set[str]]]) -> tuple[int, set[str]]:
        count, texts = 0, set[str]()
        for more, known in several:
            count += more
            texts |= known
        return count, set(sorted(texts)[: self._enough])

    def extract_output(self, seen: tuple[int, set[str]]) -> tuple[int, int]:
        return seen[0], len(seen[1])
