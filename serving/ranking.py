"""Scores one query group and sorts it: the whole of a request between its reading and its answer."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.elwc import QueryGroup
from features.spec import Feature, FeatureSpec
from features.values import Value
from serving.backends import Backend, Inputs
from serving.model_store import VerifiedModel
from serving.problems import Problem
from serving.schemas import RankRequest
from serving.strict_json import shown

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # items that a compiling backend's inputs are padded to

_ARRAYS: dict[str, tuple[Any, Value]] = {  # type -> dtype of its array, what stands behind item_count
    "text": (object, ""), "categorical": (object, ""),
    "float": (np.float32, 0.0), "int": (np.int64, 0), "bool": (np.bool_, False),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost. tokens: the query's once and every item's, before truncation, special ones not counted.

    truncated: items that the model did not read to the end, all of them where the query was too long.
    clipped: numbers outside the range seen in training, which the model takes for the range's end.
    """

    pairs: int
    tokens: int
    truncated: int
    clipped: int


@dataclass(frozen=True, slots=True)
class RankedItem:
    """One result. index: its place in the request. texts: its text features by name, where asked for."""

    id: str
    index: int
    score: float  # sigma(logit), 0 to 1
    texts: dict[str, Value] = field(default_factory=dict)
    debug: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """A query group, sorted by score, ties in the request's order."""

    results: list[RankedItem]
    usage: Usage


class Ranker:
    """One model that is ready to rank. Safe to call from several threads."""

    def __init__(self, model: VerifiedModel, backend: Backend) -> None:
        self.model = model
        self.spec: FeatureSpec = model.manifest.spec
        self._backend = backend
        self._inputs = self.spec.regular
        self._texts = {level: _texts_at(self.spec, level) for level in ("context", "item")}

    def rank(self, request: RankRequest) -> Ranking:
        """Errors: Problem model-version-not-served, non-finite-score."""
        self._refuse_other_version(request.model_version)
        group = request.group
        items = len(group.items)
        inputs = inputs_of(group, self._inputs, bucket_of(items) if self._backend.compiles_shapes else items)
        logits = self._backend.score(inputs, np.array([items], np.int32))[0, :items]
        if not np.isfinite(logits).all():
            wrong = int(np.flatnonzero(~np.isfinite(logits))[0])
            told = f"version {self.model.version} scored item {wrong} with {logits[wrong]}, expected a finite number"
            raise Problem("non-finite-score", told)
        usage, tokens = self._usage(group, inputs)
        scores = sigmoid(logits)
        order = np.argsort(-scores, kind="stable")[: request.top_n]
        results = [self._result(request, int(i), float(scores[i]), float(logits[i]), tokens) for i in order]
        return Ranking(results, usage)

    def _refuse_other_version(self, asked: int | None) -> None:
        served = self.model.version
        if asked is not None and asked != served:
            told = f"model_version is {shown(asked)}, but version {served} of {self.model.manifest.name} is served"
            raise Problem("model-version-not-served", told, "#/model_version")

    def _result(
        self, request: RankRequest, index: int, score: float, logit: float, tokens: NDArray[np.int64]
    ) -> RankedItem:
        item = request.group.items[index]
        texts = {f.name: item[f.name] for f in self._texts["item"]} if request.return_titles else {}
        debug = {"logit": logit, "tokens": int(tokens[index])} if request.debug else None
        return RankedItem(request.ids[index], index, score, texts, debug)

    def _usage(self, group: QueryGroup, inputs: Inputs) -> tuple[Usage, NDArray[np.int64]]:
        """The usage, and each item's tokens int64 [items]."""
        limits = self.model.manifest.limits
        context = [str(group.context[f.name]) for f in self._texts["context"]]
        columns = [[str(item[f.name]) for item in group.items] for f in self._texts["item"]]
        texts = [*context, *(text for column in columns for text in column)]
        counts = self._backend.token_counts(texts).astype(np.int64) if texts else np.zeros(0, np.int64)
        in_context, in_items = counts[: len(context)], counts[len(context) :].reshape(len(columns), len(group.items))
        per_item = in_items.sum(axis=0)
        # several texts of one side are read as one, a separator between two
        cut = per_item + max(len(columns) - 1, 0) > limits.get("max_item_tokens", np.inf)
        if in_context.sum() + max(len(context) - 1, 0) > limits.get("max_context_tokens", np.inf):
            cut = np.ones(len(group.items), bool)
        tokens = int(in_context.sum() + per_item.sum())
        clipped = sum(self._outside(inputs, name, len(group.items)) for name in self.model.manifest.ranges)
        return Usage(len(group.items), tokens, int(cut.sum()), clipped), per_item

    def _outside(self, inputs: Inputs, name: str, items: int) -> int:
        """How many of a feature's values training never reached."""
        if name not in inputs or inputs[name].dtype == np.bool_:
            return 0
        values = inputs[name][:, :items] if self.spec[name].level == "item" else inputs[name]
        # a float's range is compared as the float32 that the graph sees
        low, high = np.array(self.model.manifest.ranges[name]).astype(np.result_type(values.dtype, np.float32))
        return int(((values < low) | (values > high)).sum())


def _texts_at(spec: FeatureSpec, level: Any) -> tuple[Feature, ...]:
    return tuple(feature for feature in spec.at(level, spec.regular) if feature.is_text)


def sigmoid(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """1 / (1 + exp(-logit)) in double precision, without overflow."""
    small = np.exp(-np.abs(logits.astype(np.float64)))
    scores: NDArray[np.float64] = np.where(logits >= 0, 1.0, small) / (1.0 + small)
    return scores


def bucket_of(items: int) -> int:
    """The least bucket that holds so many items."""
    return next((bucket for bucket in BUCKETS if bucket >= items), items)


def inputs_of(group: QueryGroup, features: tuple[Feature, ...], padded: int) -> Inputs:
    """One group as a model's inputs: context features [1, ...], item features [1, padded, ...]."""
    return {
        feature.name: _array(feature, [group.context[feature.name]], 1)[0:1]
        if feature.level == "context"
        else _array(feature, [item[feature.name] for item in group.items], padded)[np.newaxis]
        for feature in features
    }


def _array(feature: Feature, values: list[Value], length: int) -> NDArray[Any]:
    """values, then padding: [length], vectors [length, feature.length]."""
    dtype, padding = _ARRAYS[feature.type]
    if feature.length > 1:
        padded: list[Any] = values + [(padding,) * feature.length] * (length - len(values))
    else:
        padded = values + [padding] * (length - len(values))
    if dtype is object:
        padded = [str(text).encode() for text in padded]
    return np.array(padded, dtype)
