"""The student as a SavedModel: signatures, manifest, and the guard that no privileged feature can reach it."""

import gzip
import hashlib
import json
from typing import Any

import numpy as np
import tensorflow as tf

from features.errors import InputError
from features.manifest import FILE_NAME, LiteRtGraphs, ModelManifest, stage_key
from features.spec import Feature, FeatureSpec
from trainer.data import item_mask, parse_elwc
from trainer.leak_guard import refuse_privileged
from trainer.litert import write_litert
from trainer.preprocessing import DTYPES, Preprocessor, Tensors
from trainer.ranker import Ranker
from trainer.recipes import Recipe
from trainer.run import Run
from trainer.stages import read_manifest, replace_directory, write_file
from trainer.students import load_student, student_key
from trainer.training import score_batches

EXPORT = 3  # raised when the same model is exported otherwise
EXTRA = "assets.extra"  # SavedModel's own place for files that TensorFlow does not read
WARM_UP_REQUESTS = 3
AGREEMENT = 1e-5  # largest difference allowed between the loaded export's scores and the student's


class Exported(tf.Module):
    """The student with its preprocessing: raw regular values in, logits out."""

    def __init__(self, preprocessor: Preprocessor, model: Ranker) -> None:
        super().__init__(name="exported")
        self.preprocessor, self.weights = preprocessor, model.variables

        def scored(regular: Tensors, mask: tf.Tensor) -> tf.Tensor:
            return model(regular, {}, mask, training=False)

        # a function, not the Keras model: that would be saved with graphs of its own beside the signatures
        self._scored = scored

    def rank(self, **inputs: tf.Tensor) -> Tensors:
        """Raw regular values, as `Preprocessor.regular` takes them, and item_count int32 [groups]."""
        item_count = inputs.pop("item_count")
        items = max_items(self.preprocessor.spec, inputs, item_count)
        mask = item_mask(item_count, items)
        return {"score": self._scored(self.preprocessor.regular(inputs), mask)}

    def rank_elwc(self, examples: tf.Tensor) -> Tensors:
        """Serialised ELWC of the serving view, string [groups]."""
        raw, item_count = parse_elwc(examples, self.preprocessor.spec.regular)
        return self.rank(**raw, item_count=item_count)

    def tokenize(self, text: tf.Tensor) -> Tensors:
        """string [n] -> tokens int32 [n, longest], 0 behind length int32 [n]; not truncated."""
        tokeniser = self.preprocessor.tokeniser
        if tokeniser is None:
            raise ValueError("a spec without text has no tokeniser")
        pieces = tokeniser.tokenize(text)
        return {"tokens": pieces.to_tensor(), "length": tf.cast(pieces.row_lengths(), tf.int32)}

    def prepare(self, **inputs: tf.Tensor) -> Tensors:
        """Raw values of the regular features that are no text -> the ranker's inputs; see `Preprocessor.regular`."""
        return self.preprocessor.others(inputs)

    def signatures(self) -> dict[str, Any]:
        """The contract between trainer and serving; `tokenize` and `prepare` where the spec has what they take."""
        specs = {f.name: signature_input(f) for f in self.preprocessor.spec.regular}
        count = tf.TensorSpec([None], tf.int32, name="item_count")
        examples = tf.TensorSpec([None], tf.string, name="examples")
        found = {
            "rank": graph_of(self.rank).get_concrete_function(**specs, item_count=count),
            "serving_default": graph_of(self.rank_elwc).get_concrete_function(examples),
        }
        if others := {f.name: specs[f.name] for f in self.preprocessor.spec.regular if not f.is_text}:
            found["prepare"] = graph_of(self.prepare).get_concrete_function(**others)
        if self.preprocessor.tokeniser is not None:
            text = tf.TensorSpec([None], tf.string, name="text")
            found["tokenize"] = graph_of(self.tokenize).get_concrete_function(text)
        return found


def graph_of(function: Any) -> Any:
    """The function as a graph; nothing in it needs AutoGraph, which takes seconds to find that out."""
    return tf.function(function, autograph=False)


def signature_input(feature: Feature) -> tf.TensorSpec:
    """A regular feature's input of `rank`: context [groups], item [groups, items], vectors with their length last."""
    shape = [None] if feature.level == "context" else [None, None]
    return tf.TensorSpec(
        [*shape, feature.length] if feature.length > 1 else shape, DTYPES[feature.type], name=feature.name
    )


def max_items(spec: FeatureSpec, raw: Tensors, item_count: tf.Tensor) -> tf.Tensor:
    """The padded number of items: the second axis of any item feature, or the largest count where there is none."""
    for feature in spec.at("item", spec.regular):
        return tf.shape(raw[feature.name])[1]
    return tf.reduce_max(item_count)


