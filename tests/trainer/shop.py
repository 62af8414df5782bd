"""A tiny shop's dataset, written as build_elwc writes one: every feature type, and purchases that follow a rule."""

import gzip
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import yaml

from features.elwc import QueryGroup, encode_group
from features.manifest import (
    DatasetManifest,
    EventCounts,
    FeatureStatistics,
    SplitStatistics,
    StoredFile,
    VocabularyManifest,
)
from features.publication import stored_file
from features.spec import FeatureSpec, spec_from_json
from trainer.pipeline.inputs import DataPaths

FEATURES: dict[str, Any] = {
    "request_id": {"type": "text", "level": "context", "role": "id"},
    "query": {"type": "text", "level": "context"},
    "item_id": {"type": "text", "level": "item", "role": "id"},
    "title": {"type": "text", "level": "item"},
    "price": {"type": "float", "level": "item", "default": 10.0},
    "brand": {"type": "categorical", "level": "item", "default": "none"},
    "picture": {"type": "float", "level": "item", "length": 3, "default": [0.0, 0.0, 0.0]},
    "reviews": {"type": "int", "level": "item", "default": 0},
    "in_stock": {"type": "bool", "level": "item", "default": True},
    "position": {"type": "int", "level": "item", "role": "privileged"},
    "click": {"type": "bool", "level": "item", "role": "privileged"},
    "purchase": {"type": "bool", "level": "item", "role": "label"},
}
# The same without text: models of numbers are built in a second, ones of text in several.
NUMBERS: dict[str, Any] = {
    name: {**FEATURES[name], **({"role": "id"} if name == "query" else {})} for name in FEATURES if name != "title"
}
WORDS = ["red", "blue", "green", "sofa", "lamp", "table", "chair", "rug"]
PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *WORDS,
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
]
STUDENT = {"layers": 1, "width": 16, "heads": 2, "feed_forward": 32, "hidden": [16], "max_item_tokens": 12}
SPLITS = {"train": 96, "valid": 32, "test": 32}


def make_group(number: int, generator: random.Random) -> QueryGroup:
    """A query of two words; a title that holds both was clicked, and bought in three groups of four."""
    colour, thing = generator.choice(WORDS[:3]), generator.choice(WORDS[3:])
    items = []
    for i in range(generator.randint(2, 11)):
        title = [generator.choice(WORDS[:3]), generator.choice(WORDS[3:])] if i else [colour, thing]
        fits = title == [colour, thing]
        items.append(
            {
                "item_id": f"p{number}-{i}",
                "title": " ".join(title + [generator.choice(WORDS)] * (i % 3)),
                "price": generator.uniform(1.0, 99.0),
                "brand": generator.choice(["acme", "bolt"]),
                "picture": tuple(generator.random() for _ in range(3)),
                "reviews": generator.randint(0, 500),
                "in_stock": generator.random() < 0.8,
                "position": i,
                "click": fits,
                "purchase": fits and number % 4 > 0,
            }
        )
    generator.shuffle(items)
    return QueryGroup({"request_id": f"r{number}", "query": f"{colour} {thing}"}, items)


def statistics_of(groups: list[QueryGroup], spec: FeatureSpec) -> SplitStatistics:
    features = {}
    for feature in spec:
        values = [g.context[feature.name] for g in groups if feature.level == "context"]
        values = values or [item[feature.name] for g in groups for item in g.items]
        if feature.type == "categorical":
            counts = {str(v): values.count(v) for v in sorted(set(values))}
            features[feature.name] = FeatureStatistics(count=len(values), values=counts)
        elif feature.is_numeric:
            rows = np.asarray(values, np.float64)
            found = {"minimum": rows.min(0), "maximum": rows.max(0), "mean": rows.mean(0), "deviation": rows.std(0)}
            numbers = {name: tuple(n.tolist()) if n.ndim else float(n) for name, n in found.items()}
            features[feature.name] = FeatureStatistics(count=len(values), **numbers)
        else:
            features[feature.name] = FeatureStatistics(count=len(values), longest=max(map(len, values)))
    positive = sum(any(item[spec.label.name] for item in g.items) for g in groups)
    items = sum(len(g.items) for g in groups)
    return SplitStatistics(groups=len(groups), groups_with_label=positive, items=items, features=features)


