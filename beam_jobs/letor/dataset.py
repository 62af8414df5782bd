"""All parts of LETOR files -> correlations, then the dataset's shards and what they hold, in several processes."""

import gzip
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from apache_beam.io.filesystem import FileMetadata

from beam_jobs.letor_files import parts_of
from beam_jobs.letor_privilege import Correlations, FeatureSplit
from beam_jobs.letor_protocol import LEFT_OUT, LetorProtocol
from beam_jobs.letor_shards import Converted, Shard, convert, correlate
from beam_jobs.processes import in_processes
from beam_jobs.query_groups import SPLITS
from beam_jobs.storage import join, make_directory, write_bytes
from features.errors import InputError

PROGRESS_SECONDS = 5.0
RELEVANCE = "relevance.tsv.gz"
HEADER = gzip.compress(b"query\titem_id\trelevance\n", mtime=0)

Task = TypeVar("Task")
Result = TypeVar("Result")


def shards_of(files: Mapping[str, Sequence[FileMetadata]]) -> list[Shard]:
    """A shard for each part of each file, train's first. Errors: InputError."""
    parts = {split: [part for entry in entries for part in parts_of(entry)] for split, entries in files.items()}
    return [
        Shard(part, split, number, len(parts[split])) for split in SPLITS for number, part in enumerate(parts[split])
    ]


def correlate_all(protocol: LetorProtocol, shards: Sequence[Shard], workers: int) -> Correlations:
    """Correlations of the training split's features with its labels.

    Errors: InputError, also when all labels are the same.
    """
    parts = [shard.part for shard in shards if shard.split == "train"]
    total = Correlations(protocol.features)
    with in_processes(partial(correlate, protocol), parts, workers) as results:
        for _, found in told("correlated", parts, results):
            total.merge(found)
    if total.documents and not total.label_varies:
        raise InputError(
            f"all {total.documents} documents of train have the label {total.mean[-1]:g}, expected different ones: "
            f"choose letor.tau ({protocol.options.tau:g}) by the highest relevance, such as 4.8 for 4 and 2.4 for 2"
        )
    return total


def convert_all(
    protocol: LetorProtocol, chosen: FeatureSplit, staging: str, shards: Sequence[Shard], workers: int
) -> dict[str, Converted]:
    """Writes all shards and each split's relevance table. Returns what was found, by split.

    Errors: InputError, also when a query's lines are not together, or a split has no group.
    """
    for split in SPLITS:
        make_directory(join(staging, split))
    splits = {split: Converted(protocol.spec) for split in SPLITS}
    seen: dict[str, Shard] = {}
    with in_processes(partial(convert, protocol, chosen, staging), shards, workers) as results:
        for shard, found in told("converted", shards, results):
            refuse_repeated(found.queries, shard, seen)
            splits[shard.split].merge(found)
    for split, total in splits.items():
        refuse_empty(split, total)
        write_bytes(join(staging, split, RELEVANCE), HEADER + total.relevance)
    return splits


def told(what: str, tasks: Sequence[Task], results: Iterator[Result]) -> Iterator[tuple[Task, Result]]:
    """Tasks with their results; prints every few seconds how many there are."""
    started = said = time.monotonic()
    for done, (task, result) in enumerate(zip(tasks, results, strict=True), start=1):
        yield task, result
        now = time.monotonic()
        if now - said > PROGRESS_SECONDS or done == len(tasks):
            said = now
            print(f"  {what} {done} of {len(tasks)} parts, {now - started:.1f} s", flush=True)


def refuse_repeated(queries: Sequence[str], shard: Shard, seen: dict[str, Shard]) -> None:
    """Errors: InputError when a query has a second group, in this or an earlier shard; `seen` holds where each is."""
    for query in queries:
        if former := seen.get(query):
            if (former.part.path, former.split) == (shard.part.path, shard.split):
                fault = f"{shard.part.path}: the lines of qid {query} are not together"
                raise InputError(f"{fault}; sort the file by query: sort -s -k2,2")
            places = f"{former.part.path} ({former.split}) and {shard.part.path} ({shard.split})"
            raise InputError(f"qid {query} is in {places}, expected all of a query's lines in one file of one split")
        seen[query] = shard


def refuse_empty(split: str, found: Converted) -> None:
    """Errors: InputError when no group of a split stays, saying why."""
    if not found.tally.groups:
        why = ", ".join(f"{reason} {count}" for reason, count in left_out(found).items())
        raise InputError(
            f"{split}: none of {found.counts['read/group']} query groups stays ({why}), expected some: see "
            "letor.min_documents, and docs/letor.md for the protocol"
        )


def left_out(found: Converted) -> dict[str, int]:
    """Reason -> groups that the protocol leaves out."""
    return {reason: found.counts[f"{reason}/group"] for reason in LEFT_OUT}
