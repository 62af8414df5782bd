"""Calls of the model that wait for one another are made into one: of several requests, on few calls at a time.

Nobody waits for company: a call that finds the model free begins at once, and what comes meanwhile goes together in
the next one.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.spec import FeatureSpec
from serving.backend import Backend, BackendError, Inputs
from serving.kept import Kept
from serving.problems import Problem
from serving.ranking import bucket_of


class _Call:
    """What one thread wants scored. turn: set when it may lead a call for `mates`, or has its outcome."""

    def __init__(self, inputs: Inputs, item_count: NDArray[np.int32], seconds: float) -> None:
        self.inputs, self.item_count, self.items = inputs, item_count, int(item_count.max())
        self.ends = time.monotonic() + seconds
        self.turn = threading.Event()
        self.mates: list[_Call] = []  # itself among them; empty for who does not lead
        self.scores: NDArray[np.float32] | None = None
        self.error: Exception | None = None

    @property
    def seconds_left(self) -> float:
        return self.ends - time.monotonic()


class BatchingBackend:
    """A backend whose `score` joins calls of several threads.

    calls: of the model at the same time. groups: query groups in a joint call, at most.
    """

    compiles_shapes = False

    def __init__(self, backend: Backend, spec: FeatureSpec, calls: int, groups: int) -> None:
        self._backend, self._groups = backend, groups
        self.kept: Mapping[str, Kept[Any]] = backend.kept
        self._of_items = {feature.name for feature in spec.at("item", spec.regular)}
        self._lock = threading.Lock()
        self._free = calls
        self._waiting: deque[_Call] = deque()
        self.joined = 0

    def score(self, inputs: Inputs, item_count: NDArray[np.int32], seconds: float) -> NDArray[np.float32]:
        call = _Call(inputs, item_count, seconds)
        with self._lock:
            if self._free:
                self._free -= 1
                call.mates = [call]
            else:
                self._waiting.append(call)
        if not call.mates:
            call.turn.wait()
        if call.mates:
            try:
                self._lead(call.mates)
            finally:
                self._hand_over()
        if call.scores is None:
            raise call.error or BackendError("NotScored")
        return call.scores

    def token_counts(self, texts: list[str], seconds: float) -> NDArray[np.int32]:
        return self._backend.token_counts(texts, seconds)

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]:
        return self._backend.tokens(texts, seconds)

    def check(self) -> None:
        self._backend.check()

    def _hand_over(self) -> None:
        """Lets the first that waits lead the next call, with those behind it that are of about its size."""
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
            first = self._waiting.popleft()
            mates, groups = [first], len(first.item_count)
            for call in list(self._waiting):
                fits = groups + len(call.item_count) <= self._groups
                if fits and bucket_of(call.items) == bucket_of(first.items):
                    self._waiting.remove(call)
                    mates.append(call)
                    groups += len(call.item_count)
            first.mates = mates
        first.turn.set()

    def _lead(self, mates: Sequence[_Call]) -> None:
        """Gives each its scores or its error. Whose time was up in the line is not scored."""
        in_time = [call for call in mates if call.seconds_left > 0]
        try:
            for call in mates:
                if call not in in_time:
                    call.error = Problem("deadline-exceeded", "The request's time was up before the model was free")
            if len(in_time) > 1:
                self._score_together(in_time)
            for call in in_time:
                if call.scores is None and call.error is None:
                    self._score_alone(call)
        finally:
            for call in mates:
                call.turn.set()

    def _score_together(self, calls: Sequence[_Call]) -> None:
        """Gives all of them their scores, or none: then each is scored alone, to find the one at fault."""
        items = max(call.items for call in calls)
        inputs = {
            name: np.concatenate([self._padded(name, call.inputs[name], items) for call in calls])
            for name in calls[0].inputs
        }
        counts = np.concatenate([call.item_count for call in calls])
        try:
            scores = self._backend.score(inputs, counts, max(call.seconds_left for call in calls))
        except BackendError:
            return
        with self._lock:
            self.joined += len(calls)
        ends = np.cumsum([len(call.item_count) for call in calls])
        for call, rows in zip(calls, np.split(scores, ends[:-1]), strict=True):
            call.scores = rows[:, : call.items]

    def _score_alone(self, call: _Call) -> None:
        try:
            call.scores = self._backend.score(call.inputs, call.item_count, call.seconds_left)
        except Exception as error:  # raised again in the thread whose call it is
            call.error = error

    def _padded(self, name: str, values: NDArray[Any], items: int) -> NDArray[Any]:
        """Values of items, [groups, items, ...], as many as the longest call has."""
        if name not in self._of_items or values.shape[1] == items:
            return values
        nothing = b"" if values.dtype == object else 0
        shape = (len(values), items - values.shape[1], *values.shape[2:])
        return np.concatenate([values, np.full(shape, nothing, values.dtype)], axis=1)
