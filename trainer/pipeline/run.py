"""A run: what it reads, what it knows of the data, and its models, each a stage in the run's directory."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from features.manifest import DatasetManifest, SplitStatistics, VocabularyManifest, stage_key
from trainer.config import TrainerConfig, TrainingConfig
from trainer.data import DatasetSplit, KeptBatches, as_it_is, positive_only, scoring_batches, with_label
from trainer.preprocessing import Preprocessor
from trainer.ranker import ARCHITECTURE, Ranker
from trainer.recipes import TeacherConfig
from trainer.stages import read_file, read_manifest
from trainer.text import Tokeniser, read_vocabulary
from trainer.training import History, strategy_of

WEIGHTS = "weights"  # a tf.train.Checkpoint in a model's directory
HISTORY = "history.json"
SPLITS = {"train": "to learn from", "valid": "to choose checkpoints by", "test": "to measure on"}


@dataclass(frozen=True)
class Inputs:
    """The complete, matching inputs of a run."""

    dataset: DatasetManifest
    vocabulary: list[str]  # empty for a spec without regular text
    keys: dict[str, str]  # stage keys: dataset, vocabulary


def open_inputs(config: TrainerConfig) -> Inputs:
    """Reads the manifests. Errors: InputError for one that is missing, incomplete or made with other features."""
    dataset = read_manifest(config.data.dataset, DatasetManifest)
    config.spec.refuse_difference(dataset.spec, f"dataset {config.data.dataset}", "run build_elwc with this task file")
    for name, purpose in SPLITS.items():
        split = dataset.splits.get(name)
        if split is None or not split.groups_with_label:
            raise InputError(
                f"dataset {config.data.dataset}: {name} has {split.groups if split else 0} groups and none with a "
                f"{config.spec.label.name}, expected some {purpose}: bring logs of more requests, or give {name} a "
                "larger share in `dataset:`"
            )
    keys = {"dataset": dataset.stage_key}
    if not any(feature.is_text for feature in config.spec.regular):
        return Inputs(dataset, [], keys)
    if config.data.vocabulary is None:
        raise InputError("data.vocabulary is missing, expected the directory that build_vocabulary wrote")
    manifest = read_manifest(config.data.vocabulary, VocabularyManifest)
    if manifest.fingerprint != config.spec.fingerprint:
        raise InputError(
            f"vocabulary {config.data.vocabulary} was learned with other features, {manifest.fingerprint[:12]}, "
            f"expected {config.spec.fingerprint[:12]}: run build_vocabulary again"
        )
    content = read_file(f"{config.data.vocabulary}/vocabulary.txt", "run build_vocabulary again")
    found = hashlib.sha256(content).hexdigest()
    if found != manifest.sha256:
        raise InputError(
            f"vocabulary {config.data.vocabulary}: vocabulary.txt has SHA-256 {found[:12]}, expected "
            f"{manifest.sha256[:12]}, which its manifest says: run build_vocabulary again"
        )
    return Inputs(dataset, read_vocabulary(content.decode()), {**keys, "vocabulary": manifest.stage_key})


class Run:
    """What every step of `fit` shares. The splits are opened when first asked for.

    workdir: the run's directory.
    """

    def __init__(self, config: TrainerConfig, workdir: str) -> None:
        self.config, self.workdir = config, workdir.rstrip("/")
        if not self.workdir:
            raise InputError(f"workdir is {workdir!r}, expected a directory of the run's own: give one with --workdir")
        self.inputs = open_inputs(config)
        tokeniser = Tokeniser(self.inputs.vocabulary) if self.inputs.vocabulary else None
        self.preprocessor = Preprocessor(
            config.spec, self.statistics("train").features, config.student, tokeniser, config.spec.privileged
        )
        self.strategy = strategy_of(config.training.devices)
        self.trained: dict[str, Ranker] = {}  # by their stages' directories: what need not be loaded to be evaluated
        tf.keras.mixed_precision.set_global_policy(config.training.precision)

    def statistics(self, split: str) -> SplitStatistics:
        return self.inputs.dataset.splits[split]

    @cached_property
    def train(self) -> DatasetSplit:
        return self._split("train")

    @cached_property
    def valid(self) -> DatasetSplit:
        return self._split("valid")

    @cached_property
    def test(self) -> DatasetSplit:
        return self._split("test")

    @property
    def tensorboard(self) -> str:
        """The directory of learning curves, one of each model, as TensorBoard reads them."""
        return f"{self.workdir}/tensorboard"

    def _split(self, name: str) -> DatasetSplit:
        cache = self.config.training.cache == "memory"
        return DatasetSplit(self.config.data.dataset, name, self.config.spec, self.preprocessor, cache)

    @cached_property
    def validation(self) -> KeptBatches:
        """The positive groups of the validation split."""
        return self._positive(self.valid)

    @cached_property
    def testing(self) -> KeptBatches:
        """The positive groups of the test split."""
        return self._positive(self.test)

    def choosing(self, training: TrainingConfig) -> KeptBatches:
        """The positive groups that choose a model's checkpoint."""
        return self.validation if training.select_on == "valid" else self.testing

    def _positive(self, split: DatasetSplit) -> KeptBatches:
        return KeptBatches(scoring_batches(positive_only(with_label(split.groups, self.config.spec.label.name))))

    @property
    def pieces(self) -> int:
        """The pieces that a ranker embeds; 0 where items have no text that a query's could be compared with."""
        item_features = self.config.spec.at("item", self.config.spec.regular)
        return len(self.inputs.vocabulary) if any(f.is_text for f in item_features) else 0

    @cached_property
    def idf(self) -> NDArray[np.float32]:
        """The weight of each piece, from the training split's items: log(1 + items / (1 + items that hold it))."""
        held, items = np.zeros(self.pieces), 0
        for batch in scoring_batches(
            self.train.groups.map(as_it_is(lambda g: {"tokens": g["regular"]["item_tokens"], "mask": g["mask"]}))
        ):
            tokens = np.sort(batch["tokens"].numpy()[batch["mask"].numpy()], axis=1)
            first = np.diff(tokens, axis=1, prepend=-1) != 0
            held += np.bincount(tokens[first], minlength=self.pieces)
            items += len(tokens)
        weights: NDArray[np.float32] = np.log1p(items / (1.0 + held)).astype(np.float32)
        return weights

    def new_ranker(
        self, teacher: TeacherConfig | None = None, training: TrainingConfig | None = None, seed: int | None = None
    ) -> Ranker:
        """A freshly initialised, built ranker on the run's devices.

        teacher: None for a student. training: whose dropout and noise it takes; None for one that only scores.
        seed: None for the task's.
        """
        config = self.config
        architecture = config.teacher_architecture[teacher.name] if teacher else config.student
        sees = tuple(config.spec[name] for name in teacher.sees) if teacher else ()
        sizes = {name: len(values) for name, values in self.preprocessor.categories.items()}
        dropout, noise = (training.dropout, training.input_noise) if training else (0.0, 0.0)
        tf.keras.utils.set_random_seed(config.seed if seed is None else seed)
        with self.strategy.scope():
            sees_regular = teacher is None or teacher.sees_regular
            model = Ranker(config.spec, architecture, self.pieces, sizes, sees, sees_regular, dropout, noise)
            example = self.train.example
            model(example["regular"], {f.name: example["privileged"][f.name] for f in sees}, example["mask"])
            if model.reads_text:
                model.idf.assign(self.idf)
        return model

    def load_ranker(self, directory: str, teacher: TeacherConfig | None = None) -> Ranker:
        """The ranker whose weights `save_ranker` left in a stage's directory."""
        model = self.new_ranker(teacher)
        restored = tf.train.Checkpoint(model=model).read(f"{directory}/{WEIGHTS}")
        restored.assert_existing_objects_matched().expect_partial()
        return model

    def key(self, **parts: object) -> str:
        """The stage key of a model: what it is made from, beside the parts given."""
        student = self.config.student.model_dump(mode="json")
        return stage_key(
            architecture=ARCHITECTURE, inputs=self.inputs.keys, student=student, seed=self.config.seed, **parts
        )


def save_ranker(model: Ranker, history: History, directory: str) -> None:
    """Weights and learning curves into a stage's directory."""
    tf.train.Checkpoint(model=model).write(f"{directory}/{WEIGHTS}")
    with tf.io.gfile.GFile(f"{directory}/{HISTORY}", "w") as file:
        file.write(json.dumps(history.to_json()))


def load_history(directory: str) -> History:
    """The learning curves in a stage's directory."""
    return History(**json.loads(read_file(f"{directory}/{HISTORY}", "train the model again")))
