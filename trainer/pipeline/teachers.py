"""Teachers: trained on positive groups with privileged features; their scores are computed once and cached."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from trainer.data.batches import Groups, no_autograph, positive_only, scoring_batches, training_batches, with_label
from trainer.losses.distillation import Objective
from trainer.losses.ranking import LOSSES
from trainer.models.ranker import Ranker
from trainer.pipeline.run import Run, save_ranker
from trainer.recipes import TeacherConfig
from trainer.storage.stages import is_up_to_date, make_stage, stage_folder
from trainer.training.fit_ranker import Training, infer_batches
from trainer.training.progress import Progress

_SCORES_FILE = "train.tfrecord.gz"  # one record a group, in the dataset's order: its logits as little-endian float32
_BYTES_PER_SCORE = 4


def teacher_key(run: Run, teacher: TeacherConfig) -> str:
    """The stage key of a trained teacher."""
    training = run.config.teacher_training[teacher.name].model_dump(mode="json")
    architecture = run.config.teacher_architecture[teacher.name].model_dump(mode="json")
    return run.key(teacher=teacher.model_dump(mode="json"), architecture_of_teacher=architecture, training=training)


def train_teacher(run: Run, teacher: TeacherConfig) -> None:
    """Trains one teacher on the training split's positive groups, unless it is up to date; then its fold models."""
    label, weight = run.config.spec.label.name, run.config.teacher_training[teacher.name].group_weight
    groups = positive_only(with_label(run.train.groups, label, weight))
    _train(run, teacher, groups, teacher_directory(run, teacher), teacher.name)
    for fold in _folds(teacher):
        others = groups.filter(no_autograph(lambda group, fold=fold: group["query"] % teacher.folds != fold))
        _train(run, teacher, others, fold_directory(run, teacher, fold), f"{teacher.name} without fold {fold}")


def _train(run: Run, teacher: TeacherConfig, groups: Groups, directory: str, name: str) -> None:
    config = run.config.teacher_training[teacher.name]

    def make(staging: str) -> dict[str, object]:
        validation = run.selection_batches(config)  # read before the new ranker sets the seed
        model = run.new_ranker(teacher, config)
        batches = training_batches(run.cached(groups), config.batch_groups, run.config.seed)
        logs = directory.removeprefix(run.workdir)
        progress = Progress(f"teacher {name}", config.steps, f"{run.tensorboard}{logs}")
        objective = Objective(LOSSES[config.loss])
        history = Training(model, config, objective, run.strategy).train(batches, validation, progress)
        progress.done(history)
        save_ranker(model, history, staging)
        run.trained[directory] = model
        return {"sees": list(teacher.sees), "best_step": history.best_step}

    make_stage(directory, teacher_key(run, teacher), make)


def teacher_directory(run: Run, teacher: TeacherConfig) -> str:
    return f"{run.workdir}/teachers/{teacher.name}"


def fold_directory(run: Run, teacher: TeacherConfig, fold: int) -> str:
    """Directory of the teacher that did not train on a fold's queries."""
    return f"{run.workdir}/teacher_folds/{teacher.name}/{fold}"


def _folds(teacher: TeacherConfig) -> range:
    return range(teacher.folds) if teacher.folds > 1 else range(0)


def load_teacher(run: Run, teacher: TeacherConfig) -> Ranker:
    """Loads the teacher that was trained on all training groups."""
    return run.load_ranker(teacher_directory(run, teacher), teacher)


def trained_teacher(run: Run, teacher: TeacherConfig) -> Ranker:
    """The teacher that this process trained, else the one on disk."""
    return run.trained.get(teacher_directory(run, teacher)) or load_teacher(run, teacher)


def score_training_groups(run: Run, teacher: TeacherConfig) -> str:
    """Caches a teacher's logits for all groups of the training split, positive or not. Returns the directory.

    Errors: InputError when cached scores have other numbers of groups and items than the split.
    """
    directory, key = f"{run.workdir}/teacher_scores/{teacher.name}", teacher_key(run, teacher)

    def make(staging: str) -> dict[str, object]:
        groups, options = 0, tf.io.TFRecordOptions("GZIP", compression_level=1)
        scored = (
            _cross_fitted_logits(run, teacher)
            if teacher.folds > 1
            else _logits(load_teacher(run, teacher), run.train.groups)
        )
        with tf.io.TFRecordWriter(f"{staging}/{_SCORES_FILE}", options) as writer:
            for logits in scored:
                writer.write(logits.astype("<f4").tobytes())
                groups += 1
        print(f"  teacher {teacher.name}: scored {groups:,} training groups", flush=True)
        return {"groups": groups}

    if is_up_to_date(directory, key):
        _check_score_counts(run, directory)
    else:
        make_stage(directory, key, make)
    return directory


def _check_score_counts(run: Run, directory: str) -> None:
    """Errors: InputError unless the cached scores have the training split's numbers of groups and items."""
    start, split = np.zeros(2, np.int64), run.statistics("train")

    def counted(total: tf.Tensor, record: tf.Tensor) -> tf.Tensor:
        return total + tf.stack([1, tf.cast(tf.strings.length(record), tf.int64) // _BYTES_PER_SCORE])

    groups, items = _records(directory).reduce(start, no_autograph(counted)).numpy()
    if (groups, items) != (split.groups, split.items):
        raise InputError(
            f"{directory}/{_SCORES_FILE} holds scores of {groups:,} groups with {items:,} items, expected "
            f"{split.groups:,} with {split.items:,}, as the training split has: "
            f"remove {directory}, and fit scores them again"
        )


def _records(directory: str) -> tf.data.Dataset:
    """A teacher's cached scores, one record for each group."""
    return tf.data.TFRecordDataset(f"{stage_folder(directory)}/{_SCORES_FILE}", "GZIP")


def _logits(model: Ranker, groups: Groups) -> Iterator[NDArray[np.float32]]:
    """A model's logits of each group's real items, in order."""
    for batch, logits in infer_batches(model, scoring_batches(groups)):
        for row, real in zip(logits, batch["mask"].numpy(), strict=True):
            yield row[real]


def _cross_fitted_logits(run: Run, teacher: TeacherConfig) -> Iterator[NDArray[np.float32]]:
    """Like `_logits`, but each group is scored by the teacher that did not train on its query."""
    by_fold = {}
    for fold in _folds(teacher):
        model = run.load_ranker(fold_directory(run, teacher, fold), teacher)
        own = run.train.groups.filter(no_autograph(lambda group, fold=fold: group["query"] % teacher.folds == fold))
        by_fold[fold] = _logits(model, own)
    for query in run.train.groups.map(no_autograph(lambda group: group["query"])).as_numpy_iterator():
        yield next(by_fold[int(query) % teacher.folds])


def cached_logits(directories: list[str]) -> Groups:
    """float32 [items, teachers] for each training group, in the dataset's order."""
    files = [_records(directory) for directory in directories]

    @no_autograph
    def stacked(*records: tf.Tensor) -> tf.Tensor:
        return tf.stack([tf.io.decode_raw(record, tf.float32, little_endian=True) for record in records], axis=-1)

    return tf.data.Dataset.zip(tuple(files)).map(stacked)
