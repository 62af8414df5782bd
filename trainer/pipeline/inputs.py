"""Opens a run's inputs: a complete dataset and vocabulary that were built for its task."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from features.elwc import DATASET_VIEWS
from features.errors import InputError
from features.manifest import DatasetManifest, VocabularyManifest
from trainer.config import TrainerConfig
from trainer.data.batches import shards_of
from trainer.data.bert_tokeniser import BertTokeniser
from trainer.data.tokenizer import WordPieceTokeniser, read_vocabulary
from trainer.models.encoder_directory import EncoderDirectory, read_encoder
from trainer.models.pretrained_encoder import check_fits
from trainer.storage.stages import read_file, read_manifest

_SPLIT_PURPOSES = {"train": "to learn from", "valid": "to choose checkpoints by", "test": "to measure on"}
# option of a dataset's manifest that names its input -> section of the task file
_SECTION_BY_OPTION = {
    "logs": "dataset",
    "files": "letor",
}
_MAX_LISTED_FILES = 3  # input files named in a message


@dataclass(frozen=True)
class DataPaths:
    """Paths of a run's inputs; local or `gs://`."""

    dataset: str  # a directory that build_elwc wrote
    vocabulary: str | None = None  # a directory that build_vocabulary wrote; None for a spec without regular text
    relevance: str | None = None  # TSV(.gz) of query, item_id, relevance: true relevance, which only evaluation reads


@dataclass(frozen=True)
class RunInputs:
    """The complete, matching inputs of a run."""

    dataset: DatasetManifest
    vocabulary: list[str]  # empty for a spec without regular text
    keys: dict[str, str]  # stage keys: dataset, vocabulary; fingerprints of pretrained encoders
    pretrained: dict[str, EncoderDirectory] = field(default_factory=dict)  # by the path that the task file names

    def tokeniser(self) -> WordPieceTokeniser | None:
        """None for a spec without regular text. A pretrained encoder brings its own."""
        if not self.vocabulary:
            return None
        for encoder in self.pretrained.values():
            return BertTokeniser(encoder.vocabulary, encoder.lower_case)
        return WordPieceTokeniser(self.vocabulary)


def open_inputs(config: TrainerConfig, paths: DataPaths) -> RunInputs:
    """Reads the manifests.

    Errors: InputError for an input that is missing, incomplete, or built for another task or with other settings.
    """
    dataset = _open_dataset(config, paths.dataset)
    keys = {"dataset": dataset.stage_key}
    has_text = any(feature.is_text for feature in config.spec.regular)
    if not has_text and paths.vocabulary is not None:
        raise InputError(
            f"--vocabulary is {paths.vocabulary}, but no regular feature is a text, so nothing reads it: leave it out"
        )
    if not has_text:
        _refuse_without_item_text(config)
        return RunInputs(dataset, [], keys)
    if config.pretrained:
        return _with_pretrained(config, paths, dataset, keys)
    if paths.vocabulary is None:
        raise InputError("--vocabulary is missing, expected the directory that build_vocabulary wrote")
    manifest, pieces = _open_vocabulary(config, paths.vocabulary)
    return RunInputs(dataset, pieces, {**keys, "vocabulary": manifest.stage_key})


def _refuse_without_item_text(config: TrainerConfig) -> None:
    if config.pretrained and not any(f.is_text for f in config.spec.at("item", config.spec.regular)):
        raise InputError(
            f"pretrained is {config.pretrained[0]!r}, but no regular item feature is a text, expected one that the "
            "encoder reads: remove pretrained"
        )


def _with_pretrained(
    config: TrainerConfig, paths: DataPaths, dataset: DatasetManifest, keys: dict[str, str]
) -> RunInputs:
    """The inputs of a run whose texts are cut as its pretrained encoders need them."""
    _refuse_without_item_text(config)
    if paths.vocabulary is not None:
        raise InputError(
            f"--vocabulary is {paths.vocabulary}, but the pretrained encoder brings its own vocabulary: leave it out"
        )
    encoders = {path: read_encoder(path) for path in config.pretrained}
    (first_path, first), *others = encoders.items()
    for path, other in others:
        if (other.vocabulary, other.lower_case) != (first.vocabulary, first.lower_case):
            raise InputError(
                f"the pretrained encoders {first_path} and {path} cut texts differently, expected one vocabulary for "
                "student and teachers: name encoders that share one"
            )
    of_recipes = {f"recipes: {name!r}": found for name, found in config.recipe_architecture.items()}
    for where, architecture in {"student": config.student, **of_recipes, **config.teacher_architecture}.items():
        if architecture.pretrained is not None:
            check_fits(where, architecture, encoders[architecture.pretrained])
    keys = {**keys, **{f"pretrained_{n}": encoder.fingerprint for n, encoder in enumerate(encoders.values())}}
    return RunInputs(dataset, first.vocabulary, keys, encoders)


