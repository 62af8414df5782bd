"""Agreement with a teacher: by hand, with padding, and of a random order over all permutations."""

from itertools import permutations

import numpy as np
import pytest

from experiments.runner.agreement import expected_random_in_order, expected_random_overlap, in_order, overlap


def test_agreement_on_four_items_is_as_computed_by_hand() -> None:
    # the teacher's order: 0, 1, 2, 3; the students': 0, 2, 1, 3 and 3, 0, 1, 2
    teacher = np.array([[4.0, 3.0, 2.0, 1.0]] * 2)
    student = np.array([[4.0, 2.0, 3.0, 1.0], [3.0, 2.0, 1.0, 4.0]])
    mask = np.ones((2, 4), bool)
    assert overlap(teacher, student, mask, 1).tolist() == [1.0, 0.0]
    assert overlap(teacher, student, mask, 2).tolist() == [0.5, 0.5]
    assert overlap(teacher, student, mask, 3) == pytest.approx([1.0, 2 / 3])
    assert [in_order(teacher, student, mask, k).tolist() for k in (1, 2, 3)] == [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert in_order(teacher, teacher, mask, 4).tolist() == [1.0, 1.0]


def test_padding_is_never_among_the_first_items() -> None:
    teacher, student = np.array([[1.0, 2.0, 9.0]]), np.array([[5.0, 1.0, 7.0]])
    mask = np.array([[True, True, False]])
    assert overlap(teacher, student, mask, 1).tolist() == [0.0]
    assert overlap(teacher, student, mask, 5).tolist() == [1.0]  # both have the same two items
    assert in_order(teacher, student, mask, 5).tolist() == [0.0]
    assert in_order(teacher, np.array([[1.0, 2.0, -9.0]]), mask, 5).tolist() == [1.0]


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_expected_agreement_of_a_random_order_is_the_mean_over_all_permutations(k: int) -> None:
    orders = np.array([[*order, 9.0] for order in permutations([1.0, 2.0, 3.0, 4.0])])
    mask = np.tile([True] * 4 + [False], (len(orders), 1))
    teacher = np.tile([3.0, 1.0, 2.0, 4.0, 8.0], (len(orders), 1))
    assert expected_random_overlap(mask[:1], k) == pytest.approx([overlap(teacher, orders, mask, k).mean()])
    assert expected_random_in_order(mask[:1], k) == pytest.approx([in_order(teacher, orders, mask, k).mean()])
