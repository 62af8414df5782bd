"""SDR's toy example: the paper's printed fractions, hand arithmetic, and a search that knows no algebra."""

from fractions import Fraction as F

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments.sdr.toy import (
    ALPHAS,
    BEST_ALPHA,
    INPUTS,
    LABELS,
    TEACHER,
    Student,
    draw_toy,
    error_on_test,
    minima,
    model,
    toy_claim,
    toy_table,
)


def test_the_teachers_minima_are_as_computed_by_hand() -> None:
    # for 0 < b < 1 the errors are -2b, 1 - 2b and 2b; the derivative of half their squares is 12b - 2
    assert minima(LABELS) == [F(-1, 6), F(1, 6)]


def test_the_example_gives_the_papers_printed_numbers() -> None:
    assert [model(x, TEACHER) for x in INPUTS] == [F(5, 3), F(1, 3), F(7, 3)]
    student = Student(F(1, 2))
    assert student.labels == (F(11, 6), F(2, 3), F(13, 6))
    assert minima(student.labels) == [F(-1, 6), F(1, 18)]
    # at b = 1/18 the test points get 1/9 and 8/9 where 0 and 1 are right
    assert error_on_test(F(1, 18)) == F(1, 81)
    assert error_on_test(TEACHER) == error_on_test(-TEACHER) == F(1, 9)


def test_the_other_teacher_is_the_mirror_image() -> None:
    # the scores that the paper prints are not those of b = 1/6, where it puts the teacher
    assert [model(x, F(1, 6)) for x in INPUTS] == [F(7, 3), F(1, 3), F(5, 3)]
    assert minima((F(13, 6), F(2, 3), F(11, 6))) == [F(-1, 18), F(1, 6)]
    assert error_on_test(F(-1, 18)) == error_on_test(F(1, 18))


@pytest.mark.parametrize("alpha", [F(n, 20) for n in range(15)], ids=str)
def test_below_the_best_alpha_the_students_solution_falls_linearly(alpha: F) -> None:
    # labels a, b, c have the minimum (a + b - c) / 6 for 0 < b < 1, here ((1 - alpha) 1 - alpha / 3) / 6
    assert Student(alpha).solution == F(1, 6) - 2 * alpha / 9


@pytest.mark.parametrize("alpha", [BEST_ALPHA, F(4, 5), F(1)], ids=str)
def test_from_the_best_alpha_on_only_the_teachers_solution_is_left(alpha: F) -> None:
    assert minima(Student(alpha).labels) == [TEACHER]
    assert Student(alpha).solution is None


@pytest.mark.parametrize("alpha", ALPHAS, ids=str)
def test_minima_are_where_a_search_finds_them(alpha: F) -> None:
    labels, step = [float(y) for y in Student(alpha).labels], 1.0 / 720
    at = np.arange(-2160, 2161) * step  # from -3 to 3
    loss = sum((y - 2 * np.abs(float(x) - at)) ** 2 for x, y in zip(INPUTS, labels, strict=True))
    inner = loss[1:-1]
    found = at[1:-1][(inner < loss[:-2] - 1e-12) & (inner < loss[2:] - 1e-12)]
    np.testing.assert_allclose(found, [float(b) for b in minima(Student(alpha).labels)], atol=step)


def test_the_table_the_claim_and_the_figure_show_the_same_numbers() -> None:
    rows = toy_table().splitlines()
    assert len(rows) == 2 + len(ALPHAS)
    (shown,) = (row for row in rows if row.startswith("| 1/2 "))
    assert [cell.strip() for cell in shown.split("|")[2:5]] == ["11/6, 2/3, 13/6", "-1/6, 1/18", "1/81"]
    assert toy_claim().held
    assert toy_claim().measured == "1/81 against 1/9"
    axes = Figure().add_subplot()
    draw_toy(axes)
    minima_drawn = [line.get_xdata() for line in axes.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(minima_drawn, [[-1 / 6, 1 / 6], [-1 / 6, 1 / 18]])
