"""Teachers: trained on positive groups with privileged features in sight, then asked once for every score."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainer.data import Groups, as_it_is, positive_only, scoring_batches, training_batches, with_label
from trainer.distillation import Objective
from trainer.losses import LOSSES
from trainer.progress import Progress
from trainer.ranker import Ranker
from trainer.recipes import TeacherConfig
from trainer.run import Run, save_ranker
from trainer.stages import is_up_to_date, make_stage
from trainer.training import Training, inferred

SCORES = "train.tfrecord.gz"  # one record a group, in the dataset's order: its logits as little-endian float32


def key_of(run: Run, teacher: TeacherConfig) -> str:
    """The stage key of a trained teacher."""
    training = run.config.teacher_training[teacher.name].model_dump(mode="json")
    architecture = run.config.teacher_architecture[teacher.name].model_dump(mode="json")
    return run.key(teacher=teacher.model_dump(mode="json"), architecture_of_teacher=architecture, training=training)


def train_teacher(run: Run, teacher: TeacherConfig) -> None:
    """Trains one teacher on the training split's positive groups, unless it is up to date; then its folds' own."""
    label, weight = run.config.spec.label.name, run.config.teacher_training[teacher.name].group_weight
    groups = positive_only(with_label(run.train.groups, label, weight))
    _train(run, teacher, groups, directory_of(run, teacher), teacher.name)
    for fold in _folds(teacher):
        others = groups.filter(as_it_is(lambda group, fold=fold: group["query"] % teacher.folds != fold))
        _train(run, teacher, others, fold_directory(run, teacher, fold), f"{teacher.name} without fold {fold}")


def _train(run: Run, teacher: TeacherConfig, groups: Groups, directory: str, name: str) -> None:
    config = run.config.teacher_training[teacher.name]

    def make(staging: str) -> dict[str, object]:
        model = run.new_ranker(teacher, config)
        batches = training_batches(groups.cache(), config.batch_groups, run.config.seed)
        logs = directory.removeprefix(run.workdir)
        progress = Progress(f"teacher {name}", config.steps, f"{run.tensorboard}{logs}")
        objective = Objective(LOSSES[config.loss])
        history = Training(model, config, objective, run.strategy).train(batches, run.choosing(config), progress)
        progress.done(history)
        save_ranker(model, history, staging)
        run.trained[directory] = model
        return {"sees": list(teacher.sees), "best_step": history.best_step}

    make_stage(directory, key_of(run, teacher), make)


def directory_of(run: Run, teacher: TeacherConfig) -> str:
    return f"{run.workdir}/teachers/{teacher.name}"


def fold_directory(run: Run, teacher: TeacherConfig, fold: int) -> str:
    """Where the teacher lies that did not train on the queries of a fold."""
    return f"{run.workdir}/teacher_folds/{teacher.name}/{fold}"


def _folds(teacher: TeacherConfig) -> range:
    return range(teacher.folds) if teacher.folds > 1 else range(0)


def load_teacher(run: Run, teacher: TeacherConfig) -> Ranker:
    """A trained teacher, which saw every training group."""
    return run.load_ranker(directory_of(run, teacher), teacher)


def trained_teacher(run: Run, teacher: TeacherConfig) -> Ranker:
    """The same, as this process trained it where it did."""
    return run.trained.get(directory_of(run, teacher)) or load_teacher(run, teacher)


def score_training_groups(run: Run, teacher: TeacherConfig) -> str:
    """Caches a teacher's logits for all groups of the training split, positive or not. Returns the directory."""
    directory, key = f"{run.workdir}/teacher_scores/{teacher.name}", key_of(run, teacher)

    def make(staging: str) -> dict[str, object]:
        groups, options = 0, tf.io.TFRecordOptions("GZIP", compression_level=1)
        scored = (
            _cross_fitted(run, teacher) if teacher.folds > 1 else _logits(load_teacher(run, teacher), run.train.groups)
        )
        with tf.io.TFRecordWriter(f"{staging}/{SCORES}", options) as writer:
            for logits in scored:
                writer.write(logits.astype("<f4").tobytes())
                groups += 1
        print(f"  teacher {teacher.name}: scored {groups:,} training groups", flush=True)
        return {"groups": groups}

    if not is_up_to_date(directory, key):
        make_stage(directory, key, make)
    return directory


def _logits(model: Ranker, groups: Groups) -> Iterator[NDArray[np.float32]]:
    """A model's logits of each group's real items, in order."""
    for batch, logits in inferred(model, scoring_batches(groups)):
        for row, real in zip(logits, batch["mask"].numpy(), strict=True):
            yield row[real]


def _cross_fitted(run: Run, teacher: TeacherConfig) -> Iterator[NDArray[np.float32]]:
    """As `_logits`, each group scored by the teacher that did not train on its query."""
    by_fold = {}
    for fold in _folds(teacher):
        model = run.load_ranker(fold_directory(run, teacher, fold), teacher)
        own = run.train.groups.filter(as_it_is(lambda group, fold=fold: group["query"] % teacher.folds == fold))
        by_fold[fold] = _logits(model, own)
    for query in run.train.groups.map(as_it_is(lambda group: group["query"])).as_numpy_iterator():
        yield next(by_fold[int(query) % teacher.folds])


def cached_logits(directories: list[str]) -> Groups:
    """float32 [items, teachers] for each training group, in the dataset's order."""
    files = [tf.data.TFRecordDataset(f"{directory}/{SCORES}", "GZIP") for directory in directories]

    @as_it_is
    def stacked(*records: tf.Tensor) -> tf.Tensor:
        return tf.stack([tf.io.decode_raw(record, tf.float32, little_endian=True) for record in records], axis=-1)

    return tf.data.Dataset.zip(tuple(files)).map(stacked)
