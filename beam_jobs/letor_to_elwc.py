"""LETOR data sets (SVMlight files) -> a dataset of query groups, by the protocol of Yang et al. 2022, section 4.1.

Example:
  python -m beam_jobs.letor_to_elwc --config configs/letor.yaml \\
    --train MQ2008/Fold1/train.txt --valid MQ2008/Fold1/vali.txt --test MQ2008/Fold1/test.txt \\
    --output build/letor/dataset
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from apache_beam.io.filesystem import FileMetadata

from beam_jobs.label_lookalikes import HIGHEST_CORRELATION
from beam_jobs.letor_dataset import convert_all, correlate_all, left_out, shards_of
from beam_jobs.letor_privilege import Correlations, FeatureSplit, most_correlated
from beam_jobs.letor_protocol import LEFT_OUT, LetorOptions, LetorProtocol
from beam_jobs.letor_shards import Converted
from beam_jobs.options import seed_of
from beam_jobs.pipeline_options import quieten_beam
from beam_jobs.query_groups import SPLITS
from beam_jobs.storage import building, existing_manifest, files_key, join, match_files, refuse_foreign, write_bytes
from features.errors import InputError, exit_code_of
from features.manifest import FILE_NAME, DatasetManifest, EventCounts, stage_key
from features.spec import load_spec
from features.task import load_task, parse_section

JOB_VERSION = 1  # raised when the same input gives another dataset
SMALL_INPUT_BYTES = 16 * 2**20  # less is converted sooner than further processes start


class Inputs(NamedTuple):
    """What the job reads, checked."""

    protocol: LetorProtocol
    files: dict[str, list[FileMetadata]]  # by split
    key: str  # stage_key of all that decides the dataset


def read_inputs(config: str, patterns: Mapping[str, Sequence[str]]) -> Inputs:
    """patterns: paths or globs by split. Errors: InputError."""
    task = load_task(config)
    options, seed = parse_section(task, "letor", LetorOptions), seed_of(task)
    protocol = LetorProtocol(load_spec(task), options, seed)
    files = {split: match_files(patterns[split], f"--{split}") for split in SPLITS}
    key = stage_key(
        job=JOB_VERSION,
        features=protocol.spec.to_json(),
        options=options.model_dump(),
        seed=seed,
        files={split: files_key(entries) for split, entries in files.items()},
    )
    return Inputs(protocol, files, key)


def build_dataset(inputs: Inputs, output: str, workers: int | None) -> DatasetManifest | None:
    """Builds the dataset directory. Returns its manifest, or None when it is up to date already.

    workers: processes, None for one a core; the dataset does not depend on them.
    Errors: InputError; whatever it is, a former dataset stays as it was.
    """
    refuse_foreign(output)
    former = existing_manifest(output, DatasetManifest)
    if former is not None and former.stage_key == inputs.key:
        return None
    size = sum(entry.size_in_bytes for entries in inputs.files.values() for entry in entries)
    print(f"building {output} from {sum(map(len, inputs.files.values()))} files, {size / 1e6:,.1f} MB", flush=True)
    workers = workers or (1 if size < SMALL_INPUT_BYTES else os.cpu_count() or 1)
    shards = shards_of(inputs.files)
    with building(output) as staging:
        correlations = correlate_all(inputs.protocol, shards, workers)
        chosen = most_correlated(correlations.to_array(), inputs.protocol.privileged)
        found = convert_all(inputs.protocol, chosen, staging, shards, workers)
        manifest = manifest_of(inputs, correlations, chosen, found)
        write_bytes(join(staging, FILE_NAME), manifest.to_bytes())
    return manifest


def manifest_of(
    inputs: Inputs, correlations: Correlations, chosen: FeatureSplit, found: Mapping[str, Converted]
) -> DatasetManifest:
    """The dataset's manifest. Errors: RuntimeError when the counts do not reconcile."""
    protocol = inputs.protocol
    splits = {split: total.tally.to_statistics() for split, total in found.items()}
    return DatasetManifest(
        stage_key=inputs.key,
        options={
            **protocol.options.model_dump(),
            "seed": protocol.seed,
            "files": {split: [entry.path for entry in entries] for split, entries in inputs.files.items()},
            "left_out": {split: left_out(total) for split, total in found.items()},
            **chosen._asdict(),  # the files' feature ids, in the order of the vectors' elements
            "correlations": {str(feature): r for feature, r in enumerate(correlations.to_array().tolist(), start=1)},
        },
        features=protocol.spec.to_json(),
        fingerprint=protocol.spec.fingerprint,
        splits=splits,
        events={kind: events_of(kind, found.values()) for kind in ("group", "document")},
        warnings=tuple(warnings_of(correlations, chosen)),
    )


