"""Converts LETOR files in several processes: first the correlations, then the dataset's shards."""

import gzip
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from apache_beam.io.filesystem import FileMetadata

from beam_jobs.joins.query_groups import DATASET_SPLITS
from beam_jobs.launch.processes import map_in_processes
from beam_jobs.letor.files import parts_of
from beam_jobs.letor.privilege import Correlations, FeatureSplit
from beam_jobs.letor.protocol import LEFT_OUT_REASONS, LetorProtocol
from beam_jobs.letor.shards import ConversionResult, LetorShard, convert_shard, correlate_part
from beam_jobs.storage.files import join_path, make_directory, write_bytes
from features.errors import InputError

_PROGRESS_SECONDS = 5.0
_RELEVANCE_FILE = "relevance.tsv.gz"
_RELEVANCE_HEADER = gzip.compress(b"query\titem_id\trelevance\n", mtime=0)

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def letor_shards(files: Mapping[str, Sequence[FileMetadata]]) -> list[LetorShard]:
    """One shard for each part of each file, the training split first. Errors: InputError."""
    parts = {split: [part for entry in entries for part in parts_of(entry)] for split, entries in files.items()}
    return [
        LetorShard(part, split, number, len(parts[split]))
        for split in DATASET_SPLITS
        for number, part in enumerate(parts[split])
    ]


def correlate_all_parts(protocol: LetorProtocol, shards: Sequence[LetorShard], workers: int) -> Correlations:
    """Correlations of the training split's features with its labels.

    Errors: InputError for a malformed file, or when all labels are equal.
    """
    parts = [shard.part for shard in shards if shard.split == "train"]
    total = Correlations(protocol.features)
    with map_in_processes(partial(correlate_part, protocol), parts, workers) as results:
        for _, result in _with_progress("correlated", parts, results):
            total.merge(result)
    if total.documents and not total.label_varies:
        raise InputError(
            f"all {total.documents} documents of train have the label {total.mean[-1]:g}, expected labels that "
            f"differ: set letor.tau ({protocol.options.tau:g}) by the highest relevance, such as 4.8 for 4, 2.4 for 2"
        )
    return total


def convert_all_shards(
    protocol: LetorProtocol, chosen: FeatureSplit, directory: str, shards: Sequence[LetorShard], workers: int
) -> dict[str, ConversionResult]:
    """Writes all shards and each split's relevance table. Returns the result of each split.

    Errors: InputError for a malformed file, a query with separated lines, or a split without a group.
    """
    for split in DATASET_SPLITS:
        make_directory(join_path(directory, split))
    splits = {split: ConversionResult(protocol.spec) for split in DATASET_SPLITS}
    seen: dict[str, LetorShard] = {}
    with map_in_processes(partial(convert_shard, protocol, chosen, directory), shards, workers) as results:
        for shard, result in _with_progress("converted", shards, results):
            _check_queries_are_unique(result.queries, shard, seen)
            splits[shard.split].merge(result)
    for split, total in splits.items():
        _check_split_has_groups(split, total)
        write_bytes(join_path(directory, split, _RELEVANCE_FILE), _RELEVANCE_HEADER + total.relevance)
    return splits


def _with_progress(action: str, tasks: Sequence[_Task], results: Iterator[_Result]) -> Iterator[tuple[_Task, _Result]]:
    """Yields each task with its result and prints progress every `_PROGRESS_SECONDS`."""
    started = printed = time.monotonic()
    for done, (task, result) in enumerate(zip(tasks, results, strict=True), start=1):
        yield task, result
        now = time.monotonic()
        if now - printed > _PROGRESS_SECONDS or done == len(tasks):
            printed = now
            print(f"  {action} {done} of {len(tasks)} parts, {now - started:.1f} s", flush=True)


def _check_queries_are_unique(queries: Sequence[str], shard: LetorShard, seen: dict[str, LetorShard]) -> None:
    """Records the shard of each query in `seen`. Errors: InputError when a query has a second group."""
    for query in queries:
        if earlier := seen.get(query):
            if (earlier.part.path, earlier.split) == (shard.part.path, shard.split):
                fault = f"{shard.part.path}: the lines of qid {query} are not consecutive"
                raise InputError(f"{fault}; sort the file by query: sort -s -k2,2")
            places = f"{earlier.part.path} ({earlier.split}) and {shard.part.path} ({shard.split})"
            raise InputError(f"qid {query} is in {places}, expected all of a query's lines in one file of one split")
        seen[query] = shard


def _check_split_has_groups(split: str, result: ConversionResult) -> None:
    """Errors: InputError with the counted reasons when the protocol leaves out every group of a split."""
    if not result.tally.groups:
        why = ", ".join(f"{reason} {count}" for reason, count in left_out_counts(result).items())
        raise InputError(
            f"{split}: 0 of {result.counts['read/group']} query groups remain ({why}), expected at least "
            "one: give other files, or lower letor.min_documents; docs/letor.md has the protocol"
        )


def left_out_counts(result: ConversionResult) -> dict[str, int]:
    """Reason -> number of groups left out."""
    return {reason: result.counts[f"{reason}/group"] for reason in LEFT_OUT_REASONS}
