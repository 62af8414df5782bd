"""The backend `litert`: runs the student's LiteRT graphs, the fastest way on CPUs. Caches tokens and states of texts.

Tokenising and scaling still run in TensorFlow, by the exported graph's own signatures.
"""

import queue
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from features.manifest import LiteRtGraphs, Precision, litert_file
from inference.litert_engine import Engine, States, Tokens
from serving.backends.base import BackendError, FeatureArrays, without_padding
from serving.backends.cache import BoundedCache
from serving.backends.saved_model import SavedModel
from serving.exports.store import VerifiedModel
from serving.settings import LiteRt

_SEPARATOR = np.array([3], np.int32)  # the id of [SEP]; it ends each side (query, item)
_TOKENS_SHARE = 0.2  # of the cache's bytes; the states have the rest
_ENTRY_BYTES = 300  # overhead of a cache entry beside its key and arrays
_TRIALS = 7  # of each precision; the one with the lower median time is selected


class _CachedTokens(NamedTuple):
    """A text's tokens, truncated to the longest side, and a separator. total: the token count before truncation."""

    tokens: Tokens
    total: int


class LiteRtBackend:
    """Scores with one engine for each scoring thread; see `inference.litert_engine`."""

    compiles_shapes = False
    batched_calls = 0

    def __init__(self, model: VerifiedModel, settings: LiteRt, threads: int) -> None:
        self._graphs = graphs = litert_graphs_of(model)
        spec, limits = model.manifest.spec, model.manifest.limits
        self._texts = [[f.name for f in spec.at(level, spec.regular) if f.is_text] for level in ("context", "item")]
        self._limits = limits["max_context_tokens"], limits["max_item_tokens"]
        self._saved_model = SavedModel(model)
        share = _TOKENS_SHARE if graphs.split else 1.0
        self._token_cache: BoundedCache[_CachedTokens] = BoundedCache(int(settings.cache_bytes * share), _bytes_of_text)
        self._state_cache: BoundedCache[States] = BoundedCache(
            int(settings.cache_bytes * (1 - share)), _bytes_of_states
        )
        self.caches: Mapping[str, BoundedCache[Any]] = {"tokens": self._token_cache} | (
            {"states": self._state_cache} if graphs.split else {}
        )
        self.precision, content, engine = select_precision(model, graphs, settings.precision)
        self._engines: queue.LifoQueue[Engine] = queue.LifoQueue()
        for i in range(threads):
            self._engines.put(Engine(content, graphs) if i else engine)

    def score(self, inputs: FeatureArrays, item_count: NDArray[np.int32], seconds: float) -> NDArray[np.float32]:
        scores = np.zeros((len(item_count), item_count.max()), np.float32)
        try:
            features = self._prepared(inputs)
            groups = [_sides(inputs, group, count, self._texts) for group, count in enumerate(item_count)]
            all_texts = (text for sides in groups for side in sides for texts in side for text in texts)
            tokenised = self._tokenised(all_texts, self._token_cache.get)
            with self._borrow_engine() as engine:
                for group, (count, sides) in enumerate(zip(item_count, groups, strict=True)):
                    context, items = (
                        [_side([tokenised[text].tokens for text in texts], limit) for texts in side]
                        for side, limit in zip(sides, self._limits, strict=True)
                    )
                    of_group = {
                        name: values[group] if self._graphs.features[name] == "context" else values[group, :count]
                        for name, values in features.items()
                    }
                    states = self._states(engine, context[0], items) if self._graphs.split else None
                    scores[group, :count] = engine.score(context[0], items, of_group, states)
        except (tf.errors.OpError, RuntimeError, ValueError) as error:  # its message may quote the request
            raise BackendError(type(error).__name__) from None
        return scores

    def token_counts(self, texts: list[str], seconds: float) -> NDArray[np.int32]:
        encoded = [text.encode() for text in texts]
        tokenised = self._tokenised(encoded, self._token_cache.peek)  # peek: `score` has counted these lookups
        return np.array([tokenised[text].total for text in encoded], np.int32)

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]:
        tokens, _ = self._saved_model.tokenize(texts)
        return without_padding(tokens)

    def check(self) -> None:
        pass

    def _tokenised(
        self, texts: Iterable[bytes], look_up: Callable[[bytes], _CachedTokens | None]
    ) -> dict[bytes, _CachedTokens]:
        """Returns each text's tokens. Tokenises all texts that are not in the cache in one call."""
        found, missing = {}, []
        for text in dict.fromkeys(texts):
            if (cached := look_up(text)) is None:
                missing.append(text)
            else:
                found[text] = cached
        if missing:
            rows, counts = self._saved_model.tokenize(missing)
            for text, row, count in zip(missing, rows, counts.tolist(), strict=True):
                tokens = np.concatenate([row[: min(count, max(self._limits))], _SEPARATOR])
                found[text] = _CachedTokens(tokens, count)
                self._token_cache.put(text, found[text])
        return found

    def _prepared(self, inputs: FeatureArrays) -> dict[str, NDArray[Any]]:
        """Returns the features other than text, scaled and encoded as the student expects them."""
        return self._saved_model("prepare", inputs) if "prepare" in self._saved_model else {}

    def _states(self, engine: Engine, context: Tokens, items: Sequence[Tokens]) -> tuple[States, list[States]]:
        """Returns the states of a query's tokens and of its items'. Computes all that are not in the cache together."""
        keys = [tokens.tobytes() for tokens in items]
        found = {key: states for key in set(keys) if (states := self._state_cache.get(key)) is not None}
        missing = list(set(keys) - found.keys())
        for key, states in zip(missing, engine.item_states([np.frombuffer(k, np.int32) for k in missing]), strict=True):
            found[key] = states
            self._state_cache.put(key, states)
        return engine.context_states(context), [found[key] for key in keys]

    @contextmanager
    def _borrow_engine(self) -> Iterator[Engine]:
        engine = self._engines.get()
        try:
            yield engine
        finally:
            self._engines.put(engine)


