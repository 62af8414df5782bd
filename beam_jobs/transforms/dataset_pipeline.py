"""The dataset's pipeline: log lines and product rows -> query groups -> files, statistics and dead letters."""

import secrets
from typing import Any

import apache_beam as beam

from beam_jobs.joins.query_groups import GroupBuilder
from beam_jobs.sinks.dead_letters import DeadLetters
from beam_jobs.sinks.shard_files import DEAD_LETTER_FILES, FREQUENT_QUERIES, PARTS_FOLDER, WriteLines, WriteShards
from beam_jobs.sources.inputs import DatasetInputs
from beam_jobs.sources.log_readers import READERS
from beam_jobs.sources.reading import ReadLines
from beam_jobs.storage.files import join_path
from beam_jobs.transforms import caps
from beam_jobs.transforms.blocks import LineBlock
from beam_jobs.transforms.build_groups import BuildGroups
from beam_jobs.transforms.category_counts import category_counts, counted_features
from beam_jobs.transforms.counts import DEAD_LETTERS, TALLY
from beam_jobs.transforms.frequent_queries import frequent_queries
from beam_jobs.transforms.job_summary import job_summary, split_statistics, total
from beam_jobs.transforms.keyed_lines import SEARCHES, CheckProducts, KeyEvents, ReadKeyed


def declare_pipeline(pipeline: beam.Pipeline, inputs: DatasetInputs, staging: str, shards: int) -> Any:
    """The pipeline: log lines and product rows -> groups by request -> both views, statistics, dead letters.

    Returns what it found, as `job_summary` has it: one element.
    """
    spec, options = inputs.spec, inputs.options
    letters = DeadLetters(spec.features, secrets.token_bytes(16))
    logged, rows, built = _build_groups(pipeline, inputs, shards, letters)
    groups, tallies = built.groups, [logged[TALLY], rows[TALLY], built[TALLY]]
    if options.max_groups_per_query is not None:
        capped = built.groups | "HotQueries" >> beam.ptransform_fn(caps.cap_hot_queries)(options.max_groups_per_query)
        groups = capped.groups
        tallies.append(capped[TALLY])
    frequent = built.groups | "FrequentQueries" >> beam.ptransform_fn(frequent_queries)(
        options.min_distinct_users, shards
    )
    dead = (logged[DEAD_LETTERS], rows[DEAD_LETTERS], built[DEAD_LETTERS])
    written = _write_files(inputs, join_path(staging, PARTS_FOLDER), groups, frequent, dead)
    splits = groups | "Splits" >> beam.ptransform_fn(split_statistics)(spec)
    values: Any = {}
    if counted_features(spec):
        values = beam.pvalue.AsDict(
            groups | "Categories" >> beam.ptransform_fn(category_counts)(spec, options.min_distinct_users)
        )
    all_tallies = tallies | "Tallies" >> beam.Flatten() | "Total" >> beam.ptransform_fn(total)()
    return (
        pipeline
        | "Once" >> beam.Create([None])
        | "Summary"
        >> beam.Map(
            lambda _, splits, tally, files, values: job_summary(splits, tally, files, values, spec),
            beam.pvalue.AsDict(splits),
            beam.pvalue.AsSingleton(all_tallies),
            beam.pvalue.AsList(written),
            values,
        )
    )


def _build_groups(
    pipeline: beam.Pipeline, inputs: DatasetInputs, shards: int, letters: DeadLetters
) -> tuple[Any, Any, Any]:
    """Reads logs and product rows, and builds the query groups of each shard. Returns all three with their tallies."""
    spec, options, reader = inputs.spec, inputs.options, READERS[inputs.options.reader]
    span_ms = inputs.days.span_ms if inputs.days else None
    most_requests = options.max_requests_per_hour
    events = KeyEvents(reader, span_ms, most_requests is not None, shards, letters)
    reading = ReadLines("log", len(inputs.logs)), ReadLines("product", len(inputs.products))
    logged = pipeline | "Logs" >> ReadKeyed(reading[0], inputs.logs, events, tuple[int, LineBlock], SEARCHES)
    products = CheckProducts(spec, letters)
    rows = pipeline | "Products" >> ReadKeyed(reading[1], inputs.products, products, LineBlock)
    bots: Any = {}
    if most_requests is not None:
        found = logged[SEARCHES] | "Bots" >> beam.ptransform_fn(caps.find_bots)(most_requests)
        bots = beam.pvalue.AsDict(found)
    builder = BuildGroups(GroupBuilder(spec, options, inputs.seed), reader, spec, letters)
    built = (
        logged.keyed
        | "ByShard" >> beam.GroupByKey()
        | "BuildGroups"
        >> beam.ParDo(builder, beam.pvalue.AsIter(rows.keyed), bots).with_outputs(DEAD_LETTERS, TALLY, main="groups")
    )
    return logged, rows, built


def _write_files(inputs: DatasetInputs, parts: str, groups: Any, frequent: Any, dead: tuple[Any, ...]) -> Any:
    """Writes the files of all parts of the dataset. Returns a `WrittenFile` for each."""
    written = [
        groups | "WriteShards" >> beam.ParDo(WriteShards(inputs.spec, parts)),
        frequent | "WriteFrequent" >> beam.ParDo(WriteLines(FREQUENT_QUERIES, parts)),
    ]
    if inputs.options.dead_letter_days:
        letters = dead | "Dead" >> beam.Flatten()
        written.append(letters | "WriteDeadLetters" >> beam.ParDo(WriteLines(DEAD_LETTER_FILES, parts)))
    return written | "Written" >> beam.Flatten()
