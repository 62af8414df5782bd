"""Exports the task's student as the next version: SavedModel, LiteRT files, warm-up requests and manifest."""

import gzip
import hashlib
import json
from typing import Any

import numpy as np
import tensorflow as tf

from features.errors import InputError
from features.manifest import FILE_NAME, ModelManifest, stage_key
from features.publication import Publication
from trainer.data.preprocessing import Preprocessor
from trainer.export.leak_guard import refuse_privileged
from trainer.export.litert import LiteRtExport, write_litert
from trainer.export.saved_model import ExportedRanker, check_loaded, file_hashes
from trainer.export.versions import EXTRA, place_version, remove_abandoned_copies, versions
from trainer.models.ranker import Ranker
from trainer.pipeline.run import Run
from trainer.pipeline.students import load_student, student_key
from trainer.recipes import Recipe
from trainer.storage.gfile_store import writing_to
from trainer.storage.stages import read_file, read_manifest, write_file
from trainer.training.fit_ranker import score_batches

_EXPORT_FORMAT = 4  # raised when the export of the same model changes
_WARM_UP_REQUESTS = 3


def export_student(run: Run, metrics: dict[str, Any]) -> str:
    """Exports the task's `export.recipe` as the next version, unless the newest version is the same model.

    Returns the version's directory. Errors: InputError when a privileged feature can reach the graph, or when the
    loaded export's scores differ from the student's; then no version is published.
    """
    recipe = run.config.recipes[run.config.export.recipe]
    key = stage_key(
        export=_EXPORT_FORMAT, litert=run.config.export.litert, student=student_key(run, recipe), name=run.config.name
    )
    root = f"{run.workdir}/export"
    newest = versions(root)[-1:]
    if newest and _stage_key_of(f"{root}/{newest[0]}") == key:
        print(f"  up to date: {root}/{newest[0]}", flush=True)
        return f"{root}/{newest[0]}"
    with writing_to(root) as store:
        remove_abandoned_copies(root)
        draft = Publication(store, root)
        try:
            draft.begin()
            _write_export(run, recipe, key, metrics, draft.scratch)
            return place_version(draft.scratch, root, draft.run)
        finally:
            draft.abandon()


def _write_export(run: Run, recipe: Recipe, key: str, metrics: dict[str, Any], staging: str) -> None:
    """Writes a recipe's model with its manifest, and checks it. Errors: InputError."""
    model = load_student(run, recipe)
    model.frozen = None  # what is exported computes every layer
    prepared = Preprocessor(
        run.config.spec, run.statistics("train").features, run.config.student, run.preprocessor.tokeniser
    )
    exported = ExportedRanker(prepared, model)
    tf.saved_model.save(exported, staging, signatures=exported.signatures())
    refuse_privileged(staging, run.config.spec)
    check_loaded(staging, exported, next(iter(run.test.serving_records().batch(16))))
    example, cutoff = run.train.example["regular"], run.config.evaluation.cutoffs[0]
    litert = write_litert(model, run.config.export, example, run.validation, cutoff, staging)
    manifest = _manifest(run, model, key, staging, metrics, litert)
    write_file(f"{staging}/{EXTRA}/{FILE_NAME}", manifest.to_bytes())


def _stage_key_of(directory: str) -> str | None:
    try:
        return read_manifest(f"{directory}/{EXTRA}", ModelManifest).stage_key
    except InputError:  # incomplete: the next version gets another number
        return None


def warm_up_requests(run: Run) -> tuple[dict[str, Any], ...]:
    """A few /rank requests of training groups whose query has enough distinct users; see `build_elwc`."""
    spec = run.config.spec
    frequent = _frequent_queries(run)
    requests: dict[str, dict[str, Any]] = {}
    for raw, counts in run.train.raw(tuple(f.name for f in spec.regular)).take(40).as_numpy_iterator():
        for g, count in enumerate(counts):
            context = {f.name: _plain(raw[f.name][g]) for f in spec.at("context", spec.regular)}
            name = str(context.get("query", ""))
            if ("query" not in spec or name in frequent) and name not in requests and count > 1:
                items = [
                    {f.name: _plain(raw[f.name][g, i]) for f in spec.at("item", spec.regular)} for i in range(count)
                ]
                requests[name] = {**context, "items": [{"id": str(i + 1), **item} for i, item in enumerate(items)]}
            if len(requests) == _WARM_UP_REQUESTS:
                return tuple(requests.values())
    return tuple(requests.values())


def _frequent_queries(run: Run) -> set[str]:
    name = "train/frequent_queries.jsonl.gz"
    if name not in run.inputs.dataset.files:
        return set()
    content = read_file(run.inputs.dataset.file_path(run.data.dataset, name), "run build_elwc again")
    return {json.loads(line)["query"] for line in gzip.decompress(content).splitlines()}


def _plain(value: Any) -> Any:
    """A NumPy value as a JSON value."""
    if isinstance(value, bytes):
        return value.decode()
    return value.tolist()


def _manifest(
    run: Run, model: Ranker, key: str, directory: str, metrics: dict[str, Any], litert: LiteRtExport
) -> ModelManifest:
    spec, statistics = run.config.spec, run.statistics("train").features
    scored = score_batches(model, run.validation)
    counts, edges = np.histogram(1.0 / (1.0 + np.exp(-scored.scores[scored.mask])), bins=20, range=(0.0, 1.0))
    scales = run.preprocessor.scales
    vocabulary = "\n".join(run.inputs.vocabulary).encode()
    student = run.config.recipe_architecture[run.config.export.recipe]
    return ModelManifest(
        stage_key=key,
        options={"recipe": run.config.export.recipe, "student": student.model_dump(mode="json")},
        name=run.config.name,
        features=spec.to_json(),
        fingerprint=spec.fingerprint,
        files=file_hashes(directory),
        tokeniser=hashlib.sha256(vocabulary).hexdigest() if vocabulary else "",
        limits={"max_context_tokens": student.max_context_tokens, "max_item_tokens": student.max_item_tokens},
        ranges={
            f.name: (scales[f.name].minimum, scales[f.name].maximum)
            for f in spec.regular
            if f.is_numeric and statistics
        },
        score_histogram={"edges": edges.tolist(), "counts": counts.tolist()},
        metrics={
            "test": metrics["models"][run.config.export.recipe],
            "positive_test_groups": metrics["positive_test_groups"],
        },
        parents={**run.inputs.keys, "student": student_key(run, run.config.recipes[run.config.export.recipe])},
        warm_up=warm_up_requests(run),
        litert=litert.graphs,
        no_litert=litert.left_out,
    )