def write_shop(root: Path, features: dict[str, Any] = FEATURES) -> Path:
    """Dataset, vocabulary, relevance and a task file below `root`; returns the task file."""
    spec, generator = spec_from_json(features), random.Random(5)
    splits, relevance, number = {}, ["query\titem_id\trelevance"], 0
    for split, size in SPLITS.items():
        groups = [make_group(number + i, generator) for i in range(size)]
        number += size
        splits[split] = statistics_of(groups, spec)
        (root / "dataset" / split).mkdir(parents=True)
        for view in ("training", "serving"):
            for shard in range(2):
                path = root / "dataset" / split / f"{view}_elwc-{shard:05}-of-00002.tfrecord.gz"
                with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
                    for group in groups[shard::2]:
                        writer.write(encode_group(group, spec, view))
        relevance += [
            f"{g.context['query']}\t{item['item_id']}\t{3 * int(item['click'])}" for g in groups for item in g.items
        ]
        queries = sorted({str(g.context.get("query")) for g in groups})
        frequent = "".join(json.dumps({"query": q, "requests": 5}) + "\n" for q in queries)
        (root / "dataset" / split / "frequent_queries.jsonl.gz").write_bytes(gzip.compress(frequent.encode()))
    manifest = DatasetManifest(
        stage_key="d" * 64,
        task="tiny_shop",
        options={"logs": [f"{root}/logs/{number}.jsonl.gz" for number in range(5)]},
        features=spec.to_json(),
        fingerprint=spec.fingerprint,
        splits=splits,
        events={"impression": EventCounts()},
        files=files_of(root / "dataset"),
    )
    (root / "dataset" / "manifest.json").write_bytes(manifest.to_bytes())
    _write_vocabulary(root / "vocabulary", spec)
    (root / "relevance.tsv").write_text("\n".join(relevance) + "\n")
    return write_task(root, features)


def files_of(directory: Path) -> dict[str, StoredFile]:
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory).as_posix(): stored_file(path.read_bytes()) for path in paths}


def _write_vocabulary(directory: Path, spec: FeatureSpec) -> None:
    directory.mkdir()
    content = "\n".join(PIECES) + "\n"
    (directory / "vocabulary.txt").write_text(content)
    manifest = VocabularyManifest(
        stage_key="v" * 64,
        task="tiny_shop",
        fingerprint=spec.fingerprint,
        pieces=len(PIECES),
        sha256=hashlib.sha256(content.encode()).hexdigest(),
        files=files_of(directory),
    )
    (directory / "manifest.json").write_bytes(manifest.to_bytes())


def has_titles(features: dict[str, Any]) -> bool:
    return any(f["type"] == "text" and f["level"] == "item" and "role" not in f for f in features.values())


def data_of(root: Path, features: dict[str, Any] = FEATURES, relevance: bool = True) -> DataPaths:
    """Where `write_shop` put what a run reads."""
    has_text = any(f["type"] == "text" and "role" not in f for f in features.values())
    vocabulary = str(root / "vocabulary") if has_text else None
    return DataPaths(str(root / "dataset"), vocabulary, str(root / "relevance.tsv") if relevance else None)


def write_task(root: Path, features: dict[str, Any] = FEATURES, **sections: Any) -> Path:
    """A task file over the shop; `sections` replace or join its sections."""
    task = {
        "name": "tiny_shop",
        "seed": 3,
        "features": features,
        "teachers": [{"name": "position", "sees": ["position"]}, {"name": "click", "sees": ["click"]}],
        "student": STUDENT if has_titles(features) else {"layers": 0, "hidden": [16]},
        "teacher_architecture": {"layers": 0},
        "training": {"batch_groups": 8, "steps": 20, "evaluate_every": 10, "warmup_steps": 5},
        "recipes": [{"name": "no_distillation"}, {"name": "student", "teachers": ["position", "click"]}],
        "export": {"litert": ["float"]},
        **sections,
    }
    path = root / "task.yaml"
    path.write_text(yaml.safe_dump(task, sort_keys=False))
    return path