def events_of(kind: str, found: Iterable[Converted]) -> EventCounts:
    """What became of the groups or documents; those that the protocol leaves out are unmatched.

    Errors: RuntimeError when the counts do not reconcile.
    """
    counted = Counter[str]()
    for total in found:
        counted["read"] += total.counts[f"read/{kind}"]
        counted["used"] += total.tally.groups if kind == "group" else total.tally.items
        counted["unmatched"] += sum(total.counts[f"{reason}/{kind}"] for reason in LEFT_OUT)
    counts = EventCounts(**counted)
    if not counts.reconciles:
        raise RuntimeError(f"{kind}s do not reconcile: {counts!r}; this is a fault of the job, not of the files")
    return counts


def warnings_of(correlations: Correlations, chosen: FeatureSplit) -> Iterator[str]:
    """What a person should look at, a sentence each."""
    strength = correlations.to_array()
    for feature in chosen.regular:
        if abs(strength[feature - 1]) > HIGHEST_CORRELATION:
            yield (
                f"regular feature {feature} nearly equals the label (correlation {strength[feature - 1]:.3f}): raise "
                "features.privileged.length to make it privileged"
            )
    constant = [str(feature) for feature, squares in enumerate(correlations.squares[:-1], start=1) if not squares]
    if constant:
        yield f"{len(constant)} of the features are constant in train, so they say nothing: {listed(constant)}"


def describe(manifest: DatasetManifest, output: str, seconds: float) -> str:
    """The job's summary, for a person."""
    lines = []
    for split, counted in manifest.splits.items():
        dropped = ", ".join(f"{reason} {count}" for reason, count in manifest.options["left_out"][split].items())
        positive = f"{counted.groups_with_label} with a positive label"
        lines.append(f"  {split}: {counted.groups} groups ({positive}), {counted.items} documents; left out: {dropped}")
    correlations, tau = manifest.options["correlations"], manifest.options["privileged_tau"]
    named = [f"{feature} ({correlations[str(feature)]:+.3f})" for feature in manifest.options["privileged"]]
    drawn = [] if tau is None else [f"one, drawn as the label is with tau {tau:g}"]
    lines.append(f"  privileged features (correlation with the label): {listed(named or drawn) or 'none'}")
    lines += [f"  warning: {warning}" for warning in manifest.warnings]
    items = sum(counted.items for counted in manifest.splits.values())
    return "\n".join([*lines, f"wrote {output}: {items} query-document pairs in {seconds:.1f} s"])


def listed(names: Sequence[str], most: int = 10) -> str:
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m beam_jobs.letor_to_elwc",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", required=True, help="the task file")
    for split in SPLITS:
        parser.add_argument(f"--{split}", required=True, nargs="+", help="paths or globs of files (plain, .gz or .xz)")
    parser.add_argument("--output", required=True, help="the dataset directory to write")
    parser.add_argument(
        "--workers", type=int, help="processes (default: one a core); the dataset does not depend on it"
    )
    given = parser.parse_args(arguments)
    if given.workers is not None and given.workers < 1:
        raise InputError(f"--workers is {given.workers}, expected 1 or more processes")
    quieten_beam()
    started = time.monotonic()
    output = given.output.rstrip("/") or os.sep
    inputs = read_inputs(given.config, {split: vars(given)[split] for split in SPLITS})
    manifest = build_dataset(inputs, output, given.workers)
    print(f"up to date: {output}" if manifest is None else describe(manifest, output, time.monotonic() - started))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
