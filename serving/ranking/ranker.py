"""Scores query groups and sorts them: the whole of a request between its reading and its answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.elwc import QueryGroup
from features.spec import Feature, FeatureSpec
from features.values import Value
from serving.backend import Backend, BackendError, Inputs
from serving.kept import Kept
from serving.model_store import VerifiedModel
from serving.problems import Problem
from serving.record import Record, Usage
from serving.schemas import RankRequest
from serving.words import Matches

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # items; groups of one bucket are scored in one call

_ARRAYS: dict[str, tuple[Any, Value]] = {  # type -> dtype of its array, what stands behind item_count
    "text": (object, ""), "categorical": (object, ""),
    "float": (np.float32, 0.0), "int": (np.int64, 0), "bool": (np.bool_, False),
}  # fmt: skip


@dataclass(slots=True)  # not frozen: that makes each of a thousand take four times as long
class RankedItem:
    """One result. index: its place in the request. texts: its text features by name, where asked for."""

    id: str
    index: int
    score: float  # sigma(logit), 0 to 1
    texts: Mapping[str, Value]
    debug: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """A query group, sorted by score, ties in the request's order. name, version: of the model.

    scores: of all its items, [items] in the request's order, whatever the request's `top_n`.
    """

    name: str
    version: int
    results: list[RankedItem]
    usage: Usage
    scores: NDArray[np.float64]


class Ranker:
    """One model that is ready to rank. Safe to call from several threads."""

    def __init__(self, model: VerifiedModel, backend: Backend) -> None:
        self.model = model
        self.spec: FeatureSpec = model.manifest.spec
        self._backend = backend
        self._inputs = self.spec.regular
        self._texts = {level: _texts_at(self.spec, level) for level in ("context", "item")}

    def check(self) -> None:
        """Errors: Problem where the backend could not score now."""
        self._backend.check()

    @property
    def kept(self) -> Mapping[str, Kept[Any]]:
        """What the backend keeps of texts that come again, by what it is."""
        return self._backend.kept

    @property
    def joined(self) -> int:
        """How many calls of the backend were made into one with others."""
        return self._backend.joined

    def rank(self, requests: Sequence[RankRequest], record: Record) -> list[Ranking | Problem]:
        """Each request's ranking, in their order; or its problem, which leaves the others alone.

        The problems are model-failed and non-finite-score.
        Errors: Problem where the backend is out of reach for all of them.
        """
        answers: dict[int, Ranking | Problem] = {}
        sizes = [len(request.group.items) for request in requests]
        for places, padded in calls_for(sizes, self._backend.compiles_shapes):
            together = [requests[place] for place in places]
            answers |= zip(places, self._rank_together(together, padded, record), strict=True)
        return [answers[place] for place in range(len(requests))]

    def _rank_together(self, requests: list[RankRequest], padded: int, record: Record) -> list[Ranking | Problem]:
        """Scored in one call of the model; one after another where that call fails, to find the one at fault."""
        groups = [request.group for request in requests]
        inputs = inputs_of(groups, self._inputs, padded)
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
        values: Inputs,
        in_context: int,
        in_items: NDArray[np.int64],
        record: Record,
    ) -> Ranking | Problem:
        if not np.isfinite(logits).all():
            wrong = int(np.flatnonzero(~np.isfinite(logits))[0])
            told = f"version {self.model.version} scored item {wrong} with {logits[wrong]}, expected a finite number"
            return Problem("non-finite-score", told)
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
        """What `debug` adds to each result."""
        names = {level: [feature.name for feature in features] for level, features in self._texts.items()}
        matches = Matches(group, names, self.model.manifest.limits, self._backend, seconds)
        return [{"logit": float(logits[i]), "tokens": int(in_items[i]), "words": matches.of(i)} for i in order]

    def _token_counts(self, groups: list[QueryGroup], record: Record) -> list[tuple[int, NDArray[np.int64]]]:
        """Each group's tokens: its context's, and its items' int64 [items]. One call of the tokeniser for all."""
        texts: list[str] = []
        for group in groups:
            texts += [str(group.context[f.name]) for f in self._texts["context"]]
            texts += [str(item[f.name]) for f in self._texts["item"] for item in group.items]
        counts = np.zeros(0, np.int64)
        if texts:
            counts = self._backend.token_counts(texts, record.seconds_left).astype(np.int64)
        found, at, of_context, columns = [], 0, len(self._texts["context"]), len(self._texts["item"])
        for group in groups:
            items_at = at + of_context
            end = items_at + columns * len(group.items)
            per_item = counts[items_at:end].reshape(columns, len(group.items)).sum(axis=0)
            found.append((int(counts[at:items_at].sum()), per_item))
            at = end
        return found

    def _usage(self, values: Inputs, in_context: int, in_items: NDArray[np.int64]) -> Usage:
        """values: the group's own, without padding."""
        limits = self.model.manifest.limits
        # several texts of one side are read as one, a separator between two
        separators = {level: max(len(features) - 1, 0) for level, features in self._texts.items()}
        cut = in_items + separators["item"] > limits.get("max_item_tokens", np.inf)
        if in_context + separators["context"] > limits.get("max_context_tokens", np.inf):
            cut = np.ones(len(in_items), bool)
        clipped = sum(self._outside(values, name) for name in self.model.manifest.ranges)
        return Usage(len(in_items), int(in_context + in_items.sum()), int(cut.sum()), clipped)

    def _outside(self, values: Inputs, name: str) -> int:
        """How many of a feature's values training never reached."""
        if name not in values or values[name].dtype == np.bool_:
            return 0
        # a float's range is compared as the float32 that the graph sees
        low, high = np.array(self.model.manifest.ranges[name]).astype(np.result_type(values[name].dtype, np.float32))
        return int(((values[name] < low) | (values[name] > high)).sum())


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


def calls_for(sizes: Sequence[int], compiles_shapes: bool) -> list[tuple[list[int], int]]:
    """Which groups one call of the model scores together, and the items that they are padded to.

    sizes: items a group. Groups share a call within one bucket, so that less than half of it is padding. A backend
    that compiles for every shape takes one group at a time, padded to its bucket: more groups would be more shapes.
    Returns [(places in sizes, items)].
    """
    if compiles_shapes:
        return [([place], bucket_of(size)) for place, size in enumerate(sizes)]
    by_bucket: dict[int, list[int]] = {}
    for place, size in enumerate(sizes):
        by_bucket.setdefault(bucket_of(size), []).append(place)
    return [(places, max(sizes[place] for place in places)) for places in by_bucket.values()]


def inputs_of(groups: Sequence[QueryGroup], features: tuple[Feature, ...], padded: int) -> Inputs:
    """Groups as a model's inputs: context features [groups, ...], item features [groups, padded, ...]."""
    return {
        feature.name: _array(feature, [group.context[feature.name] for group in groups], len(groups))
        if feature.level == "context"
        else np.stack([_array(feature, [item[feature.name] for item in group.items], padded) for group in groups])
        for feature in features
    }


def _of_group(inputs: Inputs, place: int, items: int, spec: FeatureSpec) -> Inputs:
    """One group's own values among `inputs`, without padding."""
    return {
        name: values[place, :items] if spec[name].level == "item" else values[place] for name, values in inputs.items()
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
