"""What the loading of a backend leaves to the collector of garbage."""

import gc
from pathlib import Path

from serving.backends import backend_of
from serving.model_store import verify
from serving.settings import Settings


def test_collections_spare_what_was_imported_but_no_model(shop_export: Path) -> None:
    settings = Settings(export_dir=str(shop_export))
    backends = [backend_of(verify(str(shop_export), 3), settings) for _ in range(2)]
    assert gc.get_freeze_count() > 100_000
    collected = {id(thing) for thing in gc.get_objects()}
    assert {id(backend) for backend in backends} <= collected
