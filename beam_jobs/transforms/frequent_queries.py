"""Training queries made by enough distinct users: only these texts may leave the dataset."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import orjson

from beam_jobs.joins.query_groups import BuiltGroup
from beam_jobs.transforms.blocks import Blocks, LineBlock, lines_by_key
from beam_jobs.transforms.counts import bundle_output


def frequent_queries(groups: Any, min_distinct_users: int, shards: int) -> Any:
    """Lists of query groups -> JSON lines {query, requests}. shards: number of shuffle shards."""
    return (
        groups
        | "Pack" >> beam.ParDo(PackQueries(shards)).with_output_types(tuple[int, LineBlock])
        | "ByShard" >> beam.GroupByKey()
        | "Count" >> beam.FlatMap(count_queries, min_distinct_users)
    )


class PackQueries(beam.DoFn):
    """Lists of query groups -> (shard, block of JSON lines [query, user]) of the training groups."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def start_bundle(self) -> None:
        self._blocks = Blocks(self._shards)

    def process(self, groups: Sequence[BuiltGroup]) -> Iterator[tuple[int, LineBlock]]:
        for built in groups:
            if built.split == "train" and (
                full := self._blocks.add(built.query, orjson.dumps([built.query, built.user_id]))
            ):
                yield full

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(bundle_output, self._blocks.flush())


def count_queries(keyed: tuple[int, Iterable[LineBlock]], min_distinct_users: int) -> Iterator[bytes]:
    """Yields a shard's frequent queries. Requests without a user count as requests, not as users."""
    for lines in lines_by_key(keyed[1]):
        made = [orjson.loads(line) for line in lines]
        if len({user for _, user in made if user}) >= min_distinct_users:
            yield orjson.dumps({"query": made[0][0], "requests": len(made)})
