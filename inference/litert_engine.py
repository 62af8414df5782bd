"""Runs a student's LiteRT graphs. The trainer uses it to check them, serving to score with them.

One file holds every graph as a signature with fixed shapes; they share the weights. `score_<c>_<t>` scores `pairs`
items whose tokens are padded to t for one query whose tokens are padded to c. A student with split layers has
`context_<c>` and `items_<t>` as well: a side's tokens -> its states, which `score` then takes as inputs, so that they
can be cached.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from features.manifest import LiteRtGraphs

Tokens = NDArray[np.int32]
States = NDArray[np.float32]

CONTEXT_TOKENS, ITEM_TOKENS = "context_tokens", "item_tokens"  # input names, beside those of other features
CONTEXT_STATES, ITEM_STATES = "context_states", "item_states"


class Engine:
    """One interpreter with its graphs. Not thread-safe.

    The constructor calls each graph once, since the first call is the slowest.
    Raises: ValueError if LiteRT cannot run the content, a graph is missing, or a graph has unexpected inputs.
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

    def run_largest_graphs(self) -> None:
        """Calls the largest graph of each kind, to time them."""
        # the last of each kind is the largest
        for run in {name.partition("_")[0]: run for name, run in self._run.items()}.values():
            details = run.get_input_details().items()
            run(**{key: np.ones(detail["shape"], detail["dtype"]) for key, detail in details})

    def context_states(self, tokens: Tokens) -> States:
        """Returns the states [1 + c, width] of a query's tokens, int32 [n], padded to c."""
        padded = self._context(tokens)
        return np.asarray(self._run[f"context_{padded.shape[1]}"](context_tokens=padded)["states"][0])

    def item_states(self, items: Sequence[Tokens]) -> list[States]:
        """Returns each item's states [item_start + n, width]. items: each item's tokens, int32 [n]."""
        all_states: list[Any] = [None] * len(items)
        start = self._graphs.item_start
        for places, padded in self._calls(items):
            states = self._run[f"items_{padded.shape[1]}"](item_tokens=padded)["states"]
            for row, place in enumerate(places):
                all_states[place] = states[row, : start + len(items[place])].copy()
        return all_states

    def score(
        self,
        context: Tokens,
        items: Sequence[Tokens],
        others: Mapping[str, NDArray[Any]],
        states: tuple[States, Sequence[States]] | None = None,
    ) -> NDArray[np.float32]:
        """Returns the logits [items] of one query's items.

        context, items: the query's and each item's tokens, int32 [n], a separator last.
        others: the graphs' other features: context [...], item [items, ...].
        states: `context_states` and `item_states` of the same tokens; if None, they are computed when needed.
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
                **{name: self._rows(values, places) for name, values in of_items.items()},
            }
            if self._graphs.split:
                rows = padded.shape[0], self._graphs.item_start + padded.shape[1]
                inputs[ITEM_STATES] = _stacked([item_states[place] for place in places], rows)
            run = self._run[f"score_{context_inputs[CONTEXT_TOKENS].shape[1]}_{padded.shape[1]}"]
            scores[places] = run(**context_inputs, **inputs)["score"][: len(places)]
        return scores

    def _context(self, tokens: Tokens) -> Tokens:
        return _padded([tokens], 1, _length(self._graphs.context_lengths, len(tokens)))

    def _calls(self, items: Sequence[Tokens]) -> list[tuple[NDArray[np.intp], Tokens]]:
        """Batches items of similar lengths. Returns [(indices of the items, their tokens [pairs, t])]."""
        lengths, pairs = [len(tokens) for tokens in items], self._graphs.pairs
        order = np.argsort(lengths, kind="stable")
        calls = []
        for start in range(0, len(items), pairs):
            places = order[start : start + pairs]
            longest = _length(self._graphs.item_lengths, lengths[places[-1]])
            calls.append((places, _padded([items[place] for place in places], pairs, longest)))
        return calls

    def _rows(self, values: NDArray[Any], places: NDArray[np.intp]) -> NDArray[Any]:
        """Returns the values of the items at `places`, padded with 0 to [pairs, ...]."""
        rows = np.zeros((self._graphs.pairs, *values.shape[1:]), values.dtype)
        rows[: len(places)] = values[places]
        return rows


def signatures(graphs: LiteRtGraphs) -> list[str]:
    """Returns the names of all graphs."""
    scores = [f"score_{c}_{t}" for c in graphs.context_lengths for t in graphs.item_lengths]
    if not graphs.split:
        return scores
    contexts, items = ([f"context_{c}" for c in graphs.context_lengths], [f"items_{t}" for t in graphs.item_lengths])
    return contexts + items + scores


def _inputs_of(signature: str, graphs: LiteRtGraphs) -> set[str]:
    """Returns the input names of a graph."""
    if signature.startswith("context_"):
        return {CONTEXT_TOKENS}
    if signature.startswith("items_"):
        return {ITEM_TOKENS}
    states = {CONTEXT_STATES, ITEM_STATES} if graphs.split else set()
    return {CONTEXT_TOKENS, ITEM_TOKENS, *states, *graphs.features}


def _length(lengths: tuple[int, ...], tokens: int) -> int:
    """Returns the smallest length with room for this number of tokens."""
    return next(length for length in lengths if length >= tokens)


def _padded(sides: Sequence[Tokens], rows: int, length: int) -> Tokens:
    """Pads each side's tokens with 0. Returns int32 [rows, length]."""
    padded = np.zeros((rows, length), np.int32)
    for row, tokens in enumerate(sides):
        padded[row, : len(tokens)] = tokens
    return padded


def _stacked(states: Sequence[States], shape: tuple[int, ...]) -> States:
    """Stacks the items' states, padded with 0. Returns float32 [*shape, width]."""
    together = np.zeros((*shape, states[0].shape[1]), np.float32)
    for row, of_item in enumerate(states):
        together[row, : len(of_item)] = of_item
    return together
