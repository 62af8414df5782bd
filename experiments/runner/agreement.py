"""Agreement of students with a teacher on its top items and their order."""

from collections.abc import Sequence
from math import perm

import numpy as np
from numpy.typing import NDArray

from trainer.evaluation.metrics import Floats, Mask, recall
from trainer.pipeline.run import Run
from trainer.pipeline.students import load_student
from trainer.pipeline.teachers import load_teacher
from trainer.training.fit_ranker import score_batches


def agreement_with(run: Run, teacher: str, cutoffs: Sequence[int]) -> dict[str, dict[str, Floats]]:
    """Compares every student of a run, and a random order, with one of its teachers.

    Returns metric -> model -> [groups], for `overlap@k` and `in_order@k`; the test split's positive groups, in order.
    """
    judged = score_batches(load_teacher(run, run.config.teachers[teacher]), run.testing)
    students = {
        recipe.name: score_batches(load_student(run, recipe), run.testing).scores
        for recipe in run.config.recipes.values()
        if not recipe.averages
    }
    found: dict[str, dict[str, Floats]] = {}
    for k in cutoffs:
        found[f"overlap@{k}"] = {
            "random_order": expected_random_overlap(judged.mask, k),
            **{name: overlap(judged.scores, scores, judged.mask, k) for name, scores in students.items()},
        }
        found[f"in_order@{k}"] = {
            "random_order": expected_random_in_order(judged.mask, k),
            **{name: in_order(judged.scores, scores, judged.mask, k) for name, scores in students.items()},
        }
    return found


def overlap(teacher: Floats, student: Floats, mask: Mask, k: int) -> Floats:
    """The share of the teacher's first k items that are among the student's first k, in any order.

    teacher, student: scores [groups, items], ties in item order; mask: bool [groups, items]. Returns float64 [groups];
    1 for a group of at most k items.
    """
    return recall(_is_first(teacher, mask, k), student, mask, k)


def in_order(teacher: Floats, student: Floats, mask: Mask, k: int) -> Floats:
    """1 where the student's first k items are the teacher's, in the same order, else 0. Shapes as `overlap`."""
    same = _order(teacher, mask)[:, :k] == _order(student, mask)[:, :k]
    all_same: Floats = same.all(axis=1).astype(np.float64)
    return all_same


def expected_random_overlap(mask: Mask, k: int) -> Floats:
    """Expected `overlap` of a random order, exactly: min(k, items) / items."""
    return np.array([min(k, items) / items for items in mask.sum(axis=1).tolist()])


def expected_random_in_order(mask: Mask, k: int) -> Floats:
    """Expected `in_order` of a random order, exactly: 1 / the number of ways to fill the first k places."""
    return np.array([1.0 / perm(items, min(k, items)) for items in mask.sum(axis=1).tolist()])


def _order(scores: Floats, mask: Mask) -> NDArray[np.int64]:
    """The items of each group, best first, padding last."""
    return np.argsort(np.where(mask, -scores, np.inf), axis=1, kind="stable")


def _is_first(scores: Floats, mask: Mask, k: int) -> Floats:
    """1 for a group's first k items, else 0: float64 [groups, items]."""
    is_first = np.zeros(mask.shape)
    np.put_along_axis(is_first, _order(scores, mask)[:, :k], 1.0, axis=1)
    return np.where(mask, is_first, 0.0)
