"""Skew between the training and the serving view of a dataset, group by group, in bounded memory. Pure: no Beam.

The two views need not stand in the same order, and the serving view has no ids, so groups cannot be paired. Instead
both views' groups are thrown, by a hash of their values, into the same buckets, one view adding and the other taking
away: where every group of one view has its equal in the other, nothing is left in any bucket. Each regular feature has
buckets of its own, which tell where the difference lies.
"""

import hashlib
from collections import Counter
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from features.elwc import View
from features.spec import FeatureSpec
from protos import elwc_pb2

BUCKETS = 2**16  # a single group that differs hides with probability 1 / BUCKETS
WHOLE = "whole group"  # its place among the features' names, none of which it can be


class ViewSkew:
    """What one view has more than the other. add() and merge() change it."""

    def __init__(self, spec: FeatureSpec) -> None:
        self._regular = {level: [f.name for f in spec.at(level, spec.regular)] for level in ("context", "item")}
        self._names = [*(feature.name for feature in spec.regular), WHOLE]
        self._left = np.zeros((len(self._names), BUCKETS), dtype=np.int64)
        self.smuggled: Counter[str] = Counter()  # features that the serving view should not have -> its groups
        self.unreadable = 0  # records that are no groups

    def add(self, view: View, record: bytes) -> None:
        """A group of one view, as its dataset has it."""
        try:
            message = elwc_pb2.ExampleListWithContext.FromString(record)
        except DecodeError:
            self.unreadable += 1
            return
        values = {name: _stored(message.context, name) for name in self._regular["context"]}
        values |= {
            name: b"".join(_stored(example, name) for example in message.examples) for name in self._regular["item"]
        }
        values[WHOLE] = b"".join(values[name] for name in self._names[:-1])
        step = 1 if view == "training" else -1
        for place, name in enumerate(self._names):
            self._left[place, _bucket(values[name])] += step
        if view == "serving":
            held = {name for example in (message.context, *message.examples) for name in example.features.feature}
            self.smuggled.update(held.difference(self._names))

    def merge(self, other: "ViewSkew") -> "ViewSkew":
        """Adds another part of the same dataset. Returns itself."""
        self._left += other._left
        self.smuggled.update(other.smuggled)
        self.unreadable += other.unreadable
        return self

    def to_json(self) -> dict[str, Any]:
        """differing: feature, or WHOLE -> groups at least that one view has and the other has not."""
        more, fewer = self._left.clip(min=0).sum(axis=1), -self._left.clip(max=0).sum(axis=1)
        differing = np.maximum(more, fewer).tolist()
        return {
            "differing": dict(zip(self._names, differing, strict=True)),
            "smuggled": dict(sorted(self.smuggled.items())),
            "unreadable": self.unreadable,
        }


def _stored(example: Any, name: str) -> bytes:
    """A feature's values as they stand, after their length; an absent feature is not an empty one."""
    features = example.features.feature
    if name not in features:
        return b"\xff"
    content: bytes = features[name].SerializeToString(deterministic=True)
    return len(content).to_bytes(4, "big") + content


def _bucket(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=2).digest(), "big")
