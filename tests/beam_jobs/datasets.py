"""Running build_elwc in tests, and reading what it wrote."""

import gzip
import struct
from pathlib import Path
from typing import Any

import yaml

from beam_jobs import build_elwc
from features.elwc import QueryGroup, View, decode_group
from features.manifest import DatasetManifest, parse_manifest
from features.task import Task
from tests.beam_jobs.log_lines import read_jsonl
from tests.features.specs import DEMO
from tests.published import version_of

ANY_LOSS = {"malformed": 1, "late": 1, "unmatched": 1, "capped": 1}  # dataset.limits of small logs made of faults


def write_task(folder: Path, features: dict[str, Any] | None = None, **sections: Any) -> Path:
    task: Task = {"name": "test", "seed": 3, "features": features or DEMO, **sections}
    path = folder / "task.yaml"
    path.write_text(yaml.safe_dump(task, sort_keys=False))
    return path


def build(config: Path, logs: Path | str, output: Path, *more: str | Path) -> DatasetManifest:
    build_elwc.main(["--config", str(config), "--input", str(logs), "--output", str(output), *map(str, more)])
    return manifest_of(output)


def manifest_of(dataset: Path) -> DatasetManifest:
    return parse_manifest((dataset / "manifest.json").read_bytes(), "test", DatasetManifest)


def records(dataset: Path, split: str, view: View) -> list[bytes]:
    """The records of one view of one split, in order; TFRecord framing read by hand, checksums left to TensorFlow."""
    found = []
    for path in sorted((version_of(dataset) / split).glob(f"{view}_elwc-*-of-*.tfrecord.gz")):
        content = gzip.decompress(path.read_bytes())
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            found.append(content[12 : 12 + length])
            content = content[16 + length :]
    return found


def groups(dataset: Path, view: View = "training", *splits: str) -> dict[str, QueryGroup]:
    """request id -> group, over the splits (all by default)."""
    spec = manifest_of(dataset).spec
    decoded = [
        decode_group(record, spec)
        for split in splits or ("train", "valid", "test")
        for record in records(dataset, split, view)
    ]
    return {str(group.context.get("request_id", index)): group for index, group in enumerate(decoded)}


def read_dead_letters(dataset: Path) -> list[dict[str, Any]]:
    return read_jsonl(*(version_of(dataset) / "dead_letters").iterdir())


def item(group: QueryGroup, item_id: str) -> dict[str, Any]:
    return next(entry for entry in group.items if entry["item_id"] == item_id)
