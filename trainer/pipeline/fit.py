"""From a dataset to an exported student: the story that `python -m trainer fit` tells."""

import time
from typing import Any

import tensorflow as tf
import yaml

from features.errors import InputError
from trainer.config import TrainerConfig
from trainer.evaluate import evaluate
from trainer.export import export_student
from trainer.recipes import OF_PROBABILITIES
from trainer.references import read_relevance
from trainer.report import write_report
from trainer.run import Run
from trainer.stages import write_file
from trainer.students import train_student
from trainer.summary import print_summary
from trainer.teachers import train_teacher


def fit(config: TrainerConfig, workdir: str) -> dict[str, Any]:
    """Trains teachers and every recipe, evaluates, reports and exports; finished stages are skipped.

    Returns the metrics, as metrics.json has them. Errors: InputError.
    """
    try:
        return _fit(Run(config, workdir))
    except tf.errors.DataLossError:
        raise InputError(
            f"a file of dataset {config.data.dataset} or of {workdir}/teacher_scores is cut short or damaged, expected "
            "whole TFRecords: run build_elwc again, or remove teacher_scores"
        ) from None


def _fit(run: Run) -> dict[str, Any]:
    started, config = time.monotonic(), run.config
    if config.data.relevance is not None:
        read_relevance(config.data.relevance)  # evaluation reads it at the end; a wrong one should show now
    _say(f"fit {config.name} into {run.workdir}")
    _describe(run)
    write_file(f"{run.workdir}/config.yaml", yaml.safe_dump(config.resolved, sort_keys=False).encode())
    metrics = train_and_evaluate(run)
    write_report(run, metrics)
    version = export_student(run, metrics)
    written = f"{run.workdir}/report.html, {run.workdir}/metrics.json and {version}"
    _say(f"wrote {written} in {time.monotonic() - started:.0f} s")
    print_summary(metrics)
    return metrics


def train_and_evaluate(run: Run) -> dict[str, Any]:
    """Every teacher, then every recipe, then all of them on the test split. Returns the metrics. Errors: InputError."""
    _refuse_grades_as_probabilities(run)
    for teacher in run.config.teachers.values():
        _say(f"teacher {teacher.name} sees {', '.join(teacher.sees) or 'what the student sees'}")
        train_teacher(run, teacher)
    for recipe in run.config.recipes.values():
        _say(f"student {recipe.name}")
        train_student(run, recipe)
    _say("evaluate every model on the test split")
    return evaluate(run)


def _refuse_grades_as_probabilities(run: Run) -> None:
    """Errors: InputError when a label goes beyond 1 and a loss takes labels for probabilities."""
    label = run.config.spec.label.name
    largest = run.statistics("train").features[label].maximum
    for where, training in run.config.trainings.items():
        if training.loss in OF_PROBABILITIES and isinstance(largest, float) and largest > 1.0:
            raise InputError(
                f"{where}: {training.loss} takes labels for probabilities, but {label!r} goes up to {largest:g}: "
                "choose a loss for graded labels, such as softmax or lambda_rank"
            )


def _describe(run: Run) -> None:
    for name, split in run.inputs.dataset.splits.items():
        share = split.groups_with_label / max(split.groups, 1)
        positive = f"{split.groups_with_label:,} with a {run.config.spec.label.name}"
        print(f"  {name}: {split.groups:,} groups, {positive} ({share:.1%})")
    if any(training.select_on == "test" for training in run.config.trainings.values()):
        print("  checkpoints are chosen on the TEST split (select_on): the figures flatter those models")


def _say(line: str) -> None:
    print(f"== {line}", flush=True)
