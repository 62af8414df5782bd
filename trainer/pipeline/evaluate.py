"""Evaluates every model and the references on the same test groups: by the label, and by true relevance if known."""

import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import tensorflow as tf

from features.errors import InputError
from trainer.evaluation.metrics import TOP_K_METRICS, Floats, PairedBootstrap, expected_random_ndcg, ndcg
from trainer.pipeline.query_groups import QueryGroups, positive_test_groups, read_groups, relevance_of
from trainer.pipeline.run import Run
from trainer.pipeline.scores import ModelScores, score_test_groups
from trainer.pipeline.students import student_key
from trainer.pipeline.teachers import teacher_key
from trainer.storage.stages import read_file, write_file

METRICS, PER_GROUP = "metrics.json", "metrics_per_group.npz"
RELEVANCE_CUTOFF = 8
RANDOM_ORDER = "random_order"
_FORMAT = 2  # raised when the metrics of the same models change

PerGroup = dict[str, dict[str, Floats]]
"""metric -> model -> value of each group that has one."""


def evaluate(run: Run) -> dict[str, Any]:
    """Evaluates all models of a run; writes metrics.json and the values of each group, for later comparisons.

    The label's metrics are means over the test groups with a positive label. Relevance NDCG is a mean over all test
    groups with a relevant item, bought from or not. Skipped when metrics.json has the same stage key.
    Errors: InputError when the test split has no positive group.
    """
    key = _key(run)
    if (former := _former_metrics(run.workdir)) and former.get("stage_key") == key:
        print(f"  up to date: {run.workdir}/{METRICS}", flush=True)
        return former
    # without relevance only positive groups are judged, and scoring the others would be wasted
    judged_by_relevance = run.data.relevance is not None
    groups = read_groups(run, "test") if judged_by_relevance else positive_test_groups(run)
    relevance = relevance_of(run, groups)
    batches = run.all_testing if judged_by_relevance else run.testing
    scores, tuned = score_test_groups(run, groups, batches, relevance)
    per_group = {**_by_label(run, groups, scores), **_by_relevance(groups, scores, relevance)}
    _write_per_group(run.workdir, per_group)
    kinds = {RANDOM_ORDER: "reference", **{name: kind for name, (kind, _) in scores.items()}}
    bm25 = {**tuned.settings._asdict(), "trials": tuned.trials} if tuned else None
    metrics = {"stage_key": key, **summarise(run, per_group, kinds, bm25)}
    write_file(f"{run.workdir}/{METRICS}", (json.dumps(metrics, indent=1) + "\n").encode())
    return metrics


def _key(run: Run) -> str:
    """The stage key of metrics.json: a hash of the models, the relevance file and the settings."""
    teachers = {name: teacher_key(run, teacher) for name, teacher in run.config.teachers.items()}
    students = {name: student_key(run, recipe) for name, recipe in run.config.recipes.items()}
    settings = [section.model_dump(mode="json") for section in (run.config.evaluation, run.config.export)]
    return run.key(
        evaluation=_FORMAT, teachers=teachers, students=students, relevance=run.data.relevance, settings=settings
    )


def _former_metrics(workdir: str) -> dict[str, Any] | None:
    return load_metrics(workdir) if tf.io.gfile.exists(f"{workdir}/{METRICS}") else None


def load_metrics(workdir: str) -> dict[str, Any]:
    """Reads the metrics.json that `evaluate` wrote. Errors: InputError."""
    path = f"{workdir.rstrip('/')}/{METRICS}"
    try:
        content: dict[str, Any] = json.loads(read_file(path, "run `python -m trainer fit` first"))
    except ValueError as error:
        raise InputError(f"{path} is not what fit wrote ({error}): run `python -m trainer fit` again") from None
    return content


def _by_label(run: Run, groups: QueryGroups, scores: dict[str, ModelScores]) -> PerGroup:
    """The metrics of the config on the groups with a positive label."""
    positive = groups.positive
    labels, mask = groups.labels[positive], groups.mask[positive]
    per_group: PerGroup = {}
    for name in run.config.evaluation.metrics:
        metric = TOP_K_METRICS[name]
        for cutoff in run.config.evaluation.cutoffs:
            per_group[f"{name}@{cutoff}"] = {
                RANDOM_ORDER: metric.of_random_order(labels, mask, cutoff),
                **{m: metric.of(labels, s[positive], mask, cutoff) for m, (_, s) in scores.items()},
            }
    return per_group


