"""The engine that runs a student's LiteRT graphs: for the trainer, which judges them, and for serving.

One file holds every graph as a signature of fixed shapes, its weights once. `score_<c>_<t>` scores `pairs` items whose
tokens are padded to t for one query whose tokens are padded to c. A student with split layers has `context_<c>` and
`items_<t>` as well: a side's tokens -> the states that `score` takes then, so that they can be computed once and kept.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from features.manifest import LiteRtGraphs

Tokens = NDArray[np.int32]
States = NDArray[np.float32]

CONTEXT_TOKENS, ITEM_TOKENS = "context_tokens", "item_tokens"  # inputs of the graphs, beside further features
CONTEXT_STATES, ITEM_STATES = "context_states", "item_states"


class Engine:
    """One interpreter with its graphs. Not for several threads at once.

    Each graph is called once here: its first call is its slowest.
    Errors: ValueError for content that LiteRT cannot run, lacks a graph, or takes what it should not.
    """

    def __init__(self, content: bytes, graphs: LiteRtGraphs) -> None:
        self._graphs = graphs
        self._interpreter = Interpreter(model_content=content, num_threads=1)
        self._run: dict[str, Any] = {}
        for name in signatures(graphs):
            run = self._run[name] = self._interpreter.get_signature_runner(name)
            details = run.get_input_details()
            if details.keys() != _inputs_of(name, graphs):
                raise ValueError(f"{name} takes {sorted(details)}, expected {sorted(_inputs_of(name, graphs))}")
            run(**{key: np.zeros(detail["shape"], detail["dtype"]) for key, detail in details.items()})

    def try_out(self) -> None:
        """A call of the largest graph of each kind, to see how long they take."""
        for run in {name.partition("_")[0]: run for name, run in self._run.items()}.values():  # the last of each
            details = run.get_input_details().items()
            run(**{key: np.ones(detail["shape"], detail["dtype"]) for key, detail in details})

    def context_states(self, tokens: Tokens) -> States:
        """The states [1 + c, width] of a query's tokens, int32 [n], padded to c."""
        padded = self._context(tokens)
        return np.asarray(self._run[f"context_{padded.shape[1]}"](context_tokens=padded)["states"][0])

    def item_states(self, items: Sequence[Tokens]) -> list[States]:
        """Each item's states [n, width], of its tokens int32 [n]."""
        found: list[Any] = [None] * len(items)
        for places, padded in self._calls(items):
            states = self._run[f"items_{padded.shape[1]}"](item_tokens=padded)["states"]
            for row, place in enumerate(places):
                found[place] = states[row, : len(items[place])].copy()
        return found

    def score(
        self,
        context: Tokens,
        items: Sequence[Tokens],
        others: Mapping[str, NDArray[Any]],
        states: tuple[States, Sequence[States]] | None = None,
    ) -> NDArray[np.float32]:
        """One query's items -> logits [items].

        context, items: each side's tokens, int32 [n], a separator last. others: each of the graphs' features, of the
        context [...], of items [items, ...]. states: `context_states` and `item_states` of the same tokens; None
        computes them, where there are any.
        """
        context_inputs: dict[str, NDArray[Any]] = {CONTEXT_TOKENS: self._context(context)}
        context_inputs |= {n: others[n][np.newaxis] for n, level in self._graphs.features.items() if level == "context"}
        of_items = {n: others[n] for n, level in self._graphs.features.items() if level == "item"}
        if self._graphs.split:
            of_context, item_states = states or (self.context_states(context), self.item_states(items))
            context_inputs[CONTEXT_STATES] = of_context[np.newaxis]
        scores = np.zeros(len(items), np.float32)
        for places, padded in self._calls(items):
            inputs: dict[str, NDArray[Any]] = {
                ITEM_TOKENS: padded,
                **{name: self._some(values, places) for name, values in of_items.items()},
            }
            if self._graphs.split:
                inputs[ITEM_STATES] = _side_by_side([item_states[place] for place in places], padded.shape)
            run = self._run[f"score_{context_inputs[CONTEXT_TOKENS].shape[1]}_{padded.shape[1]}"]
            scores[places] = run(**context_inputs, **inputs)["score"][: len(places)]
        return scores

    def _context(self, tokens: Tokens) -> Tokens:
        return _padded([tokens], 1, _length(self._graphs.context_lengths, len(tokens)))

    def _calls(self, items: Sequence[Tokens]) -> list[tuple[NDArray[np.intp], Tokens]]:
        """Items that are scored together, of like lengths: their places, and their tokens [pairs, t]."""
        lengths, pairs = [len(tokens) for tokens in items], self._graphs.pairs
        order = np.argsort(lengths, kind="stable")
        calls = []
        for start in range(0, len(items), pairs):
            places = order[start : start + pairs]
            longest = _length(self._graphs.item_lengths, lengths[places[-1]])
            calls.append((places, _padded([items[place] for place in places], pairs, longest)))
        return calls

    def _some(self, values: NDArray[Any], places: NDArray[np.intp]) -> NDArray[Any]:
        """Those items' values [pairs, ...], 0 behind the last."""
        some = np.zeros((self._graphs.pairs, *values.shape[1:]), values.dtype)
        some[: len(places)] = values[places]
        return some


def signatures(graphs: LiteRtGraphs) -> list[str]:
    """The names of the graphs."""
    scores = [f"score_{c}_{t}" for c in graphs.context_lengths for t in graphs.item_lengths]
    if not graphs.split:
        return scores
    contexts, items = ([f"context_{c}" for c in graphs.context_lengths], [f"items_{t}" for t in graphs.item_lengths])
    return contexts + items + scores


def _inputs_of(signature: str, graphs: LiteRtGraphs) -> set[str]:
    """The inputs of a graph, by its name."""
    if signature.startswith("context_"):
        return {CONTEXT_TOKENS}
    if signature.startswith("items_"):
        return {ITEM_TOKENS}
    states = {CONTEXT_STATES, ITEM_STATES} if graphs.split else set()
    return {CONTEXT_TOKENS, ITEM_TOKENS, *states, *graphs.features}


def _length(lengths: tuple[int, ...], tokens: int) -> int:
    """The least length that holds so many tokens."""
    return next(length for length in lengths if length >= tokens)


def _padded(sides: Sequence[Tokens], rows: int, length: int) -> Tokens:
    """int32 [rows, length], 0 behind each side's tokens."""
    padded = np.zeros((rows, length), np.int32)
    for row, tokens in enumerate(sides):
        padded[row, : len(tokens)] = tokens
    return padded


def _side_by_side(states: Sequence[States], shape: tuple[int, ...]) -> States:
    """float32 [*shape, width], 0 behind each item's states."""
    together = np.zeros((*shape, states[0].shape[1]), np.float32)
    for row, of_item in enumerate(states):
        together[row, : len(of_item)] = of_item
    return together
