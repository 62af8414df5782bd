"""Has the data drifted? Two datasets, feature by feature; or one dataset's training view and its serving view.

Example:
  python -m beam_jobs.compare_datasets build/monday/dataset build/tuesday/dataset --output build/tuesday/drift
  python -m beam_jobs.compare_datasets build/tuesday/dataset

Exit code: 0 without drift, 1 with drift, 2 when something cannot be read. Any option of Apache Beam may follow.
"""

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import orjson
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.comparison_options import ComparisonOptions, load_options
from beam_jobs.comparison_page import page
from beam_jobs.comparison_report import report_of, table
from beam_jobs.dataset_comparison import compare, pairs_of, skew_findings
from beam_jobs.dataset_records import SIDES, Found, Part, read_all, records_of
from beam_jobs.feature_pairs import Side
from beam_jobs.group_sample import ITEMS, Coder, Sample, sample_of
from beam_jobs.pipeline_options import pipeline_options, runs_in_process
from beam_jobs.reading import check_readable, read_lines
from beam_jobs.storage import (
    building,
    existing_manifest,
    join,
    make_directory,
    match_files,
    refuse_foreign,
    remove_tree,
    write_bytes,
)
from features.elwc import View, decode_group
from features.errors import InputError, exit_code_of
from features.manifest import FILE_NAME, DatasetManifest, Manifest, stage_key
from features.spec import Feature, FeatureSpec

# Of each side, about: what lies beyond is left out at random, whole groups at a time. So many groups make chance reach
# far less than any sensible threshold; so many numbers (a vector has many) fit in memory.
SAMPLED_GROUPS = 10_000
SAMPLED_NUMBERS = 8_000_000
FREQUENT_QUERIES = "frequent_queries.jsonl.gz"
PASS = "pass"  # below the output while the job runs: what the pass over the records finds, query text included
PRIVATE = 0o700


class ComparisonManifest(Manifest):
    """What a comparison's directory says of itself."""

    kind: str = "comparison"
    drift: bool


class Compared(NamedTuple):
    """One side: a view of a dataset, and the features of it to compare."""

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

    def parts(self) -> Iterator[Part]:
        """Errors: InputError when a split's files are not there."""
        for split, counted in self.manifest.splits.items():
            if counted.groups:
                pattern = join(self.path, split, f"{self.view}_elwc-*.tfrecord.gz")
                for entry in match_files([pattern], "records"):
                    yield Part(self.side, self.view, entry.path, self.sampled_share)

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


def read_manifest(path: str) -> DatasetManifest:
    """Errors: InputError where there is no complete dataset."""
    manifest = existing_manifest(path, DatasetManifest)
    if manifest is None:
        raise InputError(f"{path} has no {FILE_NAME}, expected a complete dataset: run beam_jobs.build_elwc")
    if not any(split.groups for split in manifest.splits.values()):
        raise InputError(f"{path} has no query group, expected some to compare: build it from logs that have")
    return manifest


def two_datasets(a: str, b: str) -> tuple[Compared, Compared]:
    """Their training views, which hold all features; those alone are compared that both have, in the same form.

    Errors: InputError when there are none.
    """
    manifests = read_manifest(a), read_manifest(b)
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
    manifest = read_manifest(path)
    regular = manifest.spec.regular
    return Compared("a", path, "training", manifest, regular), Compared("b", path, "serving", manifest, regular)


def run_comparison(
    sides: tuple[Compared, Compared], options: ComparisonOptions, staging: str, beam_options: PipelineOptions
) -> dict[str, Any]:
    """The report, as JSON. staging: a directory for what the pass finds. Errors: InputError."""
    a, b = sides
    views = a.view != b.view
    make_directory(join(staging, PASS), PRIVATE)
    found = read_all(
        [part for side in sides for part in side.parts()],
        join(staging, PASS),
        beam_options,
        a.manifest.spec if views else None,
    )
    for side in sides:
        refuse_other_count(side, found.groups[side.side])
    known = {code: query for side in sides for code, query in frequent_queries(side).items()}
    samples = [load_sample(side, found, known) for side in sides]
    remove_tree(join(staging, PASS))
    # a manifest counts the values that went into both views, so of a view only the sample can tell
    pairs = pairs_of(*(Side(x, None if views else side.manifest) for x, side in zip(samples, sides, strict=True)))
    findings = compare(pairs, options) + (skew_findings(found.skew, a.groups) if views else [])
    described = {side.side: side.described(sample.groups) for side, sample in zip(sides, samples, strict=True)}
    return report_of(described, a.manifest.spec.first_difference(b.manifest.spec), findings, pairs, options)


