"""Kendall's rank correlation between two models' scores of the same items."""

from typing import Any

import numpy as np


def kendall_tau(a: Any, b: Any) -> float:
    """Kendall's tau-a: the share of concordant pairs minus the share of discordant pairs; ties count as neither.

    a, b: scores [items]. Returns -1 to 1; 1 for fewer than two items.
    """
    pairs = len(a) * (len(a) - 1)
    agreeing = np.sign(a[:, np.newaxis] - a) * np.sign(b[:, np.newaxis] - b)
    return float(agreeing.sum() / pairs) if pairs else 1.0
