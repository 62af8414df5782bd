"""Binary labels from graded relevance, drawn by the Gumbel difference. Pure: no Beam.

y = 1 where t * r + G1 > t * tau + G0, so with probability sigma(t * (r - tau)). Source: Yang et al. 2022, eq. 2, A.1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_jobs.letor import Floats, Ints
from beam_jobs.query_groups import Hash64


def gumbels(seed: int, query: str, item_ids: Sequence[str]) -> Floats:
    """G1 and G0 of each document, float64 [n, 2]: standard Gumbel draws that depend on seed, query and item alone.

    Labels of another tau, such as a privileged feature z of eq. 2 with its own, are drawn from the same pair.
    """
    hashes = [Hash64(f"gumbel {which}", seed, query) for which in (1, 0)]
    drawn = np.array([[hashed.of(item) for hashed in hashes] for item in item_ids], dtype=np.uint64)
    uniform = ((drawn >> np.uint64(12)) + 0.5) / 2**52  # 52 bits: both ends are exact, and neither is 0 or 1
    draws: Floats = -np.log(-np.log(uniform))
    return draws


def binary_labels(
    relevance: Ints, draws: Floats, temperature: float, tau: float
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """bool [n]. relevance: [n]; draws: [n, 2], from `gumbels`. Yang et al. 2022, eq. 2."""
    above: np.ndarray[Any, np.dtype[np.bool_]] = temperature * relevance + draws[:, 0] > temperature * tau + draws[:, 1]
    return above
