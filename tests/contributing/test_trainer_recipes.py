"""The recipes of a loss, a metric and a method, followed with toys in one copy of the project."""

from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from tests.contributing.house_copy import HouseCopy
from tests.contributing.recipe import recipes
from tests.features.specs import DEMO

LOSS_CODE = '''
def toy_hinge(labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Hinge, summed over the items: sum_i max(0, 1 - (2 y_i - 1) s_i)."""
    labels, scores = _real(labels, mask), _real(scores, mask)
    return tf.reduce_sum(_real(tf.nn.relu(1.0 - (2.0 * labels - 1.0) * scores), mask), axis=1)


'''
METRIC_CODE = '''
def toy_hits(labels: Floats, scores: Floats, mask: Mask, cutoff: int) -> Floats:
    """Number of positive items among the first `cutoff`."""
    hits = _hits(labels, mask)
    return _positives_in_top(_sorted_by_score(hits, scores, mask), hits, cutoff)


def expected_random_toy_hits(labels: Floats, mask: Mask, cutoff: int) -> Floats:
    hits = _hits(labels, mask)
    return _positives_in_top(_expected_by_rank(hits, mask), hits, cutoff)


'''
METRIC_TEST = """

def test_toy_hits_by_hand() -> None:
    # ranked: yes, no, yes
    labels, scores = np.array([[1.0, 0.0, 2.0]]), np.array([[3.0, 2.0, 1.0]])
    assert TOP_K_METRICS["toy_hits"].of(labels, scores, full(1, 3), 2) == [1.0]
    assert TOP_K_METRICS["toy_hits"].of(labels, scores, full(1, 3), 3) == [2.0]
"""
REFUSAL = """
        if self.hard_labels and not self.teachers:
            raise ValueError("teachers is empty, so nothing uses hard_labels: name some, or remove that")
"""
USE = """
    if recipe.hard_labels:
        return lambda teacher, scores, mask: loss(tf.cast(teacher > 0.0, tf.float32), scores, mask)
"""
LOSS, METRIC, METHOD = (recipes()[of] for of in ("A ranking loss", "A ranking metric", "A method"))
LOSS_FILE = LOSS.step(1, "Write the function in {file}, with the signature {signature}.")["file"]
LOSS_LINES = LOSS.step(2, "Add a line to {registry} in the same file, and the name to {names} in {config}")
LOSS_TESTS = LOSS.step(3, "Add an entry to {by_hand} and one to {references} in {file}")
METRIC_FILE = METRIC.step(1, "Write the function and its expectation of a random order in {file}.")["file"]
METRIC_LINES = METRIC.step(2, "Add a line to {registry} in the same file, and the name to {names} in {config}")
METRIC_TESTS = METRIC.step(3, "Test it by hand in {file}")["file"]
KEY = METHOD.step(1, "Add the key to {recipe} or {targets} in {file}. Refuse it where it has no effect.")
METHOD_FILES = METHOD.step(2, "Use it in {losses} (what is minimised) or {students} (how a student is trained).")
METHOD_TESTS = METHOD.step(3, "Add a recipe to {recipes} in {file}, and a test of what it must have done.")
OF_NAMES = "a_task_file_may_name_every"  # the tests that compare a registry with the names
TASK: dict[str, Any] = {
    "name": "toy",
    "seed": 1,
    "features": DEMO,
    "teachers": [{"name": "click", "sees": ["click"]}],
    "recipes": [{"name": "no_distillation"}],
    "export": {"recipe": "no_distillation"},
}
TASKS: dict[str, dict[str, Any]] = {
    "loss": {"training": {"loss": "toy_hinge"}},
    "metric": {"evaluation": {"metrics": ["ndcg", "toy_hits"]}},
    "key": {"recipes": [{"name": "no_distillation"}, {"name": "student", "teachers": ["click"], "hard_labels": True}]},
    "key without effect": {"recipes": [{"name": "no_distillation", "hard_labels": True}]},
}


@dataclass(frozen=True)
class Followed:
    """The copy with all toys, and what it did before.

    unnamed: `fit` of the tasks where the functions were written, and no name added.
    unregistered: the tests of the registries where the names were added, and no line.
    """

    house: HouseCopy
    unnamed: dict[str, CompletedProcess[str]]
    unregistered: CompletedProcess[str]


