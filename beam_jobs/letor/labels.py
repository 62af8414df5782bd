"""Binary labels drawn from graded relevance by the Gumbel difference. Pure: no Beam.

y = 1 if t * r + G1 > t * tau + G0, which has probability sigma(t * (r - tau)). Source: Yang et al. 2022, eq. 2, A.1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_jobs.joins.stable_hash import Hash64
from beam_jobs.letor.lines import LetorFloats, LetorInts


def gumbels(seed: int, query: str, item_ids: Sequence[str]) -> LetorFloats:
    """G1 and G0 of each document, float64 [n, 2]: standard Gumbel draws that depend only on seed, query and item.

    A privileged feature z of eq. 2, which has its own tau, is drawn from the same pair.
    """
    hashes = [Hash64(f"gumbel {which}", seed, query) for which in (1, 0)]
    drawn = np.array([[hashed.of(item) for hashed in hashes] for item in item_ids], dtype=np.uint64)
    uniform = ((drawn >> np.uint64(12)) + 0.5) / 2**52  # 52 bits: exact in float64, never 0 or 1
    draws: LetorFloats = -np.log(-np.log(uniform))
    return draws


def binary_labels(
    relevance: LetorInts, draws: LetorFloats, temperature: float, tau: float
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """bool [n]. relevance: [n]; draws: [n, 2], from `gumbels`. Yang et al. 2022, eq. 2."""
    above: np.ndarray[Any, np.dtype[np.bool_]] = temperature * relevance + draws[:, 0] > temperature * tau + draws[:, 1]
    return above
