"""Compares two datasets feature by feature, or the training view of one dataset with its serving view.

Example:
  python -m beam_jobs.compare_datasets build/monday/dataset build/tuesday/dataset --output build/tuesday/drift
  python -m beam_jobs.compare_datasets build/tuesday/dataset

Exit codes: 0 no drift; 1 drift; 2 a wrong option, or an input that cannot be read.
Any option of Apache Beam may follow.
"""

from features.termination import exit_on_sigterm

if __name__ == "__main__":
    exit_on_sigterm()  # before the imports, which take seconds

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import orjson
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.drift.comparison import compare, feature_pairs, skew_findings
from beam_jobs.drift.feature_pairs import ComparisonSide
from beam_jobs.drift.group_sample import GROUP_SIZE, Sample, ValueCoder, may_show_values, sample_of
from beam_jobs.drift.page import render_page
from beam_jobs.drift.records import SIDES, RecordFile, RecordScan, read_record_file, scan_records
from beam_jobs.drift.report import report_of, terminal_table
from beam_jobs.drift.thresholds import ComparisonOptions, load_options
from beam_jobs.launch.beam_options import pipeline_options, runs_in_process
from beam_jobs.sinks.output_directory import check_output_directory, new_output_version, print_unlisted_files
from beam_jobs.sources.reading import check_readable, read_lines
from beam_jobs.storage.files import existing_manifest, join_path, make_directory, match_files
from features.elwc import View, decode_group
from features.errors import InputError, exit_code_of
from features.manifest import FILE_NAME, DatasetManifest, PublishedManifest, stage_key
from features.publication import Publication
from features.spec import Feature, FeatureSpec

# About the size of each side's random sample of groups. With so many groups the chance bound is far below any sensible
# threshold; so many numbers (a vector has many) fit in memory.
SAMPLED_GROUPS = 10_000
SAMPLED_NUMBERS = 8_000_000
_FREQUENT_QUERIES_FILE = "train/frequent_queries.jsonl.gz"
_PASS_FOLDER = "pass"  # below the scratch folder while the job runs: sampled records, query text included
_PRIVATE_MODE = 0o700
_PAGE_FILE = "comparison.html"


class ComparisonManifest(PublishedManifest):
    """Manifest of a comparison's directory."""

    kind: str = "comparison"
    drift: bool


class Compared(NamedTuple):
    """One side of a comparison: a view of a dataset and the features to compare."""

    side: str
    path: str
    view: View
    manifest: DatasetManifest
    features: tuple[Feature, ...]

    @property
    def groups(self) -> int:
        return sum(split.groups for split in self.manifest.splits.values())

    @property
    def items(self) -> int:
        return sum(split.items for split in self.manifest.splits.values())

    @property
    def sampled_share(self) -> float:
        numbers = sum(f.length * (self.items if f.level == "item" else self.groups) for f in self.features)
        return min(1.0, SAMPLED_GROUPS / self.groups, SAMPLED_NUMBERS / numbers)

    def parts(self) -> Iterator[RecordFile]:
        """Errors: InputError when a split's files are not there."""
        for split, counted in self.manifest.splits.items():
            if counted.groups:
                names = self.manifest.matching_files(f"{split}/{self.view}_elwc-*.tfrecord.gz")
                paths = [self.manifest.file_path(self.path, name) for name in names]
                for entry in match_files(paths, "records"):
                    yield RecordFile(self.side, self.view, entry.path, self.sampled_share)

    def described(self, sampled: int) -> dict[str, Any]:
        splits = {
            name: split.model_dump(include={"groups", "groups_with_label", "items"})
            for name, split in self.manifest.splits.items()
        }
        return {
            "dataset": self.path,
            "view": self.view,
            "groups": self.groups,
            "items": self.items,
            "sampled_groups": sampled,
            "splits": splits,
        }


def read_dataset_manifest(path: str) -> DatasetManifest:
    """Errors: InputError where there is no complete dataset."""
    manifest = existing_manifest(path, DatasetManifest)
    if manifest is None:
        raise InputError(f"{path} has no {FILE_NAME}, expected a complete dataset: run beam_jobs.build_elwc")
    if not any(split.groups for split in manifest.splits.values()):
        raise InputError(f"{path} has no query groups, expected at least one: build it from other logs")
    return manifest


def two_datasets(a: str, b: str) -> tuple[Compared, Compared]:
    """The training views, which hold all features, with the features that both have in the same form.

    Errors: InputError when they have none in common.
    """
    manifests = read_dataset_manifest(a), read_dataset_manifest(b)
    names = common_features(*(manifest.spec for manifest in manifests))
    if not names:
        raise InputError(f"{a} and {b} have no feature in common, expected datasets of one task")
    sides = [
        Compared(side, path, "training", manifest, tuple(manifest.spec[name] for name in names))
        for side, path, manifest in zip(SIDES, (a, b), manifests, strict=True)
    ]
    return sides[0], sides[1]


def common_features(a: FeatureSpec, b: FeatureSpec) -> list[str]:
    """Names of features with the same type, level and length, in the order of a."""
    return [f.name for f in a if f.name in b and _form(f) == _form(b[f.name])]


def _form(feature: Feature) -> tuple[str, str, int]:
    return feature.type, feature.level, feature.length


def two_views(path: str) -> tuple[Compared, Compared]:
    """A dataset's training and serving view, and the regular features, which both hold. Errors: InputError."""
    manifest = read_dataset_manifest(path)
    regular = manifest.spec.regular
    return Compared("a", path, "training", manifest, regular), Compared("b", path, "serving", manifest, regular)


