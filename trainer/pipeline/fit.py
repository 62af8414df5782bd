"""The steps of `python -m trainer fit`: from a dataset to an exported student."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
import yaml

from features.errors import InputError
from trainer.config import TrainerConfig
from trainer.evaluation.summary import print_summary
from trainer.pipeline.evaluate import evaluate
from trainer.pipeline.export import export_student
from trainer.pipeline.inputs import DataPaths, describe_dataset
from trainer.pipeline.query_groups import check_relevance
from trainer.pipeline.report import write_report
from trainer.pipeline.run import Run
from trainer.pipeline.students import train_student
from trainer.pipeline.teachers import train_teacher
from trainer.recipes import PROBABILITY_LOSSES
from trainer.storage.stages import claim_workdir, write_file

# TensorFlow's message of assert_cardinality
_CARDINALITY_ERROR = re.compile(r"expected to contain (\d+) elements but contained ((?:only|at least) \d+)")


def fit(config: TrainerConfig, data: DataPaths, workdir: str) -> dict[str, Any]:
    """Trains teachers and every recipe, evaluates, reports and exports; finished stages are skipped.

    Returns the content of metrics.json. Errors: InputError.
    """
    with explained_errors(data, workdir):
        return _fit(Run(config, data, workdir))


@contextmanager
def explained_errors(data: DataPaths, workdir: str) -> Iterator[None]:
    """Turns TensorFlow's errors of damaged or missing files into InputErrors with a remedy."""
    try:
        yield
    except tf.errors.DataLossError:
        raise InputError(
            f"a file of dataset {data.dataset} or of {workdir}/teacher_scores is cut short or damaged, expected "
            "whole TFRecords: run build_elwc again, or remove teacher_scores"
        ) from None
    except tf.errors.NotFoundError as error:
        raise InputError(f"a file that the run reads is gone ({_reason(error)}): make its directory again") from None
    except tf.errors.FailedPreconditionError as error:
        if (counted := _CARDINALITY_ERROR.search(error.message)) is None:
            raise
        raise InputError(
            f"dataset {data.dataset}: a split has {counted[2]} groups, expected {counted[1]}, as its manifest counts: "
            "run build_elwc again"
        ) from None


def _reason(error: tf.errors.OpError) -> str:
    """The message of a TensorFlow error, without the stack and the operation's name."""
    return str(error.message).split("\n\t [[")[0].rstrip().rpartition("\n")[2]


def _fit(run: Run) -> dict[str, Any]:
    started, config = time.monotonic(), run.config
    print_stage(f"fit {config.name} into {run.workdir}")
    _describe(run)
    if covered := check_relevance(run):  # evaluation reads it at the end; a wrong file should fail now
        print(f"  {covered}")
    claim_workdir(run.workdir, config.name)
    write_file(f"{run.workdir}/config.yaml", yaml.safe_dump(config.resolved, sort_keys=False).encode())
    metrics = train_and_evaluate(run)
    write_report(run, metrics)
    version = export_student(run, metrics)
    written = f"{run.workdir}/report.html, {run.workdir}/metrics.json and {version}"
    print_stage(f"wrote {written} in {time.monotonic() - started:.0f} s")
    print_summary(metrics)
    return metrics


def train_and_evaluate(run: Run) -> dict[str, Any]:
    """Trains every teacher and every recipe, then evaluates them. Returns the metrics. Errors: InputError."""
    _refuse_grades_as_probabilities(run)
    for teacher in run.config.teachers.values():
        print_stage(f"teacher {teacher.name} sees {', '.join(teacher.sees) or 'what the student sees'}")
        train_teacher(run, teacher)
    for recipe in run.config.recipes.values():
        print_stage(f"student {recipe.name}")
        train_student(run, recipe)
    print_stage("evaluate every model on the test split")
    return evaluate(run)


def _refuse_grades_as_probabilities(run: Run) -> None:
    """Errors: InputError when labels exceed 1 and a loss needs probabilities."""
    label = run.config.spec.label.name
    largest = run.statistics("train").features[label].maximum
    for where, training in run.config.trainings.items():
        if training.loss in PROBABILITY_LOSSES and isinstance(largest, float) and largest > 1.0:
            raise InputError(
                f"{where}: {training.loss} takes labels for probabilities, but {label!r} goes up to {largest:g}: "
                "choose a loss for graded labels, such as softmax or lambda_rank"
            )


def _describe(run: Run) -> None:
    print(f"  {describe_dataset(run.data.dataset, run.inputs.dataset)}")
    if run.data.vocabulary is not None:
        print(f"  vocabulary {run.data.vocabulary}: {len(run.inputs.vocabulary):,} pieces")
    for name, split in run.inputs.dataset.splits.items():
        share = split.groups_with_label / max(split.groups, 1)
        positive = f"{split.groups_with_label:,} with a {run.config.spec.label.name}"
        print(f"  {name}: {split.groups:,} groups, {positive} ({share:.1%})")
    if any(training.select_on == "test" for training in run.config.trainings.values()):
        print("  checkpoints are chosen on the TEST split (select_on): the figures flatter those models")


def print_stage(line: str) -> None:
    print(f"== {line}", flush=True)
