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

from features.termination import exit_on_sigterm

if __name__ == "__main__":
    exit_on_sigterm()  # before the imports, which take seconds

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import apache_beam as beam
import orjson
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.launch import locales
from beam_jobs.launch.beam_options import ends_before_pipeline, local_workers, pipeline_options
from beam_jobs.launch.runner import running_pipeline
from beam_jobs.retention import expire_dead_letters
from beam_jobs.sinks.dataset_manifest import make_dataset_manifest
from beam_jobs.sinks.output_directory import (
    check_output_directory,
    finish_killed_output,
    new_output_version,
    print_unlisted_files,
)
from beam_jobs.sinks.publishing import PublishDataset
from beam_jobs.sinks.refused_dataset import check_refused_directory, remove_refused, save_refused
from beam_jobs.sinks.shard_files import (
    PARTS_FOLDER,
    PRIVATE_MODE,
    WrittenFile,
    place_files,
)
from beam_jobs.sources import dates
from beam_jobs.sources.inputs import DatasetInputs, read_dataset_inputs
from beam_jobs.sources.log_readers import READERS
from beam_jobs.sources.reading import PROGRESS
from beam_jobs.storage.beam_store import beam_store_for
from beam_jobs.storage.files import existing_manifest, join_path, make_directory, read_bytes, write_bytes
from beam_jobs.transforms.dataset_pipeline import declare_pipeline
from features.errors import InputError, exit_code_of
from features.local_store import is_local
from features.manifest import DatasetManifest
from features.publication import Publication, finish_killed_runs


def build_datasets(inputs: DatasetInputs, output: str, options: PipelineOptions) -> None:
    """Builds the dataset; if `output` has {locale}, one dataset per locale of the logs, in sequence.

    Errors: InputError that lists all datasets that failed; the others are complete.
    """
    datasets = {output: inputs}
    if locales.LOCALE_PLACEHOLDER in output:
        if inputs.options.locale:
            raise InputError(
                f"--output {output} is of each locale, and dataset.locale of {inputs.options.locale!r} alone: leave "
                "one of them out"
            )
        span_ms = inputs.days.span_ms if inputs.days else None
        found = locales.find_locales(READERS[inputs.options.reader], inputs.logs, span_ms, output, options)
        datasets = {output.replace(locales.LOCALE_PLACEHOLDER, name): inputs.for_locale(name) for name in found}
    faults = []
    for path, of_dataset in datasets.items():
        started = time.monotonic()
        try:
            manifest = build_dataset(of_dataset, path, options)
        except InputError as error:
            faults.append(str(error))
        else:
            seconds = time.monotonic() - started
            print(f"up to date: {path}" if manifest is None else describe_build(manifest, path, seconds))
    if faults:
        raise InputError("; ".join(faults))


def build_dataset(inputs: DatasetInputs, output: str, options: PipelineOptions) -> DatasetManifest | None:
    """Builds the dataset directory. Returns its manifest, or None when it is up to date already.

    Errors: InputError; whatever it is, a former dataset stays as it was.
    """
    check_output_directory(output)
    check_refused_directory(output)
    former = existing_manifest(output, DatasetManifest)
    if former is not None and former.stage_key == inputs.key:
        finish_killed_output(output)
        expire_dead_letters(output)
        return None
    print(f"building {output} from {len(inputs.logs)} log files and {len(inputs.products)} product files", flush=True)
    with new_output_version(output) as version:
        run_pipeline(inputs, output, version.scratch, options)
        found = orjson.loads(read_bytes(_summary_path(version.scratch)))
        files = place_files(
            [WrittenFile(*file) for file in found["written"]], version, inputs.options.dead_letter_days > 0
        )
        protect_dead_letters(version)
        try:
            manifest = make_dataset_manifest(found, inputs)
        except InputError as error:
            refused = save_refused(version, files, inputs, found["tally"])
            raise InputError(f"{error}. Nothing was written but {refused}, which says what was refused") from None
        manifest = version.publish(manifest, files)
        print_unlisted_files(output, manifest)
        remove_refused(output)
    return manifest


def launch_detached(inputs: DatasetInputs, output: str, options: PipelineOptions) -> None:
    """Launches the job, publishing included, on an engine that runs it after this command has ended.

    Errors: InputError when `output` is up to date or not ours, or has {locale}.
    """
    check_output_directory(output)
    if locales.LOCALE_PLACEHOLDER in output:
        raise InputError(
            f"--output {output}: {locales.LOCALE_PLACEHOLDER} needs two pipelines, and a template is one: leave it out"
        )
    former = existing_manifest(output, DatasetManifest)
    if former is not None and former.stage_key == inputs.key:
        raise InputError(f"{output} is up to date: there is nothing to launch")
    finish_killed_runs(beam_store_for(output), output, alone=False)
    version = Publication(beam_store_for(output), output)
    version.begin()
    with running_pipeline(options, output) as pipeline:
        found = declare_pipeline(pipeline, inputs, version.scratch, inputs.shards(local_workers(options)))
        _ = found | "WriteDataset" >> PublishDataset(inputs, output, version.run)


def run_pipeline(inputs: DatasetInputs, output: str, staging: str, options: PipelineOptions) -> None:
    """Errors: as `running_pipeline`."""
    make_directory(join_path(staging, "summary"))
    make_directory(join_path(staging, PARTS_FOLDER), PRIVATE_MODE)
    with running_pipeline(options, output) as pipeline:
        found = declare_pipeline(pipeline, inputs, staging, inputs.shards(local_workers(options)))
        _ = found | "WriteSummary" >> beam.Map(lambda summary: write_bytes(_summary_path(staging), summary))


def _summary_path(staging: str) -> str:
    return join_path(staging, "summary", "summary.json")


def protect_dead_letters(version: Publication) -> None:
    """Restricts local dead letters to their owner; an object store uses its own access rules."""
    if is_local(version.folder):
        for path in Path(version.path("dead_letters")).glob("*"):
            path.chmod(0o600)


def describe_build(manifest: DatasetManifest, output: str, seconds: float) -> str:
    """Formats the job's summary for the terminal."""
    lines = []
    for kind, counts in manifest.events.items():
        if counts.read:
            fates = ", ".join(
                f"{name} {value}" for name, value in counts.model_dump().items() if value and name != "read"
            )
            lines.append(f"  {kind}: read {counts.read} = {fates}")
    for what, named in (("refused", manifest.refused), ("skipped", manifest.skipped), ("ignored", manifest.ignored)):
        if named:
            lines.append(f"  {what}: {', '.join(f'{name} {count}' for name, count in named.items())}")
    for split, counted in manifest.splits.items():
        positive = f"{counted.groups_with_label} with a positive label"
        lines.append(f"  {split}: {counted.groups} groups ({positive}), {counted.items} items")
    lines += [f"  warning: {warning}" for warning in manifest.warnings]
    items = sum(counted.items for counted in manifest.splits.values())
    return "\n".join([*lines, f"wrote {output}: {items} query-item pairs in {seconds:.1f} s"])


def build_elwc_parser() -> argparse.ArgumentParser:
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
    given, rest = build_elwc_parser().parse_known_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    PROGRESS.setLevel(logging.INFO)
    options = pipeline_options(rest)
    inputs = read_dataset_inputs(given.config, given.input, given.products, given.date)
    output = given.output.replace(dates.DATE_PLACEHOLDER, given.date) if given.date else given.output
    output = output.rstrip("/") or os.sep
    if ends_before_pipeline(options):
        launch_detached(inputs, output, options)
    else:
        build_datasets(inputs, output, options)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
