"""How alike two models order the same items."""

from typing import Any

import numpy as np


def kendall_tau(a: Any, b: Any) -> float:
    """Of all pairs of places, the share that both order alike minus the share that they order oppositely.

    a, b: scores [items]. Returns -1 to 1; 1 for fewer than two items.
    """
    pairs = len(a) * (len(a) - 1)
    agreeing = np.sign(a[:, np.newaxis] - a) * np.sign(b[:, np.newaxis] - b)
    return float(agreeing.sum() / pairs) if pairs else 1.0
