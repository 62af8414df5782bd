"""Time and memory that JSON parsers need for the largest hostile request bodies.

`python -m benchmarks.request_bodies`
"""

import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pydantic

from benchmarks.figures import emit
from serving.problems import Problem
from serving.ranking.body_decoder import BodyDecoder, Mismatch, Scalar, list_of, struct_of

_SIZE = 8 << 20  # bytes
_HEAD = b'{"query":"a","items":["b"],'
_BODIES: dict[str, Callable[[], bytes]] = {
    "800000_keys": lambda: _HEAD + b",".join(b'"%x":0' % number for number in range(800_000)) + b"}",
    "lists_in_a_list": lambda: _HEAD + b'"x":[' + b"[0]," * (_SIZE // 4 - 20) + b"0]}",
    "objects_as_items": lambda: b'{"query":"a","items":[' + b"{}," * (_SIZE // 3 - 20) + b"{}]}",
    "4_million_escapes": lambda: b'{"query":"' + b"\\n" * (_SIZE // 2 - 20) + b'","items":["b"]}',
}


class _Body(pydantic.BaseModel, extra="forbid"):
    query: str
    items: list[str]


def _decode_with_msgspec(body: bytes) -> None:
    item = struct_of("Item", {"title": Scalar})
    fields = {"query": Scalar, "items": list_of(item | Scalar, 1000) | Scalar}
    BodyDecoder(struct_of("Body", fields), list_field="items").decode(body)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "msgspec": _decode_with_msgspec,
    "orjson": orjson.loads,
    "json": json.loads,
    "pydantic": _Body.model_validate_json,
}
_REFUSALS = (Mismatch, Problem, ValueError, msgspec.MsgspecError)


def _costs_of(decoder: str, kind: str) -> tuple[float, float]:
    """CPU milliseconds and peak megabytes of decoding one body in a fresh process."""
    body = _BODIES[kind]()
    Path("/proc/self/clear_refs").write_text("5")
    before, began = _peak(), time.thread_time()
    try:
        decoded = _DECODERS[decoder](body)
    except _REFUSALS:
        decoded = None
    seconds = time.thread_time() - began
    del decoded
    return 1000 * seconds, _peak() - before


def _peak() -> float:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 1000 for line in status.splitlines() if line.startswith("VmHWM:"))


def main() -> None:
    context = multiprocessing.get_context("spawn")
    for kind in _BODIES:
        for decoder in _DECODERS:
            with context.Pool(1) as pool:
                milliseconds, megabytes = pool.apply(_costs_of, (decoder, kind))
            emit(f"{decoder}_{kind}_time", milliseconds, "CPU ms")
            emit(f"{decoder}_{kind}_memory", megabytes, "MB")


if __name__ == "__main__":
    main()
