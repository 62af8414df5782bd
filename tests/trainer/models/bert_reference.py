"""BERT in plain NumPy, one text at a time, from the tensors of a safetensors file: what the Keras layers must equal."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import erf

from trainer.models.safetensors_file import read_tensors

Array = np.ndarray


class ReferenceBert:
    """tokens: ids of vocab.txt, special ones included."""

    def __init__(self, directory: Path, heads: int, epsilon: float = 1e-12) -> None:
        self.tensors = {
            name: t.astype(np.float64) for name, t in read_tensors(f"{directory}/model.safetensors").items()
        }
        self.heads, self.epsilon = heads, epsilon
        self.pieces = (directory / "vocab.txt").read_text().removesuffix("\n").split("\n")
        self._ids = {piece: index for index, piece in enumerate(self.pieces)}

    def ids(self, pieces: list[str]) -> list[int]:
        return [self._ids[piece] for piece in pieces]

    def states(self, ids: list[int], types: list[int] | None = None, layers: Any = None) -> Array:
        """[tokens, width] after the layers named, all by default."""
        t = self.tensors
        states = t["embeddings.word_embeddings.weight"][ids]
        states = states + t["embeddings.position_embeddings.weight"][: len(ids)]
        states = states + t["embeddings.token_type_embeddings.weight"][types or [0] * len(ids)]
        states = self._norm(states, "embeddings.LayerNorm")
        count = sum(name.endswith("intermediate.dense.bias") for name in t)
        for index in range(count) if layers is None else layers:
            states = self._layer(states, f"encoder.layer.{index}")
        return states

    def embedding(self, ids: list[int], layers: Any = None, pooling: str = "mean") -> Array:
        """The pooled states, of length 1."""
        states = self.states(ids, layers=layers)
        pooled = states[0] if pooling == "cls" else states.mean(axis=0)
        return pooled / np.linalg.norm(pooled)

    def _layer(self, states: Array, name: str) -> Array:
        queries, keys, values = (
            self._dense(states, f"{name}.attention.self.{part}").reshape(len(states), self.heads, -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        logits = queries @ keys.swapaxes(1, 2) / np.sqrt(queries.shape[-1])
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = (weights @ values).swapaxes(0, 1).reshape(states.shape)
        mixed = self._dense(mixed, f"{name}.attention.output.dense")
        states = self._norm(states + mixed, f"{name}.attention.output.LayerNorm")
        inner = self._dense(states, f"{name}.intermediate.dense")
        inner = inner * 0.5 * (1.0 + erf(inner / np.sqrt(2.0)))
        return self._norm(states + self._dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _dense(self, states: Array, name: str) -> Array:
        return states @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def _norm(self, states: Array, name: str) -> Array:
        centred = states - states.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.epsilon)
        return scaled * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]
