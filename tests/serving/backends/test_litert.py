"""The backend `litert` refuses a version that it cannot run; the message has a remedy."""

from pathlib import Path
from typing import Any

import pytest

from features.errors import InputError
from features.manifest import Agreement, LiteRtGraphs, litert_file
from serving.settings import LiteRt, Settings
from tests.serving import exported_models

AGREEMENT = Agreement(ndcg_change=0.0, kendall_tau=1.0, largest_difference=0.0)
GRAPHS = LiteRtGraphs(
    pairs=8, context_lengths=(8,), item_lengths=(8,), split=False, features={}, precisions={"float": AGREEMENT}
)


def refusal(folder: Path, precision: Any = "auto") -> str:
    """Returns the reason for refusing the version, as the gateway would log it."""
    settings = Settings(export_dir=str(folder), backend="litert", litert=LiteRt(precision=precision))
    with pytest.raises(InputError) as caught:
        exported_models.load_backend(folder, 1, settings)
    return str(caught.value)


def export_with(folder: Path, graphs: LiteRtGraphs, content: bytes = b"no flatbuffer") -> Path:
    path = exported_models.export(folder)
    (path / litert_file("float")).parent.mkdir(parents=True)
    (path / litert_file("float")).write_bytes(content)
    exported_models.write_manifest(path, exported_models.SHOP, litert=graphs)
    return folder


def test_a_version_without_litert_files_is_refused(shop_export: Path) -> None:
    settings = Settings(export_dir=str(shop_export), backend="litert")
    expected = r"holds no LiteRT files \(its export asked for none\): set `backend: embedded`"
    with pytest.raises(InputError, match=expected):
        exported_models.load_backend(shop_export, 3, settings)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    assert "LiteRT cannot run its graphs" in refusal(export_with(tmp_path, GRAPHS))


def test_graphs_that_take_a_privileged_feature_are_refused(tmp_path: Path) -> None:
    folder = export_with(tmp_path, GRAPHS.model_copy(update={"features": {"click": "item"}}))
    assert "the LiteRT graphs and the regular features differ in 'click'" in refusal(folder)


def test_a_precision_that_the_export_did_not_keep_is_refused(tmp_path: Path) -> None:
    told = refusal(export_with(tmp_path, GRAPHS), "int8")
    assert "litert.precision is 'int8', but the export kept float only (its export did not ask for it): set" in told


def test_a_file_that_was_changed_after_the_export_is_refused(tmp_path: Path) -> None:
    folder = export_with(tmp_path, GRAPHS)
    (folder / "1" / litert_file("float")).write_bytes(b"another")
    with pytest.raises(InputError, match=r"litert/float.tflite has SHA-256 .*, expected"):
        exported_models.verify(folder)