def litert_graphs_of(model: VerifiedModel) -> LiteRtGraphs:
    """Returns the LiteRT graphs. Raises: InputError if there are none or they do not take the regular features."""
    graphs = model.manifest.litert
    if graphs is None:
        reasons = "; ".join(f"{precision}: {reason}" for precision, reason in model.manifest.no_litert.items())
        raise InputError(
            f"{model.source} holds no LiteRT files ({reasons or 'its export asked for none'}): set `backend: embedded` "
            "or export it again with `export.litert`"
        )
    regular = {feature.name for feature in model.manifest.spec.regular if not feature.is_text}
    if surplus := graphs.features.keys() ^ regular:
        detail = f"the LiteRT graphs and the regular features differ in {sorted(surplus)[0]!r}"
        raise InputError(f"{model.source}: {detail}. Export the model again")
    return graphs


def select_precision(
    model: VerifiedModel, graphs: LiteRtGraphs, requested: Precision | Literal["auto"]
) -> tuple[Precision, bytes, Engine]:
    """Returns the requested precision, or for "auto" the fastest on this machine; its file; and an engine for it.

    int8 is slower than float32 on CPUs without 8-bit dot product instructions. Raises: InputError.
    """
    if requested != "auto" and requested not in graphs.precisions:
        reason = model.manifest.no_litert.get(requested, "its export did not ask for it")
        detail = (
            f"litert.precision is {requested!r}, but the export kept {', '.join(graphs.precisions)} only ({reason})"
        )
        raise InputError(f"{model.source}: {detail}: set another one, or `auto`")
    candidates = list(graphs.precisions) if requested == "auto" else [requested]
    contents = {precision: Path(model.path, litert_file(precision)).read_bytes() for precision in candidates}
    try:
        engines = {precision: Engine(content, graphs) for precision, content in contents.items()}
        seconds: dict[Precision, list[float]] = {precision: [] for precision in candidates}
        for _ in range(_TRIALS if len(candidates) > 1 else 0):  # alternating, so that other load affects both
            for precision, engine in engines.items():
                start = time.perf_counter()
                engine.run_largest_graphs()
                seconds[precision].append(time.perf_counter() - start)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{model.source}: LiteRT cannot run its graphs ({error}). Export the model again") from None
    best = min(candidates, key=lambda precision: statistics.median(seconds[precision] or [0.0]))
    return best, contents[best], engines[best]


_SideTexts = list[tuple[bytes, ...]]
"""The texts of a group's context (one tuple), or of each of its items."""


def _sides(
    inputs: FeatureArrays, group: int, count: int, names: Sequence[Sequence[str]]
) -> tuple[_SideTexts, _SideTexts]:
    """Returns the texts of a group's context and those of its items."""
    context, item = names
    of_items = [inputs[name][group, :count] for name in item]
    return [tuple(inputs[name][group] for name in context)], list(zip(*of_items, strict=True))


def _side(texts: Sequence[Tokens], limit: int) -> Tokens:
    """Returns a side's tokens, at most `limit` and a separator, as `trainer.data.tokenizer.Tokeniser.side` does.

    texts: each text's tokens and a separator. Without texts, returns the separator alone.
    """
    if len(texts) == 1 and len(texts[0]) <= limit + 1:
        return texts[0]
    together = np.concatenate(texts)[:-1] if texts else _SEPARATOR[:0]
    return np.concatenate([together[:limit], _SEPARATOR])


def _bytes_of_text(entry: _CachedTokens) -> int:
    return entry.tokens.nbytes + _ENTRY_BYTES


def _bytes_of_states(states: States) -> int:
    return states.nbytes + _ENTRY_BYTES
