"""Behaviour logs -> a dataset of query groups (TFRecords of ExampleListWithContext), split by query.

Example:
  python -m beam_jobs.build_elwc --config configs/product_search.yaml \\
    --input 'build/demo/logs/events-*.jsonl.gz' --products build/demo/logs/products.jsonl.gz \\
    --output build/demo/dataset

A nightly batch, of the day and the days before it that dataset.look_back_days says:
  python -m beam_jobs.build_elwc --config configs/product_search.yaml --date 2025-03-10 \\
    --input 'logs/{date}/events-*.jsonl.gz' --output 'build/shop/{date}'

A dataset of each locale that the logs name:
  python -m beam_jobs.build_elwc --config configs/product_search.yaml --input 'logs/*.jsonl.gz' \\
    --output 'build/shop/{locale}'

Any option of Apache Beam may follow, such as --direct_num_workers 4 --direct_running_mode multi_processing, or
--runner DataflowRunner --project P --region R --temp_location gs://B/tmp.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import orjson
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs import caps, dates, locales
from beam_jobs import pipeline as job
from beam_jobs.blocks import Block
from beam_jobs.counting import DEAD_LETTERS, TALLY
from beam_jobs.frequent_queries import frequent_queries
from beam_jobs.inputs import Inputs, read_inputs
from beam_jobs.log_readers import READERS
from beam_jobs.pipeline_options import ends_before_pipeline, local_workers, pipeline_options
from beam_jobs.publishing import Publish
from beam_jobs.query_groups import GroupBuilder
from beam_jobs.reading import ReadLines
from beam_jobs.running import running
from beam_jobs.shard_files import (
    FREQUENT_QUERIES,
    LETTERS,
    PARTS,
    PRIVATE,
    WriteLines,
    WriteShards,
    Written,
    place_files,
)
from beam_jobs.storage import (
    building,
    existing_manifest,
    is_local,
    join,
    make_directory,
    publish_files,
    read_bytes,
    refuse_foreign,
    remove_tree,
    staging_beside,
    write_bytes,
)
from features.errors import InputError, exit_code_of
from features.manifest import FILE_NAME, DatasetManifest

COUNTS = "counts.json"  # of a job that failed, beside its dead letters
COUNTS_FORMAT = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS


def build_datasets(inputs: Inputs, output: str, options: PipelineOptions) -> None:
    """Builds the dataset; where `output` has {locale}, that of each locale which the logs name, one after the other.

    Errors: InputError, of all datasets that could not be built; the others are there.
    """
    datasets = {output: inputs}
    if locales.PLACE in output:
        if inputs.options.locale:
            raise InputError(
                f"--output {output} is of each locale, and dataset.locale of {inputs.options.locale!r} alone: leave "
                "one of them out"
            )
        span_ms = inputs.days.span_ms if inputs.days else None
        found = locales.find_locales(READERS[inputs.options.reader], inputs.logs, span_ms, output, options)
        datasets = {output.replace(locales.PLACE, name): inputs.of_locale(name) for name in found}
    faults = []
    for path, of_dataset in datasets.items():
        started = time.monotonic()
        try:
            manifest = build_dataset(of_dataset, path, options)
        except InputError as error:
            faults.append(str(error))
        else:
            print(f"up to date: {path}" if manifest is None else describe(manifest, path, time.monotonic() - started))
    if faults:
        raise InputError("; ".join(faults))


def build_dataset(inputs: Inputs, output: str, options: PipelineOptions) -> DatasetManifest | None:
    """Builds the dataset directory. Returns its manifest, or None when it is up to date already.

    Errors: InputError; whatever it is, a former dataset stays as it was.
    """
    refuse_foreign(output)
    refuse_foreign(refused_path(output), COUNTS)
    former = existing_manifest(output, DatasetManifest)
    if former is not None and former.stage_key == inputs.key:
        expire_dead_letters(output, inputs.options.dead_letter_days)
        return None
    print(f"building {output} from {len(inputs.logs)} log files and {len(inputs.products)} product files", flush=True)
    with building(output) as staging:
        run_pipeline(inputs, output, staging, options)
        found = orjson.loads(read_bytes(_summary_path(staging)))
        written = [Written(*file) for file in found["written"]]
        place_files(written, staging, letters=inputs.options.dead_letter_days > 0)
        remove_tree(join(staging, "summary"))
        protect_dead_letters(staging)
        try:
            manifest = inputs.manifest(found)
        except InputError as error:
            refused = keep_refused(staging, output, found["tally"])
            raise InputError(f"{error}. Nothing was written but {refused}, which says what was refused") from None
        write_bytes(join(staging, FILE_NAME), manifest.to_bytes())
    remove_tree(refused_path(output))
    return manifest


def leave_to_engine(inputs: Inputs, output: str, options: PipelineOptions) -> None:
    """Gives the whole job, publishing included, to an engine that runs it when this command has ended.

    Errors: InputError when `output` is up to date or something else's, or needs a command that waits.
    """
    if locales.PLACE in output:
        raise InputError(f"--output {output}: {locales.PLACE} needs two pipelines, and a template is one: leave it out")
    former = existing_manifest(output, DatasetManifest)
    if former is not None and former.stage_key == inputs.key:
        raise InputError(f"{output} is up to date: there is nothing to launch")
    staging = staging_beside(output)
    with running(options, output) as pipeline:
        found = declare(pipeline, inputs, staging, inputs.shards(local_workers(options)))
        _ = found | "WriteDataset" >> Publish(inputs, staging, output)


def run_pipeline(inputs: Inputs, output: str, staging: str, options: PipelineOptions) -> None:
    """Errors: as `running`."""
    make_directory(join(staging, "summary"))
    make_directory(join(staging, "dead_letters"), PRIVATE)
    make_directory(join(staging, PARTS), PRIVATE)
    with running(options, output) as pipeline:
        found = declare(pipeline, inputs, staging, inputs.shards(local_workers(options)))
        _ = found | "WriteSummary" >> beam.Map(lambda summary: write_bytes(_summary_path(staging), summary))


def declare(pipeline: beam.Pipeline, inputs: Inputs, staging: str, shards: int) -> Any:
    """The pipeline: log lines and product rows -> groups by request -> both views, statistics, dead letters.

    Returns what it found, as `summary` has it: one element.
    """
    spec, options, reader = inputs.spec, inputs.options, READERS[inputs.options.reader]
    span_ms = inputs.days.span_ms if inputs.days else None
    most_requests = options.max_requests_per_hour
    keying = job.KeyEvents(reader, span_ms, most_requests is not None, shards), job.CheckProducts(spec)
    reading = ReadLines("log", len(inputs.logs)), ReadLines("product", len(inputs.products))
    logged = pipeline | "Logs" >> job.ReadKeyed(reading[0], inputs.logs, keying[0], tuple[int, Block], job.SEARCHES)
    rows = pipeline | "Products" >> job.ReadKeyed(reading[1], inputs.products, keying[1], Block)
    bots: Any = {}
    if most_requests is not None:
        found = logged[job.SEARCHES] | "Bots" >> beam.ptransform_fn(caps.bots)(most_requests)
        bots = beam.pvalue.AsDict(found)
    building = job.BuildGroups(GroupBuilder(spec, options, inputs.seed), reader, spec)
    built = (
        logged.keyed
        | "ByShard" >> beam.GroupByKey()
        | "BuildGroups"
        >> beam.ParDo(building, beam.pvalue.AsIter(rows.keyed), bots).with_outputs(DEAD_LETTERS, TALLY, main="groups")
    )
    groups, tallies = built.groups, [logged[TALLY], rows[TALLY], built[TALLY]]
    if options.max_groups_per_query is not None:
        capped = built.groups | "HotQueries" >> beam.ptransform_fn(caps.cap_hot_queries)(options.max_groups_per_query)
        groups = capped.kept
        tallies.append(capped[TALLY])
    parts = join(staging, PARTS)
    frequent = built.groups | "FrequentQueries" >> beam.ptransform_fn(frequent_queries)(
        options.min_distinct_users, shards
    )
    written = [
        groups | "WriteShards" >> beam.ParDo(WriteShards(spec, parts)),
        frequent | "WriteFrequent" >> beam.ParDo(WriteLines(FREQUENT_QUERIES, parts)),
    ]
    if options.dead_letter_days:
        letters = (logged[DEAD_LETTERS], rows[DEAD_LETTERS], built[DEAD_LETTERS]) | "Dead" >> beam.Flatten()
        written.append(letters | "WriteDeadLetters" >> beam.ParDo(WriteLines(LETTERS, parts)))
    splits = groups | "Splits" >> beam.ptransform_fn(job.split_statistics)(spec)
    total = tallies | "Tallies" >> beam.Flatten() | "Total" >> beam.ptransform_fn(job.total)()
    return (
        pipeline
        | "Once" >> beam.Create([None])
        | "Summary"
        >> beam.Map(
            lambda _, splits, tally, files: job.summary(splits, tally, files, spec),
            beam.pvalue.AsDict(splits),
            beam.pvalue.AsSingleton(total),
            beam.pvalue.AsList(written | "Written" >> beam.Flatten()),
        )
    )


def _summary_path(staging: str) -> str:
    return join(staging, "summary", "summary.json")


def protect_dead_letters(directory: str) -> None:
    """Makes dead letters readable by their owner alone; on an object store its access rules say who may read."""
    if is_local(directory):
        for path in Path(directory, "dead_letters").iterdir():
            path.chmod(0o600)


def refused_path(output: str) -> str:
    """Where a job that fails leaves its dead letters and counts."""
    return f"{output}.refused"


def keep_refused(staging: str, output: str, tally: dict[str, int]) -> str:
    """Moves a failed job's dead letters beside its output, with the counts. Returns where they are."""
    path = refused_path(output)
    write_bytes(join(staging, "dead_letters", COUNTS), orjson.dumps(tally, option=COUNTS_FORMAT))
    protect_dead_letters(staging)
    publish_files(join(staging, "dead_letters"), path)
    if is_local(path):
        Path(path).chmod(PRIVATE)
    return path


