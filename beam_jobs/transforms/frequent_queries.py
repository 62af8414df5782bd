"""Queries of the training split that enough distinct users made: only their texts may leave the dataset."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import orjson

from beam_jobs.blocks import Block, Blocks, lines_by_key
from beam_jobs.counting import of_bundle
from beam_jobs.query_groups import BuiltGroup


def frequent_queries(groups: Any, min_distinct_users: int, shards: int) -> Any:
    """Lists of query groups -> JSON lines {query, requests}. shards: parts in which queries are shuffled."""
    return (
        groups
        | "Pack" >> beam.ParDo(PackQueries(shards)).with_output_types(tuple[int, Block])
        | "ByShard" >> beam.GroupByKey()
        | "Count" >> beam.FlatMap(counted, min_distinct_users)
    )


class PackQueries(beam.DoFn):
    """Lists of query groups -> (shard, a block of JSON lines [query, user] of those of training)."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def start_bundle(self) -> None:
        self._blocks = Blocks(self._shards)

    def process(self, groups: Sequence[BuiltGroup]) -> Iterator[tuple[int, Block]]:
        for built in groups:
            if built.split == "train" and (
                full := self._blocks.add(built.query, orjson.dumps([built.query, built.user_id]))
            ):
                yield full

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(of_bundle, self._blocks.rest())


def counted(keyed: tuple[int, Iterable[Block]], min_distinct_users: int) -> Iterator[bytes]:
    """A shard's frequent queries. Requests without a user count, and add no user."""
    for lines in lines_by_key(keyed[1]):
        made = [orjson.loads(line) for line in lines]
        if len({user for _, user in made if user}) >= min_distinct_users:
            yield orjson.dumps({"query": made[0][0], "requests": len(made)})
