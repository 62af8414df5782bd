"""States of texts behind a ranker's frozen layers: computed once for each distinct text, and kept on disk.

Training and scoring then run the layers above alone.
"""

import io
import time
from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from trainer.data.batches import Batches, no_autograph
from trainer.data.preprocessing import Tensors
from trainer.models.pretrained_encoder import LateInteractionEncoder
from trainer.models.ranker import CONTEXT_FROZEN, ITEM_FROZEN
from trainer.storage.stages import read_file

_HASHES, _STARTS, _STATES = "hashes.npy", "starts.npy", "states.npy"
_TEXTS_PER_CALL = 128
_SECONDS_BETWEEN_LINES = 10.0
_MAX_TOKENS = 4096  # a row of tokens may have

Tokens = NDArray[np.int32]
Array = NDArray[Any]


class FrozenStates:
    """The states that `write_frozen_states` wrote.

    hashes: uint64 [texts], ascending. starts: int64 [texts], a text's first row in states, which is [CLS].
    states: float16 [tokens, width]; those of a local directory are read from the file when they are needed.
    """

    def __init__(self, directory: str) -> None:
        self._hashes, self._starts = (_array(f"{directory}/{name}") for name in (_HASHES, _STARTS))
        self._states = _array(f"{directory}/{_STATES}")

    def of(self, tokens: Tokens) -> NDArray[np.float16]:
        """int32 [n, t], 0 behind a text's end -> float16 [n, 1 + t, width]; any values behind the end.

        Errors: InputError for a text that has no states.
        """
        hashes = text_hashes(tokens)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        real = tokens[:, 0] > 0  # a row without tokens is a padded item
        if missing := int((self._hashes[places] != hashes)[real].sum()):
            raise InputError(
                f"the frozen layers' states of {missing} of {len(tokens)} texts are not kept, expected those of every "
                "text of the dataset: remove frozen_states in the workdir, and fit computes them again"
            )
        rows = self._starts[places][:, None] + np.arange(tokens.shape[1] + 1)
        states: NDArray[np.float16] = self._states[np.minimum(rows, len(self._states) - 1)]
        return states

    def attached(self, batches: Batches) -> Batches:
        """The batches, with the states of their texts in `regular`; they are read as the batches are."""
        if not isinstance(batches, tf.data.Dataset):
            return _AttachedBatches(self, batches)
        return batches.map(no_autograph(self._in_graph), num_parallel_calls=1, deterministic=True)

    def _in_graph(self, batch: dict[str, Tensors]) -> dict[str, Tensors]:
        regular = dict(batch["regular"])
        for name, tokens in _sides(regular):
            flat = tf.reshape(tokens, [-1, tf.shape(tokens)[-1]])
            found = tf.ensure_shape(tf.numpy_function(self.of, [flat], tf.float16), [None, None, self._width])
            shape = tf.concat([tf.shape(tokens)[:-1], tf.shape(found)[1:]], axis=0)
            regular[name] = tf.ensure_shape(tf.reshape(found, shape), [*[None] * tokens.shape.rank, self._width])
        return {**batch, "regular": regular}

    @property
    def _width(self) -> int:
        return int(self._states.shape[1])


class _AttachedBatches:
    """Batches in memory whose states are added as each is read: kept, they would not fit."""

    def __init__(self, states: FrozenStates, batches: Batches) -> None:
        self._states, self._batches = states, batches
        regular = dict(batches.element_spec["regular"])
        for name, tokens in _sides(regular):
            regular[name] = tf.TensorSpec([*[None] * tokens.shape.rank, states._width], tf.float16)
        self.element_spec = {**batches.element_spec, "regular": regular}

    def __iter__(self) -> Iterator[dict[str, Tensors]]:
        return (self._states._in_graph(batch) for batch in self._batches)


def _sides(regular: Tensors) -> list[tuple[str, tf.Tensor]]:
    """(name of the states, tokens) of both sides."""
    return [(CONTEXT_FROZEN, regular["context_tokens"]), (ITEM_FROZEN, regular["item_tokens"])]


