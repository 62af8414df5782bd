"""Scores query groups with one model and sorts their items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.elwc import QueryGroup
from features.spec import Feature, FeatureSpec
from features.values import Value
from serving.backends.base import Backend, BackendError, FeatureArrays
from serving.backends.cache import BoundedCache
from serving.backends.item_buckets import bucket_of
from serving.exports.store import VerifiedModel
from serving.observability.request_record import RequestRecord, Usage
from serving.problems import Problem
from serving.ranking.rank_request import RankRequest
from serving.ranking.token_matches import TokenMatches

_ARRAYS: dict[str, tuple[Any, Value]] = {  # type -> dtype of its array, padding value
    "text": (object, ""), "categorical": (object, ""),
    "float": (np.float32, 0.0), "int": (np.int64, 0), "bool": (np.bool_, False),
}  # fmt: skip


@dataclass(slots=True)  # not frozen: creating a frozen one takes four times as long
class RankedItem:
    """One result. index: its position in the request. texts: its text features by name, if requested."""

    id: str
    index: int
    score: float  # sigma(logit), 0 to 1
    texts: Mapping[str, Value]
    debug: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """A query group sorted by score; ties keep the request's order. name, version: the model's.

    scores: float64 [items], of all items in the request's order, independent of `top_n`.
    """

    name: str
    version: int
    results: list[RankedItem]
    usage: Usage
    scores: NDArray[np.float64]


class RequestRanker:
    """Ranks query groups with one loaded model. Thread-safe."""

    def __init__(self, model: VerifiedModel, backend: Backend) -> None:
        self.model = model
        self.spec: FeatureSpec = model.manifest.spec
        self._backend = backend
        self._inputs = self.spec.regular
        self._texts = {level: _texts_at(self.spec, level) for level in ("context", "item")}

    def check(self) -> None:
        """Raises: Problem if the backend cannot score now."""
        self._backend.check()

    @property
    def caches(self) -> Mapping[str, BoundedCache[Any]]:
        """The backend's caches by name."""
        return self._backend.caches

    @property
    def batched_calls(self) -> int:
        """Number of backend calls that were merged with others."""
        return self._backend.batched_calls

    def rank(self, requests: Sequence[RankRequest], record: RequestRecord) -> list[Ranking | Problem]:
        """Returns the ranking of each request, or its Problem, in the order of the requests.

        A request's Problem (model-failed, non-finite-score) does not affect the others.
        Raises: Problem if the backend cannot be reached, for all of them.
        """
        answers: dict[int, Ranking | Problem] = {}
        sizes = [len(request.group.items) for request in requests]
        for places, padded in plan_calls(sizes, self._backend.compiles_shapes):
            together = [requests[place] for place in places]
            answers |= zip(places, self._rank_together(together, padded, record), strict=True)
        return [answers[place] for place in range(len(requests))]

    def _rank_together(
        self, requests: list[RankRequest], padded: int, record: RequestRecord
    ) -> list[Ranking | Problem]:
        """Scores the requests in one call of the model; if that fails, one by one, to isolate the one at fault."""
        groups = [request.group for request in requests]
        inputs = feature_arrays(groups, self._inputs, padded)
        counts = np.array([len(group.items) for group in groups], np.int32)
        try:
            with record.stage("score", version=self.model.version, groups=len(groups), items=padded):
                logits = self._backend.score(inputs, counts, record.seconds_left)
            with record.stage("tokens"):
                tokens = self._token_counts(groups, record)
            answers = [
                self._sorted(request, row[:count], _of_group(inputs, place, count, self.spec), *tokens[place], record)
                for place, (request, row, count) in enumerate(zip(requests, logits, counts, strict=True))
            ]
        except BackendError as error:
            if len(requests) > 1:
                return [self._rank_together([request], padded, record)[0] for request in requests]
            return [Problem("model-failed", f"version {self.model.version} could not score: {error}")]
        record.calls.append((len(groups), padded))
        return answers

    def _sorted(
        self,
        request: RankRequest,
        logits: NDArray[np.float32],
        values: FeatureArrays,
        in_context: int,
        in_items: NDArray[np.int64],
        record: RequestRecord,
    ) -> Ranking | Problem:
        if not np.isfinite(logits).all():
            item = int(np.flatnonzero(~np.isfinite(logits))[0])
            detail = f"version {self.model.version} scored item {item} with {logits[item]}, expected a finite number"
            return Problem("non-finite-score", detail)
        scores = sigmoid(logits)
        order: list[int] = np.argsort(-scores, kind="stable")[: request.top_n].tolist()
        texts = self._texts["item"] if request.return_titles else ()
        results = [
            RankedItem(request.ids[i], i, score, {f.name: request.group.items[i][f.name] for f in texts})
            for i, score in zip(order, scores[order].tolist(), strict=True)
        ]
        if request.debug:
            with record.stage("tokens"):
                debugs = self._debugs(request.group, order, logits, in_items, record.seconds_left)
            results = [replace(result, debug=debug) for result, debug in zip(results, debugs, strict=True)]
        usage = self._usage(values, in_context, in_items)
        return Ranking(self.model.manifest.name, self.model.version, results, usage, scores)

    def _debugs(
        self,
        group: QueryGroup,
        order: list[int],
        logits: NDArray[np.float32],
        in_items: NDArray[np.int64],
        seconds: float,
    ) -> list[dict[str, Any]]:
        """Returns what `debug` adds to each result."""
        names = {level: [feature.name for feature in features] for level, features in self._texts.items()}
        matches = TokenMatches(group, names, self.model.manifest.limits, self._backend, seconds)
        return [{"logit": float(logits[i]), "tokens": int(in_items[i]), "words": matches.of(i)} for i in order]

    def _token_counts(self, groups: list[QueryGroup], record: RequestRecord) -> list[tuple[int, NDArray[np.int64]]]:
        """Returns each group's token counts: its context's, and its items' int64 [items]. Calls the tokeniser once."""
        texts: list[str] = []
        for group in groups:
            texts += [str(group.context[f.name]) for f in self._texts["context"]]
            texts += [str(item[f.name]) for f in self._texts["item"] for item in group.items]
        counts = np.zeros(0, np.int64)
        if texts:
            counts = self._backend.token_counts(texts, record.seconds_left).astype(np.int64)
        token_counts, at, of_context, columns = [], 0, len(self._texts["context"]), len(self._texts["item"])
        for group in groups:
            items_at = at + of_context
            end = items_at + columns * len(group.items)
            per_item = counts[items_at:end].reshape(columns, len(group.items)).sum(axis=0)
            token_counts.append((int(counts[at:items_at].sum()), per_item))
            at = end
        return token_counts

    def _usage(self, values: FeatureArrays, in_context: int, in_items: NDArray[np.int64]) -> Usage:
        """Counts the group's pairs, tokens, truncated items and clipped values. values: without padding."""
        limits = self.model.manifest.limits
        # the model reads several texts of one side as one, with separators between them
        separators = {level: max(len(features) - 1, 0) for level, features in self._texts.items()}
        cut = in_items + separators["item"] > limits.get("max_item_tokens", np.inf)
        if in_context + separators["context"] > limits.get("max_context_tokens", np.inf):
            cut = np.ones(len(in_items), bool)
        clipped = sum(self._outside(values, name) for name in self.model.manifest.ranges)
        return Usage(len(in_items), int(in_context + in_items.sum()), int(cut.sum()), clipped)

    def _outside(self, values: FeatureArrays, name: str) -> int:
        """Counts the values of a feature outside the range seen in training."""
        if name not in values or values[name].dtype == np.bool_:
            return 0
        # a float's range is compared in float32, as in the graph
        low, high = np.array(self.model.manifest.ranges[name]).astype(np.result_type(values[name].dtype, np.float32))
        return int(((values[name] < low) | (values[name] > high)).sum())


