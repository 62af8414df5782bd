"""The backend `litert`: the student's LiteRT graphs, the fast way on CPUs. Texts' tokens and states are kept.

What is no arithmetic of the student stays TensorFlow's: the exported graph's own tokeniser and scaling.
"""

import queue
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from features.litert import Engine, States, Tokens
from features.manifest import LiteRtGraphs, Precision, litert_file
from serving.backend import BackendError, Inputs, without_padding
from serving.kept import Kept
from serving.model_store import VerifiedModel, read_file
from serving.saved_model import SavedModel
from serving.settings import LiteRt

SEPARATOR = np.array([3], np.int32)  # the id of [SEP], which ends each side
TOKENS_SHARE = 0.2  # of the bytes for what is kept; the rest is the states'
ENTRY_BYTES = 300  # of an entry beside its text and its numbers
TRIALS = 7  # of each precision, whose median tells the faster one


class Tokenised(NamedTuple):
    """A text's tokens and a separator, as many as a side may have; total: how many tokens the text has."""

    tokens: Tokens
    total: int


class LiteRtBackend:
    """An exported student, each of its scoring threads on one core; see `features.litert`."""

    compiles_shapes = False
    joined = 0

    def __init__(self, model: VerifiedModel, settings: LiteRt, threads: int) -> None:
        self._graphs = graphs = graphs_of(model)
        spec, limits = model.manifest.spec, model.manifest.limits
        self._texts = [[f.name for f in spec.at(level, spec.regular) if f.is_text] for level in ("context", "item")]
        self._limits = limits["max_context_tokens"], limits["max_item_tokens"]
        self._saved_model = SavedModel(model)
        share = TOKENS_SHARE if graphs.split else 1.0
        self._kept_tokens: Kept[Tokenised] = Kept(int(settings.kept_bytes * share), _bytes_of_text)
        self._kept_states: Kept[States] = Kept(int(settings.kept_bytes * (1 - share)), _bytes_of_states)
        self.kept: Mapping[str, Kept[Any]] = {"tokens": self._kept_tokens} | (
            {"states": self._kept_states} if graphs.split else {}
        )
        self.precision, content, engine = fastest(model, graphs, settings.precision)
        self._engines: queue.LifoQueue[Engine] = queue.LifoQueue()
        for more in range(threads):
            self._engines.put(Engine(content, graphs) if more else engine)

    def score(self, inputs: Inputs, item_count: NDArray[np.int32], seconds: float) -> NDArray[np.float32]:
        scores = np.zeros((len(item_count), item_count.max()), np.float32)
        try:
            others = self._prepared(inputs)
            groups = [_sides(inputs, group, count, self._texts) for group, count in enumerate(item_count)]
            asked = (text for sides in groups for side in sides for texts in side for text in texts)
            tokenised = self._tokenised(asked, self._kept_tokens.get)
            with self._borrowed() as engine:
                for group, (count, sides) in enumerate(zip(item_count, groups, strict=True)):
                    context, items = (
                        [_side([tokenised[text].tokens for text in texts], limit) for texts in side]
                        for side, limit in zip(sides, self._limits, strict=True)
                    )
                    of_group = {
                        name: values[group] if self._graphs.features[name] == "context" else values[group, :count]
                        for name, values in others.items()
                    }
                    states = self._states(engine, context[0], items) if self._graphs.split else None
                    scores[group, :count] = engine.score(context[0], items, of_group, states)
        except (tf.errors.OpError, RuntimeError, ValueError) as error:  # its message may hold the request's text
            raise BackendError(type(error).__name__) from None
        return scores

    def token_counts(self, texts: list[str], seconds: float) -> NDArray[np.int32]:
        encoded = [text.encode() for text in texts]
        tokenised = self._tokenised(encoded, self._kept_tokens.again)  # of texts that were scored just now
        return np.array([tokenised[text].total for text in encoded], np.int32)

    def tokens(self, texts: list[str], seconds: float) -> list[list[int]]:
        tokens, _ = self._saved_model.tokenize(texts)
        return without_padding(tokens)

    def check(self) -> None:
        pass

    def _tokenised(
        self, texts: Iterable[bytes], look_up: Callable[[bytes], Tokenised | None]
    ) -> dict[bytes, Tokenised]:
        """Each text's tokens; those that are not kept from before, in one call."""
        found, missing = {}, []
        for text in dict.fromkeys(texts):
            if (kept := look_up(text)) is None:
                missing.append(text)
            else:
                found[text] = kept
        if missing:
            rows, counts = self._saved_model.tokenize(missing)
            for text, row, count in zip(missing, rows, counts.tolist(), strict=True):
                tokens = np.concatenate([row[: min(count, max(self._limits))], SEPARATOR])
                found[text] = Tokenised(tokens, count)
                self._kept_tokens.put(text, found[text])
        return found

    def _prepared(self, inputs: Inputs) -> dict[str, NDArray[Any]]:
        """The features that are no text, as the student takes them."""
        return self._saved_model("prepare", inputs) if "prepare" in self._saved_model else {}

    def _states(self, engine: Engine, context: Tokens, items: Sequence[Tokens]) -> tuple[States, list[States]]:
        """The states of a query's tokens and of its items', those that are not kept from before computed together."""
        keys = [tokens.tobytes() for tokens in items]
        found = {key: states for key in set(keys) if (states := self._kept_states.get(key)) is not None}
        missing = list(set(keys) - found.keys())
        for key, states in zip(missing, engine.item_states([np.frombuffer(k, np.int32) for k in missing]), strict=True):
            found[key] = states
            self._kept_states.put(key, states)
        return engine.context_states(context), [found[key] for key in keys]

    @contextmanager
    def _borrowed(self) -> Iterator[Engine]:
        engine = self._engines.get()
        try:
            yield engine
        finally:
            self._engines.put(engine)


