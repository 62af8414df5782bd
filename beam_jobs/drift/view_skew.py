"""Skew between the training and the serving view of a dataset, group by group, in bounded memory. Pure: no Beam.

The two views may have different orders, and the serving view has no ids, so groups cannot be paired. Instead, groups
are hashed by their values into buckets; the training view adds 1 and the serving view subtracts 1. If the views hold
equal groups, every bucket is 0. Each regular feature has its own buckets, so that the report can name the feature.
"""

import hashlib
from collections import Counter
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from features.elwc import View
from features.spec import FeatureSpec
from protos import elwc_pb2

_BUCKETS = 2**16  # one differing group stays undetected with probability 1 / _BUCKETS
WHOLE_GROUP = "whole group"  # a name that no feature can have


class ViewSkew:
    """Bucket counts of the training view minus those of the serving view. add() and merge() mutate it."""

    def __init__(self, spec: FeatureSpec) -> None:
        self._regular = {level: [f.name for f in spec.at(level, spec.regular)] for level in ("context", "item")}
        self._names = [*(feature.name for feature in spec.regular), WHOLE_GROUP]
        self._difference = np.zeros((len(self._names), _BUCKETS), dtype=np.int64)
        self.leaked: Counter[str] = Counter()  # feature not allowed in the serving view -> groups that have it
        self.unreadable = 0  # records that do not parse as a group

    def add(self, view: View, record: bytes) -> None:
        """Adds one serialised group of a view."""
        try:
            message = elwc_pb2.ExampleListWithContext.FromString(record)
        except DecodeError:
            self.unreadable += 1
            return
        values = {name: _stored(message.context, name) for name in self._regular["context"]}
        values |= {
            name: b"".join(_stored(example, name) for example in message.examples) for name in self._regular["item"]
        }
        values[WHOLE_GROUP] = b"".join(values[name] for name in self._names[:-1])
        step = 1 if view == "training" else -1
        for row, name in enumerate(self._names):
            self._difference[row, _bucket(values[name])] += step
        if view == "serving":
            held = {name for example in (message.context, *message.examples) for name in example.features.feature}
            self.leaked.update(held.difference(self._names))

    def merge(self, other: "ViewSkew") -> "ViewSkew":
        """Adds another part of the same dataset. Returns itself."""
        self._difference += other._difference
        self.leaked.update(other.leaked)
        self.unreadable += other.unreadable
        return self

    def to_json(self) -> dict[str, Any]:
        """differing: feature, or WHOLE_GROUP -> at least this many groups are in only one view."""
        added, removed = self._difference.clip(min=0).sum(axis=1), -self._difference.clip(max=0).sum(axis=1)
        differing = np.maximum(added, removed).tolist()
        return {
            "differing": dict(zip(self._names, differing, strict=True)),
            "leaked": dict(sorted(self.leaked.items())),
            "unreadable": self.unreadable,
        }


def _stored(example: Any, name: str) -> bytes:
    """Length-prefixed serialised values of a feature; an absent feature differs from an empty one."""
    features = example.features.feature
    if name not in features:
        return b"\xff"
    content: bytes = features[name].SerializeToString(deterministic=True)
    return len(content).to_bytes(4, "big") + content


def _bucket(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=2).digest(), "big")
