"""A SavedModel's signatures as functions of arrays."""

import gc
import os
from pathlib import Path

from serving.model_store import verify
from serving.saved_model import SavedModel

CALLS = 8000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_calls_leave_no_memory_behind(shop_export: Path) -> None:
    model = SavedModel(verify(str(shop_export), 3))
    for _ in range(CALLS // 2):  # until every buffer has its size
        model.tokenize([b"a red sofa", b"lamp"])
    before = resident_bytes()
    for _ in range(CALLS):
        model.tokenize([b"a red sofa", b"lamp"])
    gc.collect()
    assert (resident_bytes() - before) / CALLS < 40  # called eagerly, some 100
