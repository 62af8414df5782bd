"""A run: its inputs, the statistics of its data, and its models, each a stage in the run's directory."""

import json
from functools import cached_property

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from features.manifest import SplitStatistics, stage_key
from trainer.architecture import StudentConfig
from trainer.config import TrainerConfig, TrainingConfig
from trainer.data.batches import (
    DatasetSplit,
    Groups,
    InMemoryBatches,
    no_autograph,
    positive_only,
    scoring_batches,
    with_label,
)
from trainer.data.preprocessing import Preprocessor
from trainer.models.encoder_directory import EncoderDirectory
from trainer.models.pretrained_encoder import LateInteractionEncoder
from trainer.models.ranker import ARCHITECTURE, Ranker
from trainer.pipeline.inputs import DataPaths, open_inputs
from trainer.recipes import Recipe, TeacherConfig
from trainer.storage.stages import is_up_to_date, make_stage, read_file, stage_folder
from trainer.training.fit_ranker import History, strategy_of
from trainer.training.frozen_states import FrozenStates, write_frozen_states

WEIGHTS = "weights"  # a tf.train.Checkpoint in a model's directory
HISTORY = "history.json"


class Run:
    """State that all steps of `fit` share. Splits are opened on first use.

    data: where the inputs are. workdir: the run's directory. frozen_states: directory of the states of texts behind
    frozen layers, which runs of other seeds may share; None for one in the workdir.
    """

    def __init__(self, config: TrainerConfig, data: DataPaths, workdir: str, frozen_states: str | None = None) -> None:
        self.config, self.data, self.workdir = config, data, workdir.rstrip("/")
        self._frozen_states_directory = frozen_states or f"{self.workdir}/frozen_states"
        if not self.workdir:
            raise InputError(f"workdir is {workdir!r}, expected a directory of the run's own: give one with --workdir")
        self.strategy = strategy_of(config.training.devices)
        self.inputs = open_inputs(config, data)
        self.preprocessor = Preprocessor(
            config.spec,
            self.statistics("train").features,
            config.student,
            self.inputs.tokeniser(),
            config.spec.privileged,
        )
        self._splits: dict[str, DatasetSplit] = {}
        self.trained: dict[str, Ranker] = {}  # by stage directory: evaluated without loading
        tf.keras.mixed_precision.set_global_policy(config.training.precision)

    def statistics(self, split: str) -> SplitStatistics:
        return self.inputs.dataset.splits[split]

    @property
    def train(self) -> DatasetSplit:
        return self.split("train")

    @property
    def valid(self) -> DatasetSplit:
        return self.split("valid")

    @property
    def test(self) -> DatasetSplit:
        return self.split("test")

    def split(self, name: str) -> DatasetSplit:
        """A split of the dataset, opened once."""
        if name not in self._splits:
            spec, directory = self.config.spec, self.data.dataset
            self._splits[name] = DatasetSplit(
                directory, name, self.inputs.dataset, spec, self.preprocessor, self.caches
            )
        return self._splits[name]

    @property
    def tensorboard(self) -> str:
        """The directory of the models' TensorBoard logs."""
        return f"{self.workdir}/tensorboard"

    @property
    def caches(self) -> bool:
        """Whether tokenised groups are kept in memory."""
        return self.config.training.cache == "memory"

    def cached(self, groups: Groups) -> Groups:
        """The groups, cached in memory if the task's `cache` is `memory`."""
        return groups.cache() if self.caches else groups

    @cached_property
    def validation(self) -> InMemoryBatches:
        """The positive groups of the validation split."""
        return self._positive(self.valid, self.config.spec.label.name)

    @cached_property
    def testing(self) -> InMemoryBatches:
        """The positive groups of the test split."""
        return self._positive(self.test, self.config.spec.label.name)

    @cached_property
    def all_testing(self) -> InMemoryBatches:
        """Every group of the test split, positive or not."""
        return InMemoryBatches(scoring_batches(with_label(self.test.groups, self.config.spec.label.name)))

    def selection_batches(self, training: TrainingConfig, learns: str | None = None) -> InMemoryBatches:
        """The groups that select a model's checkpoint: those with a positive label, or with what it learns instead."""
        if learns is not None:
            return self._positive(self.valid if training.select_on == "valid" else self.test, learns)
        return self.validation if training.select_on == "valid" else self.testing

    def _positive(self, split: DatasetSplit, label: str) -> InMemoryBatches:
        return InMemoryBatches(scoring_batches(positive_only(with_label(split.groups, label))))

    @property
    def pieces(self) -> int:
        """Size of the ranker's vocabulary; 0 if items have no text."""
        item_features = self.config.spec.at("item", self.config.spec.regular)
        return len(self.inputs.vocabulary) if any(f.is_text for f in item_features) else 0

    @cached_property
    def idf(self) -> NDArray[np.float32]:
        """The weight of each piece, from the training split's items: log(1 + items / (1 + items that hold it)).

        Empty if the vocabulary is.
        """
        if not self.pieces:
            return np.zeros(0, np.float32)
        held, items = np.zeros(self.pieces), 0
        for batch in scoring_batches(
            self.train.groups.map(no_autograph(lambda g: {"tokens": g["regular"]["item_tokens"], "mask": g["mask"]}))
        ):
            tokens = np.sort(batch["tokens"].numpy()[batch["mask"].numpy()], axis=1)
            first = np.diff(tokens, axis=1, prepend=-1) != 0
            held += np.bincount(tokens[first], minlength=self.pieces)
            items += len(tokens)
        weights: NDArray[np.float32] = np.log1p(items / (1.0 + held)).astype(np.float32)
        return weights

    def new_ranker(
        self,
        teacher: TeacherConfig | None = None,
        training: TrainingConfig | None = None,
        seed: int | None = None,
        recipe: Recipe | None = None,
    ) -> Ranker:
        """A newly initialised, built ranker on the run's devices. Sets the global random seed.

        teacher: None for a student. training: gives dropout and noise; None for a ranker that only scores.
        seed: None for the task's. recipe: of a student with an architecture of its own.
        """
        config = self.config
        architecture = config.recipe_architecture[recipe.name] if recipe else config.student
        if teacher is not None:
            architecture = config.teacher_architecture[teacher.name]
        return self._built(architecture, teacher, training, config.seed if seed is None else seed)

    def zero_shot_rankers(self) -> list[Ranker]:
        """For each pretrained encoder, an untrained ranker that ranks by its cosine: all its layers."""
        student, rankers = self.config.student, []
        for path, source in self.inputs.pretrained.items():
            architecture = StudentConfig(
                pretrained=path,
                split_layers=source.config.num_hidden_layers,
                freeze=source.config.num_hidden_layers,
                max_context_tokens=student.max_context_tokens,
                max_item_tokens=student.max_item_tokens,
            )
            rankers.append(self._built(architecture, None, None, self.config.seed))
        return rankers

    def _built(
        self, architecture: StudentConfig, teacher: TeacherConfig | None, training: TrainingConfig | None, seed: int
    ) -> Ranker:
        config = self.config
        sees = tuple(config.spec[name] for name in teacher.sees) if teacher else ()
        sizes = {name: len(values) for name, values in self.preprocessor.categories.items()}
        dropout, noise = (training.dropout, training.input_noise) if training else (0.0, 0.0)
        # read before the seed is set: the first read may draw random numbers
        example, idf = self.train.example, self.idf
        tf.keras.utils.set_random_seed(seed)
        with self.strategy.scope():
            sees_regular = teacher is None or teacher.sees_regular
            source = self.inputs.pretrained[architecture.pretrained] if architecture.pretrained else None
            model = Ranker(config.spec, architecture, self.pieces, sizes, sees, sees_regular, dropout, noise, source)
            model(example["regular"], {f.name: example["privileged"][f.name] for f in sees}, example["mask"])
            if model.reads_text:
                model.idf.assign(idf)
            if source is not None:
                model.assign_pretrained(source)
                model.frozen = self._frozen_states(model, source)
        return model

    def _frozen_states(self, model: Ranker, source: EncoderDirectory) -> FrozenStates | None:
        """The states of the dataset's texts behind the encoder's frozen layers, a stage; None where none are frozen."""
        encoder = model.encoder
        if not isinstance(encoder, LateInteractionEncoder) or not encoder.frozen_apart:
            return None
        key = stage_key(
            encoder=source.fingerprint,
            layers=encoder.kept[: encoder.frozen_apart],
            limits=(encoder.config.max_context_tokens, encoder.config.max_item_tokens),
            dataset=self.inputs.keys["dataset"],
        )
        directory = f"{self._frozen_states_directory}/{key[:12]}"

        def make(folder: str) -> dict[str, object]:
            print(f"  states of every distinct text behind {encoder.frozen_apart} frozen layers", flush=True)
            batches = (
                batch["regular"]
                for split in self.inputs.dataset.splits
                for batch in scoring_batches(
                    self.split(split).groups.map(no_autograph(lambda group: {"regular": group["regular"]}))
                )
            )
            return {"texts": write_frozen_states(encoder, batches, folder)}

        if not is_up_to_date(directory, key):
            make_stage(directory, key, make)
        return FrozenStates(stage_folder(directory))

    def load_ranker(self, directory: str, teacher: TeacherConfig | None = None, recipe: Recipe | None = None) -> Ranker:
        """Loads the ranker whose weights `save_ranker` wrote."""
        model = self.new_ranker(teacher, recipe=recipe)
        restored = tf.train.Checkpoint(model=model).read(f"{stage_folder(directory)}/{WEIGHTS}")
        restored.assert_existing_objects_matched().expect_partial()
        return model

    def key(self, **parts: object) -> str:
        """The stage key of a model: a hash of its inputs, architecture and seed, and of `parts`."""
        student = self.config.student.model_dump(mode="json")
        return stage_key(
            architecture=ARCHITECTURE, inputs=self.inputs.keys, student=student, seed=self.config.seed, **parts
        )


def save_ranker(model: Ranker, history: History, directory: str) -> None:
    """Writes weights and learning curves to the folder of a stage in the making."""
    tf.train.Checkpoint(model=model).write(f"{directory}/{WEIGHTS}")
    with tf.io.gfile.GFile(f"{directory}/{HISTORY}", "w") as file:
        file.write(json.dumps(history.to_json()))


def load_history(directory: str) -> History:
    """The learning curves in a stage's directory."""
    return History(**json.loads(read_file(f"{stage_folder(directory)}/{HISTORY}", "train the model again")))