def fit(house: HouseCopy, folder: Path, sections: dict[str, Any]) -> CompletedProcess[str]:
    task = folder / "task.yaml"
    task.write_text(yaml.safe_dump(TASK | sections, sort_keys=False))
    flags = ("--config", str(task), "--dataset", "none", "--workdir", str(folder / "run"))
    return house.run("-m", "trainer", "fit", *flags)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    house, folder = HouseCopy(tmp_path_factory.mktemp("house")), tmp_path_factory.mktemp("tasks")
    house.insert_before(LOSS_FILE, LOSS_LINES["registry"], LOSS_CODE)
    house.insert_before(METRIC_FILE, METRIC_LINES["registry"], METRIC_CODE)
    unnamed = {name: fit(house, folder, TASKS[name]) for name in ("loss", "metric", "key")}

    house.add_entry(LOSS_LINES["config"], LOSS_LINES["names"], '"toy_hinge"')
    house.add_entry(METRIC_LINES["config"], METRIC_LINES["names"], '"toy_hits"')
    unregistered = house.run_tests(LOSS_TESTS["file"], METRIC_TESTS, "-k", OF_NAMES)

    house.add_entry(LOSS_FILE, LOSS_LINES["registry"], '"toy_hinge": toy_hinge')
    entry = '"toy_hits": TopKMetric(toy_hits, expected_random_toy_hits)'
    house.add_entry(METRIC_FILE, METRIC_LINES["registry"], entry)
    house.add_field(KEY["file"], KEY["recipe"], "    hard_labels: bool = False  # the teacher loss takes t > 0 for 1")
    house.insert_at_end(KEY["file"], f"{KEY['recipe']}._check_ignored", REFUSAL)
    house.insert_before_return(METHOD_FILES["losses"], "_teacher_loss", USE)
    add_tests(house)
    return Followed(house, unnamed, unregistered)


def add_tests(house: HouseCopy) -> None:
    """Step 3 of each recipe."""
    # by hand: max(0, 1 - 2) + max(0, 1 - 1) + max(0, 1 + 0)
    house.add_entry(LOSS_TESTS["file"], LOSS_TESTS["by_hand"], '"toy_hinge": ([1.0, 0.0, 0.0], [2.0, -1.0, 0.0], 1.0)')
    reference = "lambda y, s: float(np.maximum(0.0, 1.0 - (2.0 * y - 1.0) * s).sum())"
    house.add_entry(LOSS_TESTS["file"], LOSS_TESTS["references"], f'"toy_hinge": {reference}')
    metric_tests = house.existing(METRIC_TESTS)
    metric_tests.write_text(metric_tests.read_text() + METRIC_TEST)
    recipe = '{"name": "hard", "teachers": ["click"], "hard_labels": True}'
    house.add_entry(METHOD_TESTS["file"], METHOD_TESTS["recipes"], recipe)


def test_a_loss_a_metric_and_a_method_follow_their_recipes(followed: Followed) -> None:
    house = followed.house
    checks = house.write_toy(METHOD_TESTS["file"].replace("test_methods", "test_NAME"), "training_checks")
    files = (LOSS_TESTS["file"], METRIC_TESTS, str(checks.relative_to(house.root)))
    done = house.run_tests(*files, "-v", "-k", f"toy or {OF_NAMES}")
    assert done.returncode == 0, done.stdout
    for file in files:
        assert f"{file}::" in done.stdout


def test_without_its_name_a_loss_or_metric_and_without_its_field_a_key_is_refused(followed: Followed) -> None:
    expected = {
        "loss": "error: training.loss is 'toy_hinge': Input should be 'rank_bce', 'rank_net'",
        "metric": "error: evaluation.metrics.1 is 'toy_hits': Input should be 'ndcg', 'precision' or 'recall'",
        "key": "error: recipes.1.hard_labels is True: unknown key, expected one of name, teachers",
    }
    for name, message in expected.items():
        assert followed.unnamed[name].returncode == 2
        assert message in followed.unnamed[name].stderr, followed.unnamed[name].stderr


def test_without_its_line_in_the_registry_a_loss_or_metric_fails_the_test_of_the_names(followed: Followed) -> None:
    done = followed.unregistered
    assert "2 failed" in done.stdout, done.stdout
    for kind, lines, name in (("loss", LOSS_LINES, "toy_hinge"), ("metric", METRIC_LINES, "toy_hits")):
        assert f"a {kind} needs a line in {lines['registry']}, and its name in {lines['names']}" in done.stdout
        assert f"Extra items in the left set:\nE         '{name}'" in done.stdout


def test_a_key_without_effect_is_refused(followed: Followed, tmp_path: Path) -> None:
    done = fit(followed.house, tmp_path, TASKS["key without effect"])
    assert "nothing uses hard_labels: name some, or remove that" in done.stderr


@pytest.mark.slow
def test_the_tests_of_all_methods_run_with_the_toy(followed: Followed) -> None:
    done = followed.house.run_tests(METHOD_TESTS["file"])
    assert done.returncode == 0, done.stdout