def export_student(run: Run, metrics: dict[str, Any]) -> str:
    """Exports the recipe that the task names as the next version, unless the newest one is that very model.

    Returns the version's directory. Errors: InputError when a privileged feature can reach the graph, or the loaded
    export does not score as the student does; nothing is left in place then.
    """
    recipe = run.config.recipes[run.config.export.recipe]
    key = stage_key(
        export=EXPORT, litert=run.config.export.litert, student=student_key(run, recipe), name=run.config.name
    )
    root, versions = f"{run.workdir}/export", _versions(f"{run.workdir}/export")
    if versions and _key_of(f"{root}/{versions[-1]}") == key:
        print(f"  up to date: {root}/{versions[-1]}", flush=True)
        return f"{root}/{versions[-1]}"
    version = (versions[-1] if versions else 0) + 1
    staging = f"{root}/{version}.partial"
    if tf.io.gfile.exists(staging):
        tf.io.gfile.rmtree(staging)
    try:
        _write(run, recipe, key, metrics, staging)
    except InputError:
        tf.io.gfile.rmtree(staging)
        raise
    replace_directory(staging, f"{root}/{version}")
    return f"{root}/{version}"


def _write(run: Run, recipe: Recipe, key: str, metrics: dict[str, Any], staging: str) -> None:
    """A recipe's model, checked, with its manifest. Errors: InputError."""
    model = load_student(run, recipe)
    prepared = Preprocessor(
        run.config.spec, run.statistics("train").features, run.config.student, run.preprocessor.tokeniser
    )
    exported = Exported(prepared, model)
    tf.saved_model.save(exported, staging, signatures=exported.signatures())
    refuse_privileged(staging, run.config.spec)
    _check_loaded(staging, exported, run)
    graphs = write_litert(run, model, staging)
    manifest = _manifest(run, model, key, staging, metrics, graphs)
    write_file(f"{staging}/{EXTRA}/{FILE_NAME}", manifest.to_bytes())


def _versions(root: str) -> list[int]:
    names = tf.io.gfile.listdir(root) if tf.io.gfile.exists(root) else []
    return sorted(int(name.rstrip("/")) for name in names if name.rstrip("/").isdigit())


def _key_of(directory: str) -> str | None:
    try:
        return read_manifest(f"{directory}/{EXTRA}", ModelManifest).stage_key
    except InputError:  # not complete: the next version is written beside it
        return None


def warm_up_requests(run: Run) -> tuple[dict[str, Any], ...]:
    """A few requests in /rank's shape, from queries that enough distinct users made; see `build_elwc`."""
    spec = run.config.spec
    frequent = _frequent_queries(f"{run.config.data.dataset}/train/frequent_queries.jsonl.gz")
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
            if len(requests) == WARM_UP_REQUESTS:
                return tuple(requests.values())
    return tuple(requests.values())


def _frequent_queries(path: str) -> set[str]:
    if not tf.io.gfile.exists(path):
        return set()
    with tf.io.gfile.GFile(path, "rb") as file:
        return {json.loads(line)["query"] for line in gzip.decompress(file.read()).splitlines()}


def _plain(value: Any) -> Any:
    """A NumPy value as JSON has it."""
    if isinstance(value, bytes):
        return value.decode()
    return value.tolist()


def _check_loaded(directory: str, exported: Exported, run: Run) -> None:
    """Loads the export and compares its scores of serving-view bytes with the student's own."""
    loaded = tf.saved_model.load(directory)
    records = next(iter(run.test.serving_records().batch(16)))
    expected = exported.rank_elwc(records)["score"].numpy()
    actual = loaded.signatures["serving_default"](examples=records)["score"].numpy()
    worst = float(np.abs(expected - actual).max())
    if not worst <= AGREEMENT:
        raise InputError(
            f"the loaded export scores differ from the student's by {worst}, expected at most {AGREEMENT}: export again"
        )


def _manifest(
    run: Run, model: Ranker, key: str, directory: str, metrics: dict[str, Any], graphs: LiteRtGraphs | None
) -> ModelManifest:
    spec, statistics = run.config.spec, run.statistics("train").features
    scored = score_batches(model, run.validation)
    counts, edges = np.histogram(1.0 / (1.0 + np.exp(-scored.scores[scored.mask])), bins=20, range=(0.0, 1.0))
    scales = run.preprocessor.scales
    vocabulary = "\n".join(run.inputs.vocabulary).encode()
    student = run.config.student
    return ModelManifest(
        stage_key=key,
        options={"recipe": run.config.export.recipe, "student": student.model_dump(mode="json")},
        name=run.config.name,
        features=spec.to_json(),
        fingerprint=spec.fingerprint,
        files=_hashes(directory),
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
        litert=graphs,
    )


def _hashes(directory: str) -> dict[str, str]:
    """SHA-256 of every file below a directory, by its path inside."""
    hashes = {}
    for folder, _, names in tf.io.gfile.walk(directory):
        for name in names:
            path = f"{folder.rstrip('/')}/{name}"
            with tf.io.gfile.GFile(path, "rb") as file:
                hashes[path.removeprefix(f"{directory}/")] = hashlib.sha256(file.read()).hexdigest()
    return hashes
