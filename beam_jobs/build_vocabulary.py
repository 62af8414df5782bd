"""A dataset's training split -> the WordPiece vocabulary of its regular text features.

Item text counts once for each query group that shows it. Query text counts once a request, and only queries that enough
distinct users made (dataset.min_distinct_users) are read. Other context text may be personal and is left out.

Example:
  python -m beam_jobs.build_vocabulary --config configs/product_search.yaml \\
    --dataset build/demo/dataset --output build/demo/vocabulary
"""

from features.termination import exit_on_sigterm

if __name__ == "__main__":
    exit_on_sigterm()  # before the imports, which take seconds

import argparse
import hashlib
import logging
import os
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import orjson
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.joins.dataset_options import VocabularyOptions
from beam_jobs.launch.beam_options import pipeline_options
from beam_jobs.sinks.output_directory import (
    check_output_directory,
    finish_killed_output,
    new_output_version,
    print_unlisted_files,
)
from beam_jobs.sources.reading import PROGRESS, check_readable, read_lines
from beam_jobs.storage.files import existing_manifest, join_path
from beam_jobs.vocabulary.word_counts import count_words
from features.errors import InputError, exit_code_of
from features.manifest import FILE_NAME, DatasetManifest, VocabularyManifest, stage_key
from features.spec import FeatureSpec, load_spec
from features.task import load_task, parse_section, task_name

_JOB_VERSION = 2  # increment when the same dataset gives another vocabulary
_FREQUENT_QUERIES_FILE = "train/frequent_queries.jsonl.gz"
_VOCABULARY_FILE = "vocabulary.txt"


class VocabularyInputs(NamedTuple):
    """The job's validated inputs. text_features: regular item-level text."""

    task: str  # its name
    spec: FeatureSpec
    options: VocabularyOptions
    dataset: str
    records: tuple[str, ...]  # paths of the training split's serving view
    queries: str  # path of the frequent queries; empty if not used
    text_features: tuple[str, ...]
    reads_queries: bool
    key: str


def read_vocabulary_inputs(config: str, dataset: str) -> VocabularyInputs:
    """Errors: InputError, also when the dataset was made with other features."""
    task = load_task(config)
    spec, options = load_spec(task), parse_section(task, "vocabulary", VocabularyOptions)
    manifest = existing_manifest(dataset, DatasetManifest)
    if manifest is None:
        raise InputError(
            f"--dataset {dataset} has no {FILE_NAME}, expected a complete dataset: run beam_jobs.build_elwc"
        )
    spec.check_same_features(manifest.spec, dataset, "run beam_jobs.build_elwc again with this task file")
    texts = tuple(feature.name for feature in spec.regular if feature.is_text and feature.level == "item")
    reads_queries = "query" in spec and spec["query"].is_text and spec["query"].role == "regular"
    key = stage_key(job=_JOB_VERSION, task=task_name(task), dataset=manifest.stage_key, options=options.model_dump())
    records = tuple(
        manifest.file_path(dataset, name) for name in manifest.matching_files("train/serving_elwc-*.tfrecord.gz")
    )
    queries = manifest.file_path(dataset, _FREQUENT_QUERIES_FILE) if reads_queries else ""
    return VocabularyInputs(task_name(task), spec, options, dataset, records, queries, texts, reads_queries, key)


def _frequent_queries(inputs: VocabularyInputs) -> list[tuple[str, int]]:
    if not inputs.reads_queries:
        return []
    check_readable([inputs.queries], "--dataset")
    rows = map(orjson.loads, read_lines(inputs.queries))
    return [(row["query"], row["requests"]) for row in rows]


def build_vocabulary(inputs: VocabularyInputs, output: str, options: PipelineOptions) -> VocabularyManifest | None:
    """Builds the vocabulary directory. Returns its manifest, or None when it is up to date already.

    Errors: InputError; whatever it is, a former vocabulary stays as it was.
    """
    check_output_directory(output)
    former = existing_manifest(output, VocabularyManifest)
    if former is not None and former.stage_key == inputs.key:
        finish_killed_output(output)
        return None
    with new_output_version(output) as version:
        content = "".join(piece + "\n" for piece in _pieces(inputs, output, version.scratch, options)).encode()
        manifest = VocabularyManifest(
            stage_key=inputs.key,
            task=inputs.task,
            options=inputs.options.model_dump(),
            fingerprint=inputs.spec.fingerprint,
            pieces=content.count(b"\n"),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        manifest = version.publish(manifest, {_VOCABULARY_FILE: version.write(_VOCABULARY_FILE, content)})
        print_unlisted_files(output, manifest)
    return manifest


def _pieces(inputs: VocabularyInputs, output: str, scratch: str, options: PipelineOptions) -> list[str]:
    # imports TensorFlow: seconds that --help need not wait
    from beam_jobs.vocabulary.wordpiece import (
        RESERVED_PIECES,
        learn_pieces,
    )

    if not inputs.text_features and not inputs.reads_queries:
        print("the task has no regular text feature: writing a vocabulary of the special pieces alone", flush=True)
        return list(RESERVED_PIECES)
    read = [*inputs.text_features, *(["frequent queries"] if inputs.reads_queries else [])]
    print(f"building {output} from the training split's {', '.join(read)}", flush=True)
    words = count_words(
        inputs.records, inputs.text_features, _frequent_queries(inputs), join_path(scratch, "words"), options
    )
    print(f"  {len(words)} distinct words, {sum(words.values())} in all", flush=True)
    return learn_pieces(words, inputs.options)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m beam_jobs.build_vocabulary",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", required=True, help="the task file")
    parser.add_argument("--dataset", required=True, help="a dataset directory made by beam_jobs.build_elwc")
    parser.add_argument("--output", required=True, help="the vocabulary directory to write")
    given, rest = parser.parse_known_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    PROGRESS.setLevel(logging.INFO)
    started = time.monotonic()
    options = pipeline_options(rest)
    output = given.output.rstrip("/") or os.sep
    manifest = build_vocabulary(read_vocabulary_inputs(given.config, given.dataset), output, options)
    if manifest is None:
        print(f"up to date: {output}")
    else:
        print(f"wrote {output}: {manifest.pieces} pieces in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
