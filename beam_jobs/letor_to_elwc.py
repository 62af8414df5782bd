"""Converts LETOR data sets (SVMlight files) to a dataset of query groups, by the protocol of Yang et al. 2022, 4.1.

Example:
  python -m beam_jobs.letor_to_elwc --config configs/letor.yaml \\
    --train MQ2008/Fold1/train.txt --valid MQ2008/Fold1/vali.txt --test MQ2008/Fold1/test.txt \\
    --output build/letor/dataset
"""

from features.termination import exit_on_sigterm

if __name__ == "__main__":
    exit_on_sigterm()  # before the imports, which take seconds

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from apache_beam.io.filesystem import FileMetadata

from beam_jobs.joins.dataset_options import seed_of
from beam_jobs.joins.query_groups import DATASET_SPLITS
from beam_jobs.launch.beam_options import quieten_beam
from beam_jobs.letor.dataset import convert_all_shards, correlate_all_parts, left_out_counts, letor_shards
from beam_jobs.letor.privilege import Correlations, FeatureSplit, most_correlated
from beam_jobs.letor.protocol import LEFT_OUT_REASONS, LetorOptions, LetorProtocol
from beam_jobs.letor.shards import ConversionResult
from beam_jobs.sinks.output_directory import (
    check_output_directory,
    finish_killed_output,
    new_output_version,
    print_unlisted_files,
)
from beam_jobs.storage.files import existing_manifest, files_key, match_files
from beam_jobs.transforms.label_lookalikes import MAX_CORRELATION
from features.errors import InputError, exit_code_of
from features.manifest import DatasetManifest, EventCounts, stage_key
from features.spec import load_spec
from features.task import load_task, parse_section, task_name

_JOB_VERSION = 2  # increment when the same input gives another dataset
SMALL_INPUT_BYTES = 16 * 2**20  # smaller inputs are converted in one process


class LetorInputs(NamedTuple):
    """The job's validated inputs."""

    task: str  # its name
    protocol: LetorProtocol
    files: dict[str, list[FileMetadata]]  # by split
    key: str  # stage_key of all that decides the dataset


def read_letor_inputs(config: str, patterns: Mapping[str, Sequence[str]]) -> LetorInputs:
    """patterns: paths or globs by split. Errors: InputError."""
    task = load_task(config)
    options, seed = parse_section(task, "letor", LetorOptions), seed_of(task)
    protocol = LetorProtocol(load_spec(task), options, seed)
    files = {split: match_files(patterns[split], f"--{split}") for split in DATASET_SPLITS}
    key = stage_key(
        job=_JOB_VERSION,
        task=task_name(task),
        features=protocol.spec.to_json(),
        options=options.model_dump(),
        seed=seed,
        files={split: files_key(entries) for split, entries in files.items()},
    )
    return LetorInputs(task_name(task), protocol, files, key)


def build_letor_dataset(inputs: LetorInputs, output: str, workers: int | None) -> DatasetManifest | None:
    """Builds the dataset directory. Returns its manifest, or None when it is up to date already.

    workers: processes, None for one a core; the dataset does not depend on them.
    Errors: InputError; whatever it is, a former dataset stays as it was.
    """
    check_output_directory(output)
    former = existing_manifest(output, DatasetManifest)
    if former is not None and former.stage_key == inputs.key:
        finish_killed_output(output)
        return None
    size = sum(entry.size_in_bytes for entries in inputs.files.values() for entry in entries)
    print(f"building {output} from {sum(map(len, inputs.files.values()))} files, {size / 1e6:,.1f} MB", flush=True)
    workers = workers or (1 if size < SMALL_INPUT_BYTES else os.cpu_count() or 1)
    shards = letor_shards(inputs.files)
    with new_output_version(output) as version:
        correlations = correlate_all_parts(inputs.protocol, shards, workers)
        chosen = most_correlated(correlations.to_array(), inputs.protocol.privileged)
        found = convert_all_shards(inputs.protocol, chosen, version.folder, shards, workers)
        check_no_absent_features(inputs.protocol, absent_features(found))
        manifest = version.publish(letor_manifest(inputs, correlations, chosen, found))
        print_unlisted_files(output, manifest)
    return manifest


def letor_manifest(
    inputs: LetorInputs, correlations: Correlations, chosen: FeatureSplit, found: Mapping[str, ConversionResult]
) -> DatasetManifest:
    """The dataset's manifest. Errors: RuntimeError when the counts do not reconcile."""
    protocol = inputs.protocol
    splits = {split: total.tally.to_statistics() for split, total in found.items()}
    return DatasetManifest(
        stage_key=inputs.key,
        task=inputs.task,
        options={
            **protocol.options.model_dump(),
            "seed": protocol.seed,
            "files": {split: [entry.path for entry in entries] for split, entries in inputs.files.items()},
            "left_out": {split: left_out_counts(total) for split, total in found.items()},
            **chosen._asdict(),  # the files' feature ids, in the order of the vectors' elements
            "correlations": {str(feature): r for feature, r in enumerate(correlations.to_array().tolist(), start=1)},
        },
        features=protocol.spec.to_json(),
        fingerprint=protocol.spec.fingerprint,
        splits=splits,
        events={kind: events_of(kind, found.values()) for kind in ("group", "document")},
        warnings=tuple(warnings_of(correlations, chosen, absent_features(found))),
    )


