"""How alike two orders are."""

import numpy as np
import pytest

from features.agreement import kendall_tau


@pytest.mark.parametrize(
    ("other", "tau"),
    [
        ([3.0, 2.0, 1.0], 1.0),
        ([1.0, 2.0, 3.0], -1.0),
        ([2.0, 3.0, 1.0], 1 / 3),  # of three pairs, one the other way round
        ([3.0, 1.0, 1.0], 2 / 3),  # of three pairs, one without an order
    ],
)
def test_tau_is_the_share_of_pairs_ordered_alike_less_those_ordered_oppositely(other: list[float], tau: float) -> None:
    assert kendall_tau(np.array([9.0, 8.0, 7.0]), np.array(other)) == pytest.approx(tau)


def test_one_item_has_but_one_order() -> None:
    assert kendall_tau(np.array([1.0]), np.array([2.0])) == 1.0
