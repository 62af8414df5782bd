"""Kendall's tau against hand counts."""

import numpy as np
import pytest

from inference.kendall_tau import kendall_tau


@pytest.mark.parametrize(
    ("other", "tau"),
    [
        ([3.0, 2.0, 1.0], 1.0),
        ([1.0, 2.0, 3.0], -1.0),
        ([2.0, 3.0, 1.0], 1 / 3),  # one of three pairs is discordant
        ([3.0, 1.0, 1.0], 2 / 3),  # one of three pairs is tied
    ],
)
def test_tau_is_the_share_of_concordant_pairs_minus_that_of_discordant_pairs(other: list[float], tau: float) -> None:
    assert kendall_tau(np.array([9.0, 8.0, 7.0]), np.array(other)) == pytest.approx(tau)


def test_tau_of_fewer_than_two_items_is_one() -> None:
    assert kendall_tau(np.array([1.0]), np.array([2.0])) == 1.0