def _by_relevance(groups: QueryGroups, scores: dict[str, ModelScores], relevance: Floats | None) -> PerGroup:
    """NDCG of true relevance on every group with a relevant item; empty without a relevance file."""
    if relevance is None:
        return {}
    judged = (np.where(groups.mask, relevance, 0.0) > 0).any(axis=1)
    truth, mask = relevance[judged], groups.mask[judged]
    values = {m: ndcg(truth, s[judged], mask, RELEVANCE_CUTOFF) for m, (_, s) in scores.items()}
    random = expected_random_ndcg(truth, mask, RELEVANCE_CUTOFF)
    return {f"relevance_ndcg@{RELEVANCE_CUTOFF}": {RANDOM_ORDER: random, **values}}


def _write_per_group(workdir: str, per_group: PerGroup) -> None:
    flat = {f"{metric}/{name}": v.astype(np.float32) for metric, of in per_group.items() for name, v in of.items()}
    packed = io.BytesIO()
    np.savez_compressed(packed, **flat)
    write_file(f"{workdir}/{PER_GROUP}", packed.getvalue())


def load_per_group(workdir: str) -> PerGroup:
    """Reads the values of each group that `evaluate` wrote beside metrics.json. Errors: InputError."""
    content = read_file(f"{workdir}/{PER_GROUP}", "run `python -m trainer fit` again")
    per_group: PerGroup = {}
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        for key in arrays.files:
            metric, _, name = key.partition("/")
            per_group.setdefault(metric, {})[name] = arrays[key].astype(np.float64)
    return per_group


def summarise(run: Run, per_group: PerGroup, kinds: Mapping[str, str], bm25: dict[str, Any] | None) -> dict[str, Any]:
    """The content of metrics.json: each model's metrics with intervals and gains, and what the test split holds.

    kinds: of each model. bm25: the settings that BM25 was given, and of how many trials; None without BM25.
    """
    config, test = run.config.evaluation, run.statistics("test")
    relevance = per_group.get(f"relevance_ndcg@{RELEVANCE_CUTOFF}")
    models: dict[str, Any] = {name: {"kind": kind} for name, kind in kinds.items()}
    for metric, values in per_group.items():
        bootstrap = PairedBootstrap(
            len(values[RANDOM_ORDER]), config.bootstrap_samples, config.confidence, seed=run.config.seed
        )
        for name, of_model in values.items():
            row = models[name].setdefault(metric, asdict(bootstrap.mean(of_model)))
            if kinds[name] == "student" and name != config.baseline:
                row["gain"] = asdict(bootstrap.relative_gain(of_model, values[config.baseline]))
                if "oracle" in values and not metric.startswith("relevance"):
                    share = bootstrap.share_of_distance(of_model, values[config.baseline], values["oracle"])
                    row["share_of_distance_to_oracle"] = asdict(share) if share else None
    positive = test.groups_with_label / test.groups
    for name in models:
        mean = models[name][f"ndcg@{config.cutoffs[0]}"]["value"]
        # the metrics above exclude groups without a positive; here these count as 0 and as 1
        models[name]["unlabelled_groups_as_0"] = mean * positive
        models[name]["unlabelled_groups_as_1"] = mean * positive + 1.0 - positive
    return {
        "task": run.config.name,
        "inputs": asdict(run.data),
        "seed": run.config.seed,
        "label": run.config.spec.label.name,
        "baseline": config.baseline,
        "exported": run.config.export.recipe,
        "confidence": config.confidence,
        "cutoffs": list(config.cutoffs),
        "test_groups": test.groups,
        "positive_test_groups": test.groups_with_label,
        "relevance_test_groups": len(next(iter(relevance.values()))) if relevance else 0,
        "bm25": bm25,
        "models": models,
    }
