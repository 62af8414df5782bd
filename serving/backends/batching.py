"""Dynamic batching: calls that wait for the model are merged into one call.

There is no batching delay: a call starts at once while a slot is free, and the calls that arrive meanwhile form the
next batches.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.spec import FeatureSpec
from serving.backends.base import Backend, BackendError, FeatureArrays
from serving.backends.cache import BoundedCache
from serving.backends.item_buckets import bucket_of
from serving.problems import Problem


class _Call:
    """One thread's call. ready: set when its thread must run `batch`, or when its scores or error are there."""

    def __init__(self, inputs: FeatureArrays, item_count: NDArray[np.int32], seconds: float) -> None:
        self.inputs, self.item_count, self.items = inputs, item_count, int(item_count.max())
        self.deadline = time.monotonic() + seconds
        self.ready = threading.Event()
        self.batch: list[_Call] = []  # includes itself; empty unless its thread runs the batch
        self.scores: NDArray[np.float32] | None = None
        self.error: Exception | None = None

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()


class BatchingBackend:
    """A backend whose `score` merges the calls of several threads.

    calls: the maximum number of concurrent calls of the model. groups: the maximum number of query groups in a batch.
    """

    compiles_shapes = False

    def __init__(self, backend: Backend, spec: FeatureSpec, calls: int, groups: int) -> None:
        self._backend, self._groups = backend, groups
        self.caches: Mapping[str, BoundedCache[Any]] = backend.caches
        self._item_features = {feature.name for feature in spec.at("item", spec.regular)}
        self._lock = threading.Lock()
        self._free_calls = calls
        self._waiting: deque[_Call] = deque()
        self.batched_calls = 0

    def score(self, inputs: FeatureArrays, item_count: NDArray[np.int32], seconds: float) -> NDArray[np.float32]:
        call = _Call(inputs, item_count, seconds)
        with self._lock:
            if self._free_calls:
                self._free_calls -= 1
                call.batch = [call]
            else:
                self._waiting.append(call)
        if not call.batch:
            call.ready.wait()
        if call.batch:
            try:
                self._run_batch(call.batch)
            finally:
                self._start_next_batch()
        if call.scores is None:
            raise call.error or BackendError("NotScored")
        return call.scores

    def token_counts(self, texts: list[str], seconds: float) -> NDArray[np.int32]:
        return self._backend.token_counts(texts, seconds)

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]:
        return self._backend.tokens(texts, seconds)

    def check(self) -> None:
        self._backend.check()

    def _start_next_batch(self) -> None:
        """Makes the first waiting call run the next batch, with the waiting calls of its item bucket."""
        with self._lock:
            if not self._waiting:
                self._free_calls += 1
                return
            first = self._waiting.popleft()
            batch, groups = [first], len(first.item_count)
            for call in list(self._waiting):
                fits = groups + len(call.item_count) <= self._groups
                if fits and bucket_of(call.items) == bucket_of(first.items):
                    self._waiting.remove(call)
                    batch.append(call)
                    groups += len(call.item_count)
            first.batch = batch
        first.ready.set()

    def _run_batch(self, batch: Sequence[_Call]) -> None:
        """Sets the scores or the error of each call. Expired calls are not scored."""
        in_time = [call for call in batch if call.seconds_left > 0]
        try:
            for call in batch:
                if call not in in_time:
                    call.error = Problem("deadline-exceeded", "The request's time was up before the model was free")
            if len(in_time) > 1:
                self._score_together(in_time)
            for call in in_time:
                if call.scores is None and call.error is None:
                    self._score_alone(call)
        finally:
            for call in batch:
                call.ready.set()

    def _score_together(self, calls: Sequence[_Call]) -> None:
        """Scores the calls in one batch. Sets nothing on a BackendError: each call is then scored alone.

        Any other error, such as an unreachable model server, is not due to one call: all of them get it.
        """
        try:
            scores = self._backend.score(*self._concatenated(calls), max(call.seconds_left for call in calls))
        except BackendError:
            return
        except Exception as error:  # raised again in each caller's thread
            for call in calls:
                call.error = error
            return
        with self._lock:
            self.batched_calls += len(calls)
        ends = np.cumsum([len(call.item_count) for call in calls])
        for call, rows in zip(calls, np.split(scores, ends[:-1]), strict=True):
            call.scores = rows[:, : call.items]

    def _concatenated(self, calls: Sequence[_Call]) -> tuple[FeatureArrays, NDArray[np.int32]]:
        """Returns the concatenated inputs, padded to the longest call, and the item counts."""
        items = max(call.items for call in calls)
        inputs = {
            name: np.concatenate([self._padded(name, call.inputs[name], items) for call in calls])
            for name in calls[0].inputs
        }
        return inputs, np.concatenate([call.item_count for call in calls])

    def _score_alone(self, call: _Call) -> None:
        try:
            call.scores = self._backend.score(call.inputs, call.item_count, call.seconds_left)
        except Exception as error:  # raised again in the caller's thread
            call.error = error

    def _padded(self, name: str, values: NDArray[Any], items: int) -> NDArray[Any]:
        """Pads item values [groups, items, ...] to the given number of items; context values stay as they are."""
        if name not in self._item_features or values.shape[1] == items:
            return values
        padding = b"" if values.dtype == object else 0
        shape = (len(values), items - values.shape[1], *values.shape[2:])
        return np.concatenate([values, np.full(shape, padding, values.dtype)], axis=1)