def run_comparison(
    sides: tuple[Compared, Compared], options: ComparisonOptions, staging: str, beam_options: PipelineOptions
) -> dict[str, Any]:
    """The report, as JSON. staging: a directory for what the pass finds. Errors: InputError."""
    a, b = sides
    views = a.view != b.view
    make_directory(join_path(staging, _PASS_FOLDER), _PRIVATE_MODE)
    found = scan_records(
        [part for side in sides for part in side.parts()],
        join_path(staging, _PASS_FOLDER),
        beam_options,
        a.manifest.spec if views else None,
    )
    for side in sides:
        check_group_count(side, found.groups[side.side])
    known = {code: text for side in sides for code, text in (frequent_query_codes(side) | listed_values(side)).items()}
    samples = [load_sample(side, found, known) for side in sides]
    # a manifest counts both views together, so only a sample has the figures of one view
    pairs = feature_pairs(
        *(ComparisonSide(x, None if views else side.manifest) for x, side in zip(samples, sides, strict=True))
    )
    findings = compare(pairs, options) + (skew_findings(found.skew, a.groups) if views else [])
    described = {side.side: side.described(sample.groups) for side, sample in zip(sides, samples, strict=True)}
    return report_of(described, a.manifest.spec.first_difference(b.manifest.spec), findings, pairs, options)


def check_group_count(side: Compared, found: int) -> None:
    """Errors: InputError when the files hold another number of groups than the manifest says."""
    if found != side.groups:
        raise InputError(
            f"the {side.view} view of {side.path} holds {found:,} groups, but its manifest says {side.groups:,}: files "
            "were removed or replaced. Build the dataset again"
        )


def load_sample(side: Compared, found: RecordScan, known: Mapping[int, str]) -> Sample:
    """Errors: InputError when a record is no group of the dataset's features, or nothing was sampled."""
    spec = side.manifest.spec
    records = (record for entry in found.sample[side.side] for record in read_record_file(entry.path))
    try:
        sample = sample_of((decode_group(record, spec) for record in records), side.features, side.groups, known)
    except (ValueError, KeyError) as error:
        raise InputError(
            f"{side.path} holds a record that is not a query group of its features: {error}; build it again"
        ) from None
    if not sample.groups:
        raise InputError(f"{side.path} has too few groups to compare: give a larger dataset")
    return sample


def listed_values(side: Compared) -> dict[int, str]:
    """Code -> value, of the categorical values that the manifest lists, since enough distinct users saw them."""
    return {
        ValueCoder(feature).code(value): value
        for feature in side.features
        if may_show_values(feature)
        for split in side.manifest.splits.values()
        for value in (split.features[feature.name].values or {})
    }


def frequent_query_codes(side: Compared) -> dict[int, str]:
    """Code -> query, of the queries that enough distinct users made: the only text that a report may show."""
    query = next((f for f in side.features if f.name == "query" and f.role != "id" and not f.is_numeric), None)
    if query is None or _FREQUENT_QUERIES_FILE not in side.manifest.files:
        return {}
    path = side.manifest.file_path(side.path, _FREQUENT_QUERIES_FILE)
    check_readable([path], "frequent queries")
    coder = ValueCoder(query)
    return {coder.code(text): text for text in (orjson.loads(line)["query"] for line in read_lines(path))}


@contextmanager
def workspace(output: str | None, beam_options: PipelineOptions) -> Iterator[tuple[str, Publication | None]]:
    """Yields a working directory and, if `output` is given, its new version.

    Errors: InputError when `output` holds other files, or when it is None and the workers are on other machines.
    """
    if output is not None:
        check_output_directory(output)
        existing_manifest(output, ComparisonManifest)  # refuses to replace a directory of another kind
        with new_output_version(output) as version:
            yield version.scratch, version
    elif not runs_in_process(beam_options):
        raise InputError(
            "--output is not set, but the workers of this runner need a directory that they can write: set it"
        )
    else:
        with tempfile.TemporaryDirectory() as scratch:
            yield scratch, None


def write_drift_report(report: dict[str, Any], key: str, version: Publication) -> str:
    """Publishes a comparison. Returns the path of the page to open."""
    files = {
        "comparison.json": version.write("comparison.json", orjson.dumps(report, option=orjson.OPT_INDENT_2)),
        _PAGE_FILE: version.write(_PAGE_FILE, render_page(report).encode()),
    }
    manifest = ComparisonManifest(stage_key=key, options=report["options"], drift=report["drift"])
    print_unlisted_files(version.directory, version.publish(manifest, files))
    return version.path(_PAGE_FILE)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m beam_jobs.compare_datasets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("datasets", nargs="+", metavar="DATASET", help="A and B, or one to compare its two views")
    parser.add_argument("--config", help="YAML file of thresholds; see docs/compare.md")
    parser.add_argument("--output", help="directory to write: comparison.json and comparison.html")
    given, rest = parser.parse_known_args(arguments)
    if len(given.datasets) > 2:
        raise InputError(f"{len(given.datasets)} datasets given ({', '.join(given.datasets)}), expected one or two")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    beam_options = pipeline_options(rest)
    paths = [path.rstrip("/") or os.sep for path in given.datasets]
    sides = two_datasets(*paths) if len(paths) == 2 else two_views(*paths)
    options = load_options(given.config, [*(feature.name for feature in sides[0].features), GROUP_SIZE.name])
    with workspace(given.output and given.output.rstrip("/"), beam_options) as (scratch, version):
        report = run_comparison(sides, options, scratch, beam_options)
        if version is not None:
            key = stage_key(datasets=[side.manifest.stage_key for side in sides], options=options.model_dump())
            written = write_drift_report(report, key, version)
    print(terminal_table(report))
    if version is not None:
        print(f"wrote {written}")
    if report["drift"]:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
