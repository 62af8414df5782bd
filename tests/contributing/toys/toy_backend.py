"""A toy backend: an item's logit is the length of its title in bytes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.backends.base import FeatureArrays
from serving.backends.cache import BoundedCache


class ToyBackend:
    caches: Mapping[str, BoundedCache[Any]] = {}
    batched_calls = 0
    compiles_shapes = False

    def score(self, inputs: FeatureArrays, item_count: NDArray[np.int32], seconds: float) -> NDArray[np.float32]:
        return np.vectorize(len, otypes=[np.float32])(inputs["title"])

    def token_counts(self, texts: list[str], seconds: float) -> NDArray[np.int32]:
        return np.array([len(text.split()) for text in texts], np.int32)

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]:
        return [[len(word) for word in text.split()] for text in texts]

    def check(self) -> None:
        pass
