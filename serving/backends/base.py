"""Where scores are computed. A backend takes raw feature values as arrays, and knows nothing of requests."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from serving.kept import Kept

Inputs = dict[str, NDArray[Any]]


class BackendError(Exception):
    """A model that is loaded could not score. The message quotes nothing of the request."""


class Backend(Protocol):
    """One loaded model. Its methods may be called from several threads at once.

    seconds: what is left of a request's time, for those who can do something about it.
    Errors: BackendError; Problem where what scores is elsewhere, and cannot be reached or answers wrongly.
    """

    kept: Mapping[str, Kept[Any]]  # of texts that come again, by what it is; for /metrics
    joined: int  # calls of `score` that were made into one with others; for /metrics
    compiles_shapes: bool  # whether every new item count costs a compilation, so that counts are padded to buckets

    def score(self, inputs: Inputs, item_count: NDArray[np.int32], seconds: float) -> NDArray[np.float32]:
        """inputs: each regular feature: context [groups, ...], item [groups, items, ...], text as bytes objects.

        item_count: [groups]. Returns logits [groups, items]; what is behind item_count means nothing.
        """
        ...

    def token_counts(self, texts: list[str], seconds: float) -> NDArray[np.int32]:
        """Each text's tokens, special tokens not counted and not truncated; zeros for a model without text."""
        ...

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]:
        """The tokens that `token_counts` counts, of a model with text."""
        ...

    def check(self) -> None:
        """Errors: Problem where it could not score now. Asked whenever somebody asks whether the gateway is ready."""
        ...


def compiles(graph: Any) -> bool:
    """Whether XLA compiles a function of this GraphDef, for every shape anew."""
    return any(f.attr["_XlaMustCompile"].b for f in graph.library.function if "_XlaMustCompile" in f.attr)


def without_padding(tokens: NDArray[np.int32]) -> list[list[int]]:
    """The rows of what `tokenize` returns; 0 is the id of padding alone."""
    return [row[row > 0].tolist() for row in tokens]