def refuse_other_count(side: Compared, found: int) -> None:
    """Errors: InputError when the files hold another number of groups than the manifest says."""
    if found != side.groups:
        raise InputError(
            f"the {side.view} view of {side.path} holds {found:,} groups, but its manifest says {side.groups:,}: files "
            "are missing or foreign. Build the dataset again"
        )


def load_sample(side: Compared, found: Found, known: Mapping[int, str]) -> Sample:
    """Errors: InputError when a record is no group of the dataset's features, or nothing was sampled."""
    spec = side.manifest.spec
    records = (record for entry in found.sample[side.side] for record in records_of(entry.path))
    try:
        sample = sample_of((decode_group(record, spec) for record in records), side.features, side.groups, known)
    except (ValueError, KeyError) as error:
        raise InputError(f"{side.path} holds a record that is no group of its: {error}; build it again") from None
    if not sample.groups:
        raise InputError(f"{side.path} has too few groups to compare: give a larger dataset")
    return sample


def frequent_queries(side: Compared) -> dict[int, str]:
    """Code -> query, of the queries that enough distinct users made: the only text that a report may show."""
    path = join(side.path, "train", FREQUENT_QUERIES)
    query = next((f for f in side.features if f.name == "query" and f.role != "id" and not f.is_numeric), None)
    if query is None or not FileSystems.exists(path):
        return {}
    check_readable([path], "frequent queries")
    coder = Coder(query)
    return {coder.code(text): text for text in (orjson.loads(line)["query"] for line in read_lines(path))}


@contextmanager
def workspace(output: str | None, beam_options: PipelineOptions) -> Iterator[str]:
    """A directory to work in, which becomes `output` where one is given.

    Errors: InputError when the place is not ours to write, or workers elsewhere could not see it.
    """
    if output is not None:
        refuse_foreign(output)
        existing_manifest(output, ComparisonManifest)  # refuses to replace a directory of another kind
        with building(output) as staging:
            yield staging
    elif not runs_in_process(beam_options):
        raise InputError("--output is not set, expected with this runner: its workers leave there what they find")
    else:
        with tempfile.TemporaryDirectory() as staging:
            yield staging


def write_report(report: dict[str, Any], key: str, directory: str) -> None:
    write_bytes(join(directory, "comparison.json"), orjson.dumps(report, option=orjson.OPT_INDENT_2))
    write_bytes(join(directory, "comparison.html"), page(report).encode())
    manifest = ComparisonManifest(stage_key=key, options=report["options"], drift=report["drift"])
    write_bytes(join(directory, FILE_NAME), manifest.to_bytes())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m beam_jobs.compare_datasets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("datasets", nargs="+", metavar="DATASET", help="A and B; or one, whose two views are compared")
    parser.add_argument("--config", help="a YAML file of thresholds; see docs/compare.md")
    parser.add_argument("--output", help="a directory to write: comparison.json and comparison.html")
    given, rest = parser.parse_known_args(arguments)
    if len(given.datasets) > 2:
        raise InputError(f"{len(given.datasets)} datasets given ({', '.join(given.datasets)}), expected one or two")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    beam_options = pipeline_options(rest)
    paths = [path.rstrip("/") or os.sep for path in given.datasets]
    sides = two_datasets(*paths) if len(paths) == 2 else two_views(*paths)
    options = load_options(given.config, [*(feature.name for feature in sides[0].features), ITEMS.name])
    with workspace(given.output and given.output.rstrip("/"), beam_options) as staging:
        report = run_comparison(sides, options, staging, beam_options)
        if given.output:
            key = stage_key(datasets=[side.manifest.stage_key for side in sides], options=options.model_dump())
            write_report(report, key, staging)
    print(table(report))
    if given.output:
        print(f"wrote {given.output}")
    if report["drift"]:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
