"""The interface of backends. A backend computes scores from arrays of raw feature values, without any request."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from serving.backends.cache import BoundedCache

FeatureArrays = dict[str, NDArray[Any]]


class BackendError(Exception):
    """A loaded model failed to score. The message quotes nothing of the request."""


class Backend(Protocol):
    """One loaded model. Thread-safe.

    seconds: the time until the request's deadline; a remote backend uses it as its timeout.
    Raises: BackendError; Problem if a remote server cannot be reached or answers wrongly.
    """

    caches: Mapping[str, BoundedCache[Any]]  # by what they hold; for /metrics
    batched_calls: int  # calls of `score` that were merged with others; for /metrics
    compiles_shapes: bool  # every new item count costs a compilation; item counts are then padded to buckets

    def score(self, inputs: FeatureArrays, item_count: NDArray[np.int32], seconds: float) -> NDArray[np.float32]:
        """Returns logits [groups, items]; those behind item_count are undefined.

        inputs: each regular feature: context [groups, ...], item [groups, items, ...], text as bytes objects.
        item_count: [groups].
        """
        ...

    def token_counts(self, texts: list[str], seconds: float) -> NDArray[np.int32]:
        """Counts each text's tokens, without special tokens or truncation. Zeros for a model without text."""
        ...

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]:
        """Returns the ids of the tokens that `token_counts` counts. Only for a model with text."""
        ...

    def check(self) -> None:
        """Raises: Problem if the backend cannot score now. Every readiness probe calls it."""
        ...


def uses_xla(graph: Any) -> bool:
    """Returns whether the GraphDef has a function that XLA compiles, once per shape."""
    return any(f.attr["_XlaMustCompile"].b for f in graph.library.function if "_XlaMustCompile" in f.attr)


def without_padding(tokens: NDArray[np.int32]) -> list[list[int]]:
    """Returns the rows of a `tokenize` output without padding, whose id is 0."""
    return [row[row > 0].tolist() for row in tokens]
