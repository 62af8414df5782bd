"""The SavedModel as serving finds it: signatures, scores, hashes, and that it appears whole or not at all."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from features.elwc import decode_group
from features.errors import InputError
from features.manifest import ModelManifest, litert_file, parse_manifest
from tests.trainer.conftest import Fitted
from tests.trainer.shop import PIECES
from trainer.export import litert
from trainer.export.saved_model import ExportedRanker, signature_input
from trainer.pipeline import export
from trainer.pipeline.run import Run
from trainer.pipeline.students import student_directory
from trainer.training.fit_ranker import score


@pytest.fixture(scope="module")
def version(fitted: Fitted) -> Path:
    return fitted.workdir / "export" / "1"


@pytest.fixture(scope="module")
def loaded(version: Path) -> Any:
    return tf.saved_model.load(str(version))


@pytest.fixture(scope="module")
def trained(fitted: Fitted) -> Run:
    return Run(fitted.config, fitted.data, str(fitted.workdir))


@pytest.fixture(scope="module")
def manifest(version: Path) -> ModelManifest:
    path = version / "assets.extra" / "manifest.json"
    return parse_manifest(path.read_bytes(), str(path), ModelManifest)


def serving_records(fitted: Fitted) -> list[bytes]:
    files = sorted(map(str, (fitted.root / "dataset" / "test").glob("serving_elwc-*")))
    return list(tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator())


def rank_inputs(records: list[bytes], spec: Any) -> dict[str, tf.Tensor]:
    """The inputs of `rank` from the contract's own decoding of ELWC, padded with values that must not matter."""
    groups = [decode_group(record, spec) for record in records]
    widest = max(len(group.items) for group in groups)
    inputs: dict[str, tf.Tensor] = {"item_count": tf.constant([len(g.items) for g in groups], tf.int32)}
    for feature in spec.regular:
        signature = signature_input(feature)
        if feature.level == "context":
            values = [group.context[feature.name] for group in groups]
        else:
            values = [
                [item[feature.name] for item in g.items] + [g.items[0][feature.name]] * (widest - len(g.items))
                for g in groups
            ]
        inputs[feature.name] = tf.constant(values, signature.dtype)
    return inputs


