"""The example of SDR's Theorem 1 in exact fractions: a student that is better than the equal teacher it learned from.

The model f(x, b) = 2|x - b| learns three points by half the sum of squared errors. The middle one is hard, or wrongly
labelled: the test points lie on b = 0. The loss has two minima, one either side, and both are off. A student of one
of them, trained on (1 - alpha) y + alpha f_teacher(x), keeps that minimum, and its other one moves towards b = 0.

Source: Qin et al. (SDR), section 6 and Figure 4; A.1 for the best alpha. Here alpha is theirs: the teacher's weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import inf

import numpy as np
from matplotlib.axes import Axes

from experiments.runner.report import Claim
from trainer.evaluation.markdown_table import markdown_table

INPUTS = (Fraction(-1), Fraction(0), Fraction(1))
LABELS = (Fraction(2), Fraction(1), Fraction(2))
TEST = ((Fraction(0), Fraction(0)), (Fraction(1, 2), Fraction(1)))
TEACHER = Fraction(-1, 6)  # the paper's text has 1/6; its scores and labels are those of -1/6
BEST_ALPHA = Fraction(3, 4)  # A.1: n / (n + m) with m = 1 of n = 3 labels wrong
ALPHAS = (Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(7, 10), BEST_ALPHA, Fraction(1))
SHOWN = Fraction(1, 2)  # the alpha that the paper works out


def model(x: Fraction, b: Fraction) -> Fraction:
    return 2 * abs(x - b)


def minima(labels: Sequence[Fraction]) -> list[Fraction]:
    """Where the training loss is locally least, ascending. labels: one an input, positive.

    Between neighbouring inputs the sign s of x - b is fixed for each, so that the loss is a parabola, least where b is
    the mean of x - s y / 2; that counts where it lies between them. An input itself is a ridge of the loss.
    """
    found, places = list[Fraction](), (-inf, *map(float, INPUTS), inf)
    for low, high in pairwise(places):
        signs = [1 if x >= high else -1 for x in INPUTS]
        least = sum((x - s * y / 2 for x, s, y in zip(INPUTS, signs, labels, strict=True)), Fraction(0)) / len(INPUTS)
        if low < least < high:
            found.append(least)
    return found


def error_on_test(b: Fraction) -> Fraction:
    """Mean squared error on the test points."""
    return sum(((y - model(x, b)) ** 2 for x, y in TEST), Fraction(0)) / len(TEST)


@dataclass(frozen=True)
class Student:
    """What a student of TEACHER learns. alpha: the teacher's weight."""

    alpha: Fraction

    @property
    def labels(self) -> tuple[Fraction, ...]:
        return tuple((1 - self.alpha) * y + self.alpha * model(x, TEACHER) for x, y in zip(INPUTS, LABELS, strict=True))

    @property
    def solution(self) -> Fraction | None:
        """Its minimum beside the teacher's own; None where that is the only one."""
        others = [b for b in minima(self.labels) if b != TEACHER]
        return others[0] if others else None


# --- for the report

EXPLAINED = f"""\
f(x, b) = 2|x - b| learns the points (-1, 2), (0, 1), (1, 2) by squared error, and is judged by mean squared error on
(0, 0) and (0.5, 1). The teacher is b = {TEACHER}, with a test error of {error_on_test(TEACHER)}. Its student learns
the labels (1 - alpha) y + alpha f(x, {TEACHER}), with alpha as the paper has it, the *teacher's* weight. All numbers
are exact. Where the teacher's own solution is the only one, the error is the teacher's.

The paper's text puts this teacher at b = 1/6. The scores 5/3, 1/3, 7/3 that it prints, and all that follows from them,
are those of b = {TEACHER}; at 1/6 everything is mirrored, with the same errors. The student's other solution is
1/6 - 2 alpha / 9 as long as that is above 0: it comes to the truth, b = 0, as alpha comes to {BEST_ALPHA}, the best
alpha of the paper's A.1, n / (n + m) with m = 1 of n = 3 labels wrong. From there on only the teacher's own solution
is left: learning from the teacher alone gains nothing."""
PAPER = {SHOWN: "labels 11/6, 2/3, 13/6; b = -1/6, 1/18; error 1/81", Fraction(0): "b = -1/6, 1/6; error 1/9"}


def toy_table() -> str:
    """A row an alpha."""
    head = ("alpha (the teacher's)", "labels", "solutions b", "the student's test error", "paper")
    rows = []
    for student in map(Student, ALPHAS):
        solution = TEACHER if student.solution is None else student.solution
        error, printed = str(error_on_test(solution)), PAPER.get(student.alpha, "-")
        rows.append((str(student.alpha), _listed(student.labels), _listed(minima(student.labels)), error, printed))
    return markdown_table(head, rows)


def toy_claim() -> Claim:
    """The theorem, on its example."""
    solution = Student(SHOWN).solution
    error = None if solution is None else error_on_test(solution)
    return Claim(
        "Theorem 1's example: with equal weights the student's test error is below its equal teacher's",
        f"{error} against {error_on_test(TEACHER)}",
        error is not None and error < error_on_test(TEACHER),
    )


def draw_toy(axes: Axes) -> None:
    """The losses of teacher and student over b, and their minima: the paper's Figure 4."""
    at = np.linspace(-0.4, 0.4, 401)
    for label, labels in (("teacher's labels", LABELS), ("student's labels", Student(SHOWN).labels)):
        of_points = [(float(y) - 2.0 * np.abs(float(x) - at)) ** 2 for x, y in zip(INPUTS, labels, strict=True)]
        loss = np.sum(of_points, axis=0) / 2.0
        (line,) = axes.plot(at, loss, label=label)
        places = [float(b) for b in minima(labels)]
        axes.plot(places, np.interp(places, at, loss), "o", color=line.get_color())
    axes.axvline(0.0, color="#9aa5b1", linestyle=":", label="the truth")
    axes.set(title="Theorem 1's example", xlabel="b", ylabel="training loss")
    axes.legend(frameon=False)


def _listed(numbers: Sequence[Fraction]) -> str:
    return ", ".join(map(str, numbers))