def expire_dead_letters(directory: str, days: int) -> None:
    """Deletes a local dataset's dead letters that are older than `days`; object stores have lifecycle rules."""
    if not is_local(directory):
        return
    for path in Path(directory, "dead_letters").glob("*"):
        if time.time() - path.stat().st_mtime > days * 86_400:
            path.unlink()
            print(f"deleted {path}: older than dataset.dead_letter_days ({days})")


def describe(manifest: DatasetManifest, output: str, seconds: float) -> str:
    """The job's summary, for a person."""
    lines = []
    for kind, counts in manifest.events.items():
        if counts.read:
            fates = ", ".join(
                f"{name} {value}" for name, value in counts.model_dump().items() if value and name != "read"
            )
            lines.append(f"  {kind}: read {counts.read} = {fates}")
    for what, named in (("refused", manifest.refused), ("skipped", manifest.skipped)):
        if named:
            lines.append(f"  {what}: {', '.join(f'{name} {count}' for name, count in named.items())}")
    for split, counted in manifest.splits.items():
        positive = f"{counted.groups_with_label} with a positive label"
        lines.append(f"  {split}: {counted.groups} groups ({positive}), {counted.items} items")
    lines += [f"  warning: {warning}" for warning in manifest.warnings]
    items = sum(counted.items for counted in manifest.splits.values())
    return "\n".join([*lines, f"wrote {output}: {items} query-item pairs in {seconds:.1f} s"])


def argument_parser() -> argparse.ArgumentParser:
    """The command's own options; flex_template.json tells Dataflow of the same."""
    parser = argparse.ArgumentParser(
        prog="python -m beam_jobs.build_elwc",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", required=True, help="the task file")
    parser.add_argument("--input", required=True, nargs="+", help="paths or globs of logs; {date} is each day's")
    parser.add_argument("--products", nargs="+", default=[], help="paths or globs of product tables")
    parser.add_argument("--output", required=True, help="the dataset directory; {date} is --date, {locale} each locale")
    parser.add_argument("--date", help="the last day of the events to use, UTC, such as 2025-03-10")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    given, rest = argument_parser().parse_known_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    job.PROGRESS.setLevel(logging.INFO)
    options = pipeline_options(rest)
    inputs = read_inputs(given.config, given.input, given.products, given.date)
    output = given.output.replace(dates.PLACE, given.date) if given.date else given.output
    output = output.rstrip("/") or os.sep
    if ends_before_pipeline(options):
        leave_to_engine(inputs, output, options)
    else:
        build_datasets(inputs, output, options)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