def graphs_of(model: VerifiedModel) -> LiteRtGraphs:
    """Errors: InputError where the version has none, or they take what serving must not see."""
    graphs = model.manifest.litert
    if graphs is None:
        told = "its student is none for LiteRT, or was exported by an older trainer"
        raise InputError(f"{model.path} holds no LiteRT files: {told}. Export it again, or set `backend: embedded`")
    regular = {feature.name for feature in model.manifest.spec.regular if not feature.is_text}
    if surplus := graphs.features.keys() ^ regular:
        told = f"the LiteRT graphs and the regular features differ in {sorted(surplus)[0]!r}"
        raise InputError(f"{model.path}: {told}. Export the model again")
    return graphs


def fastest(
    model: VerifiedModel, graphs: LiteRtGraphs, asked: Precision | Literal["auto"]
) -> tuple[Precision, bytes, Engine]:
    """The precision that was asked for, or the fastest on this machine; its file; and an engine that runs it.

    Without instructions for products of 8-bit integers, int8 is the slower one. Errors: InputError.
    """
    if asked != "auto" and asked not in graphs.precisions:
        told = f"litert.precision is {asked!r}, but the export kept {', '.join(graphs.precisions)} only"
        raise InputError(f"{model.path}: {told}: set another one, or `auto`")
    wanted = list(graphs.precisions) if asked == "auto" else [asked]
    contents = {precision: read_file(f"{model.path}/{litert_file(precision)}") for precision in wanted}
    try:
        engines = {precision: Engine(content, graphs) for precision, content in contents.items()}
        taken: dict[Precision, list[float]] = {precision: [] for precision in wanted}
        for _ in range(TRIALS if len(wanted) > 1 else 0):  # in turn, so that what else the machine does hits both
            for precision, engine in engines.items():
                began = time.perf_counter()
                engine.try_out()
                taken[precision].append(time.perf_counter() - began)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{model.path}: LiteRT cannot run its graphs ({error}). Export the model again") from None
    best = min(wanted, key=lambda precision: statistics.median(taken[precision] or [0.0]))
    return best, contents[best], engines[best]


Side = list[tuple[bytes, ...]]
"""The texts of a group's one context, or of each of its items."""


def _sides(inputs: Inputs, group: int, count: int, names: Sequence[Sequence[str]]) -> tuple[Side, Side]:
    """A group's texts: of its context, and of its items."""
    context, item = names
    of_items = [inputs[name][group, :count] for name in item]
    return [tuple(inputs[name][group] for name in context)], list(zip(*of_items, strict=True))


def _side(texts: Sequence[Tokens], limit: int) -> Tokens:
    """A side's tokens, at most `limit` and a separator, as `trainer.text.Tokeniser.side` makes them.

    texts: each text's tokens and a separator; none: the separator alone.
    """
    if len(texts) == 1 and len(texts[0]) <= limit + 1:
        return texts[0]
    together = np.concatenate(texts)[:-1] if texts else SEPARATOR[:0]
    return np.concatenate([together[:limit], SEPARATOR])


def _bytes_of_text(found: Tokenised) -> int:
    return found.tokens.nbytes + ENTRY_BYTES


def _bytes_of_states(states: States) -> int:
    return states.nbytes + ENTRY_BYTES