def test_the_signatures_are_the_contract_with_serving(loaded: Any) -> None:
    def described(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        signature = loaded.signatures[name]
        inputs = {n: (spec.dtype, spec.shape.as_list()) for n, spec in signature.structured_input_signature[1].items()}
        return inputs, {n: (t.dtype, t.shape.rank) for n, t in signature.structured_outputs.items()}

    assert set(loaded.signatures) == {"rank", "serving_default", "tokenize", "prepare"}
    inputs, outputs = described("rank")
    assert inputs == {
        "query": (tf.string, [None]),
        "title": (tf.string, [None, None]),
        "price": (tf.float32, [None, None]),
        "brand": (tf.string, [None, None]),
        "picture": (tf.float32, [None, None, 3]),
        "reviews": (tf.int64, [None, None]),
        "in_stock": (tf.bool, [None, None]),
        "item_count": (tf.int32, [None]),
    }
    assert outputs == {"score": (tf.float32, 2)}
    assert described("serving_default") == ({"examples": (tf.string, [None])}, {"score": (tf.float32, 2)})
    assert described("tokenize") == ({"text": (tf.string, [None])}, {"tokens": (tf.int32, 2), "length": (tf.int32, 1)})
    others = {name: values for name, values in inputs.items() if name not in ("query", "title", "item_count")}
    assert described("prepare")[0] == others


def test_the_manifest_names_the_litert_file_that_agrees_with_the_student(
    version: Path, manifest: ModelManifest
) -> None:
    assert manifest.litert is not None
    assert manifest.litert.features == dict.fromkeys(("price", "brand", "picture", "reviews", "in_stock"), "item")
    assert manifest.litert.precisions["float"].largest_difference < 1e-5
    assert {path for path in manifest.files if "litert" in path} == {litert_file("float")}
    assert (version / litert_file("float")).exists()


def test_both_signatures_score_as_the_student_does(fitted: Fitted, trained: Run, loaded: Any) -> None:
    recipe = fitted.config.recipes["student"]
    student = trained.load_ranker(student_directory(trained, recipe))
    from trainer.data.batches import with_label

    expected = score(student, with_label(trained.test.groups, "purchase"))
    records = serving_records(fitted)
    by_bytes = loaded.signatures["serving_default"](examples=tf.constant(records))["score"].numpy()
    by_values = loaded.signatures["rank"](**rank_inputs(records, fitted.config.spec))["score"].numpy()
    wide = by_bytes.shape[1]
    assert by_values.shape == by_bytes.shape
    assert np.abs(expected.scores[expected.mask]).max() > 0.1
    np.testing.assert_allclose(by_bytes, expected.scores[:, :wide], atol=1e-5)
    np.testing.assert_allclose(by_values, expected.scores[:, :wide], atol=1e-5)


def test_scores_behind_item_count_are_0(fitted: Fitted, loaded: Any) -> None:
    inputs = rank_inputs(serving_records(fitted), fitted.config.spec)
    scores = loaded.signatures["rank"](**inputs)["score"].numpy()
    behind = np.arange(scores.shape[1]) >= inputs["item_count"].numpy()[:, None]
    assert behind.any()
    assert (scores[behind] == 0.0).all()
    assert (scores[~behind] != 0.0).all()


def test_a_score_does_not_depend_on_the_request_around_it(fitted: Fitted, loaded: Any) -> None:
    records = serving_records(fitted)
    together = loaded.signatures["serving_default"](examples=tf.constant(records))["score"].numpy()
    for index in (0, 7):
        alone = loaded.signatures["serving_default"](examples=tf.constant(records[index : index + 1]))["score"].numpy()
        np.testing.assert_allclose(alone[0], together[index, : alone.shape[1]], atol=1e-5)


def test_privileged_values_in_the_bytes_change_no_score(fitted: Fitted, loaded: Any) -> None:
    files = sorted(map(str, (fitted.root / "dataset" / "test").glob("training_elwc-*")))
    training = list(tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator())
    rank = loaded.signatures["serving_default"]
    with_them = rank(examples=tf.constant(training))["score"].numpy()
    without = rank(examples=tf.constant(serving_records(fitted)))["score"].numpy()
    np.testing.assert_array_equal(with_them, without)


def test_tokenize_is_the_training_tokeniser(loaded: Any) -> None:
    found = loaded.signatures["tokenize"](text=tf.constant(["Réd sofas", "lamp"]))
    assert found["length"].numpy().tolist() == [3, 1]
    words = [PIECES.index(piece) for piece in ("red", "sofa", "##s", "lamp")]
    assert found["tokens"].numpy().tolist() == [words[:3], [words[3], 0, 0]]


def test_the_manifest_hashes_every_file(version: Path, manifest: ModelManifest) -> None:
    files = {
        str(path.relative_to(version)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in version.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert manifest.files == files
    assert "saved_model.pb" in files


def test_the_manifest_says_what_serving_needs(fitted: Fitted, manifest: ModelManifest) -> None:
    assert manifest.spec.fingerprint == manifest.fingerprint == fitted.config.spec.fingerprint
    assert manifest.limits == {"max_context_tokens": 16, "max_item_tokens": 12}
    assert set(manifest.ranges) == {"price", "picture", "reviews", "in_stock"}
    assert manifest.ranges["in_stock"] == (0.0, 1.0)
    assert sum(manifest.score_histogram["counts"]) > 0
    assert len(manifest.score_histogram["edges"]) == len(manifest.score_histogram["counts"]) + 1
    assert manifest.metrics["test"]["ndcg@8"] == fitted.metrics["models"]["student"]["ndcg@8"]
    assert {"dataset", "vocabulary", "student"} <= set(manifest.parents)


def test_warm_up_requests_hold_regular_features_of_frequent_queries(fitted: Fitted, manifest: ModelManifest) -> None:
    regular = {feature.name for feature in fitted.config.spec.regular}
    assert manifest.warm_up
    for request in manifest.warm_up:
        assert set(request) == {"query", "items"}
        assert all(set(item) == {"id", *regular} - {"query"} for item in request["items"])


class Smuggler(ExportedRanker):
    """A student whose `rank` takes a click and ignores it, for now."""

    def signatures(self) -> dict[str, Any]:
        def rank(item_count: tf.Tensor, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
            inputs.pop("click")
            return self.rank(item_count=item_count, **inputs)

        specs = {f.name: signature_input(f) for f in self.preprocessor.spec.regular}
        specs["click"] = tf.TensorSpec([None, None], tf.bool, name="click")
        specs["item_count"] = tf.TensorSpec([None], tf.int32, name="item_count")
        return {**super().signatures(), "rank": tf.function(rank).get_concrete_function(**specs)}


class Wavering(ExportedRanker):
    """A student that scores differently once it is loaded."""

    def rank_elwc(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        scores = super().rank_elwc(examples)["score"]
        return {"score": scores if tf.executing_eagerly() else scores + 0.001}


class LargeLogits(Wavering):
    """A student of logits around 5000, which float32 rounds to 0.0005; 0.01 of that is noise."""

    def rank_elwc(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"score": 5000.0 + 10.0 * super().rank_elwc(examples)["score"]}


def test_without_a_converter_the_saved_model_alone_is_exported_and_a_litert_gateway_says_why(
    fitted: Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from serving.backends.registry import create_backend
    from serving.exports.store import verified_copy
    from serving.settings import Settings

    (tmp_path / "students").symlink_to(fitted.workdir / "students")
    # TensorFlow's own error, of a graph without the signature that it is asked for
    monkeypatch.setattr(litert.FixedShapeGraphs, "signatures", lambda self: {"none": tf.constant(0)})
    version = Path(export.export_student(Run(fitted.config, fitted.data, str(tmp_path)), fitted.metrics))
    assert "LiteRT float: left out, its conversion failed: " in (told := capsys.readouterr().out)
    assert "Traceback" not in told
    path = version / "assets.extra" / "manifest.json"
    written = parse_manifest(path.read_bytes(), str(path), ModelManifest)
    assert written.litert is None
    assert written.no_litert["float"].startswith("its conversion failed: ")
    assert not (version / "assets.extra" / "litert").exists()
    assert tf.saved_model.load(str(version)).signatures["rank"] is not None
    with pytest.raises(InputError) as refused, verified_copy(str(tmp_path / "export"), 1) as model:
        create_backend(model, Settings(export_dir=str(tmp_path / "export"), backend="litert"))
    assert f"holds no LiteRT files (float: {written.no_litert['float']}): set `backend: embedded`" in str(refused.value)


@pytest.mark.parametrize(
    ("exported", "complaint"),
    [
        (Smuggler, r"reads 'click' \(privileged\) in signature rank"),
        pytest.param(Wavering, "differ from the student's by 0.001", marks=pytest.mark.slow),
    ],
)
def test_an_export_that_fails_its_check_leaves_nothing_behind(
    fitted: Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exported: type, complaint: str
) -> None:
    (tmp_path / "students").symlink_to(fitted.workdir / "students")
    monkeypatch.setattr(export, "ExportedRanker", exported)
    with pytest.raises(InputError, match=complaint):
        export.export_student(Run(fitted.config, fitted.data, str(tmp_path)), fitted.metrics)
    assert not (tmp_path / "export").exists()


@pytest.mark.slow
def test_large_logits_are_compared_by_their_size(
    fitted: Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "students").symlink_to(fitted.workdir / "students")
    monkeypatch.setattr(export, "ExportedRanker", LargeLogits)
    assert export.export_student(Run(fitted.config, fitted.data, str(tmp_path)), fitted.metrics)
