"""Garbage collection after a backend is loaded."""

import gc
from pathlib import Path

from serving.settings import Settings
from tests.serving import exported_models


def test_imported_modules_are_excluded_from_garbage_collection_but_models_are_not(shop_export: Path) -> None:
    settings = Settings(export_dir=str(shop_export))
    backends = [exported_models.load_backend(shop_export, 3, settings) for _ in range(2)]
    assert gc.get_freeze_count() > 100_000
    collected = {id(thing) for thing in gc.get_objects()}
    assert {id(backend) for backend in backends} <= collected