def _texts_at(spec: FeatureSpec, level: Any) -> tuple[Feature, ...]:
    return tuple(feature for feature in spec.at(level, spec.regular) if feature.is_text)


def sigmoid(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """1 / (1 + exp(-logit)) in double precision, without overflow."""
    small = np.exp(-np.abs(logits.astype(np.float64)))
    scores: NDArray[np.float64] = np.where(logits >= 0, 1.0, small) / (1.0 + small)
    return scores


def plan_calls(sizes: Sequence[int], compiles_shapes: bool) -> list[tuple[list[int], int]]:
    """Plans which groups one call of the model scores together, and to how many items they are padded.

    Groups of one bucket share a call, so that less than half of it is padding. A backend that compiles for every shape
    scores one group at a time, padded to its bucket: more groups would be more shapes.
    sizes: the number of items of each group.
    Returns [(indices into sizes, padded number of items)].
    """
    if compiles_shapes:
        return [([place], bucket_of(size)) for place, size in enumerate(sizes)]
    by_bucket: dict[int, list[int]] = {}
    for place, size in enumerate(sizes):
        by_bucket.setdefault(bucket_of(size), []).append(place)
    return [(places, max(sizes[place] for place in places)) for places in by_bucket.values()]


def feature_arrays(groups: Sequence[QueryGroup], features: tuple[Feature, ...], padded: int) -> FeatureArrays:
    """Converts groups to model inputs: context features [groups, ...], item features [groups, padded, ...]."""
    return {
        feature.name: _array(feature, [group.context[feature.name] for group in groups], len(groups))
        if feature.level == "context"
        else np.stack([_array(feature, [item[feature.name] for item in group.items], padded) for group in groups])
        for feature in features
    }


def _of_group(inputs: FeatureArrays, place: int, items: int, spec: FeatureSpec) -> FeatureArrays:
    """Returns one group's values from `inputs`, without padding."""
    return {
        name: values[place, :items] if spec[name].level == "item" else values[place] for name, values in inputs.items()
    }


def _array(feature: Feature, values: list[Value], length: int) -> NDArray[Any]:
    """Returns the values, padded to [length], or [length, feature.length] for vectors."""
    dtype, padding = _ARRAYS[feature.type]
    if feature.length > 1:
        padded: list[Any] = values + [(padding,) * feature.length] * (length - len(values))
    else:
        padded = values + [padding] * (length - len(values))
    if dtype is object:
        padded = [str(text).encode() for text in padded]
    return np.array(padded, dtype)