def describe_dataset(path: str, dataset: DatasetManifest) -> str:
    """Describes a dataset in a line: path, number of groups, build time and source."""
    groups = sum(split.groups for split in dataset.splits.values())
    return f"dataset {path}: {groups:,} groups, built {dataset.created} from {_source(dataset.options)}"


def _source(options: Mapping[str, Any]) -> str:
    """The input files in a dataset's options: `logs` of build_elwc, `files` by split of letor_to_elwc."""
    found = options.get("logs") or [file for files in dict(options.get("files") or {}).values() for file in files]
    more = f" and {len(found) - _MAX_LISTED_FILES:,} more" if len(found) > _MAX_LISTED_FILES else ""
    return (", ".join(found[:_MAX_LISTED_FILES]) + more) or "files that its manifest does not name"


def _open_dataset(config: TrainerConfig, path: str) -> DatasetManifest:
    dataset = read_manifest(path, DatasetManifest)
    again = "run build_elwc with this task file"
    config.spec.check_same_features(dataset.spec, f"dataset {path}", again)
    _refuse_other_task("dataset", path, dataset.task, config, again)
    for given, section in _SECTION_BY_OPTION.items():
        stated = config.resolved.get(section)
        if given in dataset.options and stated and (difference := _difference(stated, dataset.options, section)):
            raise InputError(f"dataset {path}, from {_source(dataset.options)}, was built with {difference}: {again}")
    for name, purpose in _SPLIT_PURPOSES.items():
        split = dataset.splits.get(name)
        if split is None or not split.groups_with_label:
            raise InputError(
                f"dataset {path}: {name} has {split.groups if split else 0} groups and none with a "
                f"{config.spec.label.name}, expected some {purpose}: bring logs of more requests, or give {name} a "
                "larger share in `dataset:`"
            )
        for view in DATASET_VIEWS:
            shards_of(path, name, view, dataset)
    return dataset


def _open_vocabulary(config: TrainerConfig, path: str) -> tuple[VocabularyManifest, list[str]]:
    manifest = read_manifest(path, VocabularyManifest)
    if manifest.fingerprint != config.spec.fingerprint:
        raise InputError(
            f"vocabulary {path} was learned with other features, {manifest.fingerprint[:12]}, "
            f"expected {config.spec.fingerprint[:12]}: run build_vocabulary again"
        )
    _refuse_other_task("vocabulary", path, manifest.task, config, "run build_vocabulary with this task file")
    content = read_file(manifest.file_path(path, "vocabulary.txt"), "run build_vocabulary again")
    found = hashlib.sha256(content).hexdigest()
    if found != manifest.sha256:
        raise InputError(
            f"vocabulary {path}: vocabulary.txt has SHA-256 {found[:12]}, expected "
            f"{manifest.sha256[:12]}, which its manifest says: run build_vocabulary again"
        )
    return manifest, read_vocabulary(content.decode())


def _refuse_other_task(kind: str, path: str, task: str, config: TrainerConfig, remedy: str) -> None:
    if task != config.name:
        raise InputError(
            f"{kind} {path} was built for the task {task!r}, expected {config.name!r}, which the task file has for its "
            f"name: give --{kind} the directory of this task, or {remedy}"
        )


def _difference(stated: Mapping[str, Any], built: Mapping[str, Any], where: str) -> str | None:
    """Describes the first value in a section of the task that differs from the dataset's options, or None."""
    for name, value in stated.items():
        there = built.get(name, value)  # a missing option counts as equal: options have every field of the section
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            if found := _difference(value, there, f"{where}.{name}"):
                return found
        elif _json_roundtrip(value) != _json_roundtrip(there):
            return f"{where}.{name} {there!r}, where the task file has {value!r}"
    return None


def _json_roundtrip(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))