def text_hashes(tokens: Tokens) -> NDArray[np.uint64]:
    """uint64 [n] of rows of tokens, whatever their padding: sums of tokens times a random factor of their place.

    Source: Thorup 2015, multilinear hashing.
    """
    factors = np.random.default_rng(0).integers(1, 2**64, _MAX_TOKENS, np.uint64, endpoint=False) | np.uint64(1)
    with np.errstate(over="ignore"):
        hashes: NDArray[np.uint64] = (tokens.astype(np.uint64) * factors[: tokens.shape[1]]).sum(axis=1)
    return hashes


def write_frozen_states(encoder: LateInteractionEncoder, batches: Iterable[Tensors], directory: str) -> int:
    """Computes the states of every distinct text of the batches' two sides. Returns the number of texts.

    batches: the `regular` inputs of groups.
    """
    texts: dict[bytes, None] = {}
    for regular in batches:
        for _, tokens in _sides(regular):
            rows = tokens.numpy().reshape(-1, tokens.shape[-1])
            texts.update(dict.fromkeys(row[row > 0].tobytes() for row in np.unique(rows, axis=0)))
    texts.pop(b"", None)
    rows = sorted((np.frombuffer(text, np.int32) for text in texts), key=len)
    padded = np.zeros((len(rows), max(map(len, rows), default=1)), np.int32)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = tokens
    lengths = np.array([len(row) + 1 for row in rows])  # with [CLS]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    hashes = text_hashes(padded)
    if len(np.unique(hashes)) < len(hashes):  # among a million texts less likely than 2^-9
        raise InputError("two texts of the dataset have the same hash: set `freeze: 0` in the student")
    order = np.argsort(hashes)
    for name, values in ((_HASHES, hashes[order]), (_STARTS, starts[order])):
        _write(f"{directory}/{name}", values)
    with tf.io.gfile.GFile(f"{directory}/{_STATES}", "wb") as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": (int(lengths.sum()), encoder.width)}
        _write_header(file, header)
        for states in _computed(encoder, padded, lengths):
            file.write(states.astype("<f2").tobytes())
    return len(rows)


def _computed(
    encoder: LateInteractionEncoder, padded: Tokens, lengths: NDArray[np.int64]
) -> Iterator[NDArray[np.float32]]:
    """The states of each text's real tokens, in order; texts come sorted by length, so that little is padding."""
    compute = tf.function(encoder.frozen_states, autograph=False, reduce_retracing=True)
    compute.get_concrete_function(tf.TensorSpec([None, None], tf.int32))
    printed = time.monotonic()
    for start in range(0, len(padded), _TEXTS_PER_CALL):
        counts = lengths[start : start + _TEXTS_PER_CALL]
        states = compute(tf.constant(padded[start : start + _TEXTS_PER_CALL, : counts.max() - 1])).numpy()
        yield from (row[:count] for row, count in zip(states, counts, strict=True))
        if time.monotonic() - printed > _SECONDS_BETWEEN_LINES:
            printed = time.monotonic()
            print(f"  states of {start + len(counts):,} of {len(padded):,} texts", flush=True)


def _write(path: str, values: Array) -> None:
    content = io.BytesIO()
    np.save(content, values)
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content.getvalue())


def _write_header(file: tf.io.gfile.GFile, header: dict[str, object]) -> None:
    content, npy_format = io.BytesIO(), cast(Any, np.lib.format)  # NumPy has no types for it
    npy_format.write_array_header_1_0(content, header)
    file.write(content.getvalue())


def _array(path: str) -> Array:
    """An array of a .npy file: mapped if the file is local, else read."""
    if "://" not in path:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    else:
        content = read_file(path, "remove frozen_states in the workdir, and fit computes it again")
        array = np.load(io.BytesIO(content), allow_pickle=False)
    return array
