"""Teachers: trained on positive groups with privileged features in sight, then asked once for every score."""

import tensorflow as tf

from features.spec import Feature
from trainer.config import TeacherConfig
from trainer.data import Groups, positive_only, training_batches, with_label
from trainer.distillation import Objective
from trainer.progress import Progress
from trainer.ranker import Ranker
from trainer.run import Run, save_ranker
from trainer.stages import is_up_to_date, make_stage
from trainer.training import Training, inferred

SCORES = "train.tfrecord.gz"  # one record a group, in the dataset's order: its logits as little-endian float32


def directory_of(run: Run, teacher: TeacherConfig) -> str:
    return f"{run.workdir}/teachers/{teacher.name}"


def key_of(run: Run, teacher: TeacherConfig) -> str:
    """The stage key of a trained teacher."""
    training = run.config.teacher_training.model_dump(mode="json")
    architecture = run.config.teacher_architecture[teacher.name].model_dump(mode="json")
    return run.key(teacher=teacher.model_dump(mode="json"), architecture_of_teacher=architecture, training=training)


def train_teacher(run: Run, teacher: TeacherConfig) -> None:
    """Trains one teacher on the training split's positive groups, unless it is up to date."""
    config, spec = run.config.teacher_training, run.config.spec
    architecture = run.config.teacher_architecture[teacher.name]

    def make(staging: str) -> dict[str, object]:
        model = run.new_ranker(_seen(run, teacher), run.config.seed, config.dropout, architecture)
        groups = positive_only(with_label(run.train.groups, spec.label.name)).cache()
        batches = training_batches(groups, config.batch_groups, run.config.seed)
        progress = Progress(f"teacher {teacher.name}", config.steps, f"{run.tensorboard}/teachers/{teacher.name}")
        history = Training(model, config, Objective(), run.strategy).train(batches, run.validation, progress)
        progress.done(history)
        save_ranker(model, history, staging)
        return {"sees": list(teacher.sees), "best_step": history.best_step}

    make_stage(directory_of(run, teacher), key_of(run, teacher), make)


def load_teacher(run: Run, teacher: TeacherConfig) -> Ranker:
    """A trained teacher."""
    return run.load_ranker(
        directory_of(run, teacher), _seen(run, teacher), run.config.teacher_architecture[teacher.name]
    )


def _seen(run: Run, teacher: TeacherConfig) -> tuple[Feature, ...]:
    return tuple(run.config.spec[name] for name in teacher.sees)


def score_training_groups(run: Run, teacher: TeacherConfig) -> str:
    """Caches a teacher's logits for all groups of the training split, positive or not. Returns the directory."""
    directory, key = f"{run.workdir}/teacher_scores/{teacher.name}", key_of(run, teacher)

    def make(staging: str) -> dict[str, object]:
        model = load_teacher(run, teacher)
        groups, options = 0, tf.io.TFRecordOptions("GZIP", compression_level=1)
        with tf.io.TFRecordWriter(f"{staging}/{SCORES}", options) as writer:
            for batch, logits in inferred(model, run.train.groups):
                for row, real in zip(logits.astype("<f4"), batch["mask"].numpy(), strict=True):
                    writer.write(row[real].tobytes())
                groups += len(logits)
        print(f"  teacher {teacher.name}: scored {groups:,} training groups", flush=True)
        return {"groups": groups}

    if not is_up_to_date(directory, key):
        make_stage(directory, key, make)
    return directory


def cached_logits(directories: list[str]) -> Groups:
    """float32 [items, teachers] for each training group, in the dataset's order."""
    files = [tf.data.TFRecordDataset(f"{directory}/{SCORES}", "GZIP") for directory in directories]

    def stacked(*records: tf.Tensor) -> tf.Tensor:
        return tf.stack([tf.io.decode_raw(record, tf.float32, little_endian=True) for record in records], axis=-1)

    return tf.data.Dataset.zip(tuple(files)).map(stacked)
