"""Caps: drops the events of bots and surplus groups of hot queries.

Dropped events count as capped and get no dead letters.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.combiners import Top

from beam_jobs.joins.query_groups import BuiltGroup
from beam_jobs.transforms.counts import TALLY, CountingDoFn

HOUR_MS = 3_600_000


def find_bots(searches: Any, max_per_hour: int) -> Any:
    """((user, hour), request id) -> (user, True) for users with too many distinct requests in an hour."""
    return (
        searches
        | "Requests" >> beam.CombinePerKey(DistinctFn(max_per_hour + 1))
        | "TooMany" >> beam.Filter(lambda entry: entry[1][1] > max_per_hour)
        | "User" >> beam.Map(lambda entry: (entry[0][0], True))
        | "Once" >> beam.Distinct()
    )


def cap_hot_queries(groups: Any, most: int) -> Any:
    """Lists of groups -> (groups, tallies), with at most `most` groups of a query: those with the lowest hashes."""
    highest = (
        groups
        | "QueryAndKey" >> beam.FlatMap(queries_and_sampling_keys).with_output_types(tuple[str, int])
        | "Lowest" >> Top.SmallestPerKey(most + 1)
        | "Hot" >> beam.Filter(lambda entry: len(entry[1]) > most)
        | "Highest" >> beam.MapTuple(lambda query, keys: (query, sorted(keys)[most - 1]))
    )
    return groups | "Cap" >> beam.ParDo(CapHotQueries(), beam.pvalue.AsDict(highest)).with_outputs(TALLY, main="groups")


def queries_and_sampling_keys(groups: Iterable[BuiltGroup]) -> Iterator[tuple[str, int]]:
    return ((built.query, sampling_key(built)) for built in groups)


def sampling_key(built: BuiltGroup) -> int:
    """Returns a group's 63-bit hash, which orders the groups of a query: Beam's varint coder is signed."""
    return built.group_key >> 1


class CapHotQueries(CountingDoFn):
    """Lists of groups -> lists of the groups within the cap. highest: query -> the largest hash within it."""

    def process(self, groups: Sequence[BuiltGroup], highest: Mapping[str, int]) -> Iterator[list[BuiltGroup]]:
        kept = []
        for built in groups:
            place = sampling_key(built)
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
    """Texts -> (count, distinct count up to `enough`). Holds at most `enough` texts."""

    def __init__(self, enough: int) -> None:
        self._enough = enough

    def create_accumulator(self) -> tuple[int, set[str]]:
        return 0, set()  # Beam has a coder for set; it would pickle a frozenset

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