def events_of(kind: str, found: Iterable[ConversionResult]) -> EventCounts:
    """Counts of groups or documents by fate; those that the protocol leaves out are unmatched.

    Errors: RuntimeError when the counts do not reconcile.
    """
    counted = Counter[str]()
    for total in found:
        counted["read"] += total.counts[f"read/{kind}"]
        counted["used"] += total.tally.groups if kind == "group" else total.tally.items
        counted["unmatched"] += sum(total.counts[f"{reason}/{kind}"] for reason in LEFT_OUT_REASONS)
    counts = EventCounts(**counted)
    if not counts.reconciles:
        raise RuntimeError(f"{kind}s do not reconcile: {counts!r}; this is a fault of the job, not of the files")
    return counts


def absent_features(found: Mapping[str, ConversionResult]) -> list[int]:
    """Ids of the features that no line of any split names."""
    named = np.logical_or.reduce([total.named for total in found.values() if total.named is not None])
    return [int(place) + 1 for place in np.flatnonzero(~named)]


def check_no_absent_features(protocol: LetorProtocol, absent: Sequence[int]) -> None:
    """Errors: InputError when the spec has features that the files do not, unless letor.absent_features says zero."""
    if absent and protocol.options.absent_features == "refuse":
        regular = protocol.spec["regular"].length
        raise InputError(
            f"no line of the files names feature {abbreviated_list(list(map(str, absent)))}, expected features 1 to "
            f"{protocol.features}: the sum of the lengths of the task's features regular ({regular}) and privileged "
            f"({protocol.privileged}). Correct the lengths; if the files leave such features out on purpose, set "
            "letor.absent_features to zero"
        )


def warnings_of(correlations: Correlations, chosen: FeatureSplit, absent: Sequence[int]) -> Iterator[str]:
    """Yields warnings, one sentence each."""
    strength = correlations.to_array()
    for feature in chosen.regular:
        if abs(strength[feature - 1]) > MAX_CORRELATION:
            yield (
                f"regular feature {feature} nearly equals the label (correlation {strength[feature - 1]:.3f}): raise "
                "features.privileged.length to make it privileged"
            )
    if absent:
        ids = abbreviated_list(list(map(str, absent)))
        yield f"no line of the files names {len(absent)} of the features, which are 0: {ids}"
    constant = [
        str(feature)
        for feature, squares in enumerate(correlations.squares[:-1], start=1)
        if not squares and feature not in absent
    ]
    if constant:
        ids = abbreviated_list(constant)
        yield f"{len(constant)} of the features are constant in train and carry no information: {ids}"


def describe_letor_dataset(manifest: DatasetManifest, output: str, seconds: float) -> str:
    """Formats the job's summary for the terminal."""
    lines = []
    for split, counted in manifest.splits.items():
        dropped = ", ".join(f"{reason} {count}" for reason, count in manifest.options["left_out"][split].items())
        positive = f"{counted.groups_with_label} with a positive label"
        lines.append(f"  {split}: {counted.groups} groups ({positive}), {counted.items} documents; left out: {dropped}")
    correlations, tau = manifest.options["correlations"], manifest.options["privileged_tau"]
    named = [f"{feature} ({correlations[str(feature)]:+.3f})" for feature in manifest.options["privileged"]]
    drawn = [] if tau is None else [f"one, drawn like the label, with tau {tau:g}"]
    lines.append(f"  privileged features (correlation with the label): {abbreviated_list(named or drawn) or 'none'}")
    lines += [f"  warning: {warning}" for warning in manifest.warnings]
    items = sum(counted.items for counted in manifest.splits.values())
    return "\n".join([*lines, f"wrote {output}: {items} query-document pairs in {seconds:.1f} s"])


def abbreviated_list(names: Sequence[str], most: int = 10) -> str:
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m beam_jobs.letor_to_elwc",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", required=True, help="task file")
    for split in DATASET_SPLITS:
        parser.add_argument(f"--{split}", required=True, nargs="+", help="paths or globs of files (plain, .gz or .xz)")
    parser.add_argument("--output", required=True, help="dataset directory to write")
    parser.add_argument(
        "--workers", type=int, help="processes (default: one a core); the dataset does not depend on it"
    )
    given = parser.parse_args(arguments)
    if given.workers is not None and given.workers < 1:
        raise InputError(f"--workers is {given.workers}, expected 1 or more processes")
    quieten_beam()
    started = time.monotonic()
    output = given.output.rstrip("/") or os.sep
    inputs = read_letor_inputs(given.config, {split: vars(given)[split] for split in DATASET_SPLITS})
    manifest = build_letor_dataset(inputs, output, given.workers)
    print(
        f"up to date: {output}"
        if manifest is None
        else describe_letor_dataset(manifest, output, time.monotonic() - started)
    )


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
