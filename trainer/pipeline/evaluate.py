"""Every model, the random order, BM25 and the oracle on the same test groups, with paired intervals."""

import io
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from trainer.metrics import TOP_K_METRICS, Floats, PairedBootstrap, expected_random_ndcg, ndcg
from trainer.ranker import Ranker
from trainer.references import Bm25, read_relevance
from trainer.run import Run
from trainer.stages import read_file, write_file
from trainer.students import student_key, trained_student
from trainer.teachers import key_of as teacher_key
from trainer.teachers import trained_teacher
from trainer.training import score_batches

METRICS, PER_GROUP = "metrics.json", "metrics_per_group.npz"
RELEVANCE_CUTOFF = 8


@dataclass(frozen=True)
class TestGroups:
    """The test split's positive groups, padded. texts, items: [groups][items]."""

    labels: Floats
    mask: NDArray[np.bool_]
    queries: list[str]
    titles: list[list[str]]
    item_ids: list[list[str]]  # empty where the spec has no item identifier


def evaluate(run: Run) -> dict[str, Any]:
    """Measures all models of a run; writes metrics.json and, for later comparisons, each group's values.

    Skipped when metrics.json holds these very models, measured in this way.
    Errors: InputError when the test split has no positive group.
    """
    key = _key(run)
    if (former := _former_metrics(run.workdir)) and former.get("stage_key") == key:
        print(f"  up to date: {run.workdir}/{METRICS}", flush=True)
        return former
    groups = read_test_groups(run)
    with_text = {f.level for f in run.config.spec.regular if f.is_text}
    scores = {"bm25": ("reference", _bm25_scores(run, groups))} if with_text == {"context", "item"} else {}
    relevance = _relevance(run, groups)
    if relevance is not None:
        scores["oracle"] = ("reference", relevance)
    scores |= {name: ("teacher", s) for name, s in _teacher_scores(run).items()}
    scores |= {name: ("imputed", s) for name, s in _imputed_scores(run).items()}
    scores |= {name: ("student", s) for name, s in _student_scores(run).items()}
    per_group = _per_group(run, groups, {name: s for name, (_, s) in scores.items()}, relevance)
    kinds = {"random_order": "reference", **{name: kind for name, (kind, _) in scores.items()}}
    metrics = {"stage_key": key, **_summarised(run, per_group, kinds)}
    write_file(f"{run.workdir}/{METRICS}", (json.dumps(metrics, indent=1) + "\n").encode())
    return metrics


def _key(run: Run) -> str:
    """The stage key of metrics.json: the models that it measures, against what, and how."""
    teachers = {name: teacher_key(run, teacher) for name, teacher in run.config.teachers.items()}
    students = {name: student_key(run, recipe) for name, recipe in run.config.recipes.items()}
    settings = [section.model_dump(mode="json") for section in (run.config.evaluation, run.config.export)]
    return run.key(teachers=teachers, students=students, relevance=run.config.data.relevance, settings=settings)


def _former_metrics(workdir: str) -> dict[str, Any] | None:
    return load_metrics(workdir) if tf.io.gfile.exists(f"{workdir}/{METRICS}") else None


def load_metrics(workdir: str) -> dict[str, Any]:
    """What `evaluate` wrote. Errors: InputError."""
    path = f"{workdir.rstrip('/')}/{METRICS}"
    try:
        content: dict[str, Any] = json.loads(read_file(path, "run `python -m trainer fit` first"))
    except ValueError as error:
        raise InputError(f"{path} is not what fit wrote ({error}): run `python -m trainer fit` again") from None
    return content


def read_test_groups(run: Run) -> TestGroups:
    """The positive groups of the test split with their texts, in file order, as `score` returns their scores."""
    spec = run.config.spec
    sides = {level: [f.name for f in spec.at(level, spec.regular) if f.is_text] for level in ("context", "item")}
    if "query" in spec:  # what BM25 and true relevance go by, an identifier too, whatever other texts a context has
        sides["context"] = ["query"]
    identifiers = [f.name for f in spec.at("item") if f.role == "id"][:1]
    label = spec.label.name
    queries, titles, item_ids, labels = [], [], [], []
    names = (*sides["context"], *sides["item"], *identifiers, label)
    for raw, counts in run.test.raw(names).as_numpy_iterator():
        for g in np.flatnonzero((raw[label] > 0).any(axis=1)):
            n = counts[g]
            queries.append(" ".join(raw[name][g].decode() for name in sides["context"]))
            titles.append([" ".join(raw[name][g, i].decode() for name in sides["item"]) for i in range(n)])
            item_ids.append([raw[identifiers[0]][g, i].decode() for i in range(n)] if identifiers else [])
            labels.append(raw[label][g, :n].astype(np.float64))
    if not labels:
        raise InputError(
            f"dataset {run.config.data.dataset}: test has no group with a {label}, expected some to measure on: "
            "bring logs of more requests, or give the test split a larger share in `dataset:`"
        )
    padded, mask = _padded(labels)
    return TestGroups(padded, mask, queries, titles, item_ids)


def _padded(rows: list[Floats]) -> tuple[Floats, NDArray[np.bool_]]:
    mask = np.arange(max(map(len, rows))) < np.array([len(row) for row in rows])[:, None]
    padded = np.zeros(mask.shape)
    padded[mask] = np.concatenate(rows)
    return padded, mask


def _bm25_scores(run: Run, groups: TestGroups) -> Floats:
    spec = run.config.spec
    names = tuple(f.name for f in spec.at("item", spec.regular) if f.is_text)
    seen: set[str] = set()
    if names:
        for raw, counts in run.train.raw((*names, spec.label.name)).as_numpy_iterator():
            real = np.arange(raw[names[0]].shape[1]) < counts[:, None]
            seen.update(b" ".join(parts).decode() for parts in zip(*(raw[name][real] for name in names), strict=True))
    bm25 = Bm25(seen)
    rows = [
        np.array([bm25(q, title) for title in titles]) for q, titles in zip(groups.queries, groups.titles, strict=True)
    ]
    return _padded(rows)[0]


def _relevance(run: Run, groups: TestGroups) -> Floats | None:
    """True relevance of each test item; None where it is not known, or items have no identifier."""
    path = run.config.data.relevance
    if path is None or not groups.item_ids[0]:
        return None
    known = read_relevance(path)
    pairs = zip(groups.queries, groups.item_ids, strict=True)
    relevance = _padded([np.array([known.get((query, item), 0.0) for item in items]) for query, items in pairs])[0]
    if not relevance.any():
        raise InputError(
            f"data.relevance {path} has no relevance above 0 for any item of the positive test groups, expected some: "
            "give the file that belongs to these logs, or remove it"
        )
    return relevance


def _teacher_scores(run: Run) -> dict[str, Floats]:
    return {
        f"teacher_{teacher.name}": _test_scores(run, trained_teacher(run, teacher))
        for teacher in run.config.teachers.values()
    }


def _imputed_scores(run: Run) -> dict[str, Floats]:
    """Teachers as if they served: every privileged value is 0, or training's mean (Yang et al. 2022, Table 6)."""
    return {
        f"teacher_{teacher.name}_imputed_{way}": _test_scores(run, trained_teacher(run, teacher), way)
        for teacher in run.config.teachers.values()
        if teacher.sees
        for way in run.config.evaluation.impute
    }


def _student_scores(run: Run) -> dict[str, Floats]:
    scores: dict[str, Floats] = {}
    for recipe in run.config.recipes.values():
        if recipe.averages:
            scores[recipe.name] = np.mean([scores[name] for name in recipe.averages], axis=0)
        else:
            scores[recipe.name] = _test_scores(run, trained_student(run, recipe))
    return scores


def _test_scores(run: Run, model: Ranker, impute: str | None = None) -> Floats:
    batches = run.testing
    if impute:
        batches = batches.map(lambda b: {**b, "privileged": run.preprocessor.imputed(b["privileged"], impute)})
    return score_batches(model, batches).scores


def _per_group(
    run: Run, groups: TestGroups, scores: dict[str, Floats], relevance: Floats | None
) -> dict[str, dict[str, Floats]]:
    """metric -> model -> its value for each test group, also written to a file that holds numbers alone."""
    per_group: dict[str, dict[str, Floats]] = {}
    labels, mask = groups.labels, groups.mask
    for name in run.config.evaluation.metrics:
        metric = TOP_K_METRICS[name]
        for cutoff in run.config.evaluation.cutoffs:
            per_group[f"{name}@{cutoff}"] = {
                "random_order": metric.of_random_order(labels, mask, cutoff),
                **{model: metric.of(labels, s[:, : mask.shape[1]], mask, cutoff) for model, s in scores.items()},
            }
    if relevance is not None:
        judged = (np.where(groups.mask, relevance, 0.0) > 0).any(axis=1)
        truth, mask = relevance[judged], groups.mask[judged]
        values = {n: ndcg(truth, s[judged, : mask.shape[1]], mask, RELEVANCE_CUTOFF) for n, s in scores.items()}
        random = expected_random_ndcg(truth, mask, RELEVANCE_CUTOFF)
        per_group[f"relevance_ndcg@{RELEVANCE_CUTOFF}"] = {"random_order": random, **values}
    flat = {
        f"{metric}/{name}": v.astype(np.float32) for metric, models in per_group.items() for name, v in models.items()
    }
    packed = io.BytesIO()
    np.savez_compressed(packed, **flat)
    write_file(f"{run.workdir}/{PER_GROUP}", packed.getvalue())
    return per_group


def _summarised(run: Run, per_group: dict[str, dict[str, Floats]], kinds: dict[str, str]) -> dict[str, Any]:
    config, test = run.config.evaluation, run.statistics("test")
    models: dict[str, Any] = {name: {"kind": kind} for name, kind in kinds.items()}
    for metric, values in per_group.items():
        bootstrap = PairedBootstrap(
            len(values["random_order"]), config.bootstrap_samples, config.confidence, seed=run.config.seed
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
        # groups without a positive are left out above; here they count as 0 and as 1
        models[name]["unlabelled_groups_as_0"] = mean * positive
        models[name]["unlabelled_groups_as_1"] = mean * positive + 1.0 - positive
    return {
        "task": run.config.name,
        "seed": run.config.seed,
        "label": run.config.spec.label.name,
        "baseline": config.baseline,
        "exported": run.config.export.recipe,
        "confidence": config.confidence,
        "cutoffs": list(config.cutoffs),
        "test_groups": test.groups,
        "positive_test_groups": test.groups_with_label,
        "models": models,
    }
