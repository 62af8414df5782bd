"""A trial for real: the job makes a dataset of simulated LETOR files, the trainer trains, LambdaMART beside it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.letor.sets import DATA, Fold, conversion_job
from experiments.letor.simulated import QUERIES, write_simulated_set
from experiments.runner.trials import run_trial, trial
from features.errors import InputError
from features.task import Task, load_task, merged

ROOT = Path(__file__).parents[3]
TEST_QUERIES = 300  # of the set's own 30 groups, a standard error is half of what there is to learn
CHANGE: Task = {
    "seed": 3,
    "teachers": [{"name": "privileged", "sees": ["privileged"]}],
    "recipes": [{"name": "pfd", "teachers": ["privileged"]}],
    "evaluation": {"baseline": "pfd", "bootstrap_samples": 100},
    "export": {"recipe": "pfd"},
    "letor": {"tau": 1.5},  # two documents of a query bear the label as a rule, enough to learn from
    "features": {"regular": {"length": 45}, "privileged": {"length": 1}},
    "student": {"hidden": [8]},
    "training": {"steps": 20, "evaluate_every": 10},
}


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(QUERIES, "test", TEST_QUERIES)
        fold = Fold(**write_simulated_set(tmp_path_factory.mktemp("simulated")))
    task = merged(load_task(str(ROOT / "experiments" / "configs" / "mq2008.yaml")), CHANGE)
    lambdamart = {"rounds": 40, "patience": 10, "min_data_in_leaf": 5}
    return dict(trial(task, [conversion_job(fold)], DATA, seed=3)) | {"lambdamart": lambdamart}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trial")


@pytest.fixture(scope="module")
def result(cell: dict[str, Any], directory: Path) -> dict[str, Any]:
    return run_trial(cell, directory)


@pytest.mark.slow
def test_every_model_is_measured_on_the_same_positive_test_groups(result: dict[str, Any]) -> None:
    positive = result["splits"]["test"]["positive"]
    assert 0 < positive <= result["splits"]["test"]["groups"] == TEST_QUERIES
    assert len(set(result["queries"])) == len(result["queries"]) == positive
    for metric in ("ndcg@8", "ndcg@16", "ndcg@32"):
        assert set(result["per_group"][metric]) == {"random_order", "teacher_privileged", "pfd", "lambdamart"}
        assert all(len(values) == positive for values in result["per_group"][metric].values())
        assert all(0.0 <= value <= 1.0 for values in result["per_group"][metric].values() for value in values)
    assert result["histories"]["pfd"]["steps"] == [10, 20]


@pytest.mark.slow
def test_lambdamart_learns_what_the_simulated_set_has_to_learn(result: dict[str, Any]) -> None:
    ndcg = {name: np.array(values) for name, values in result["per_group"]["ndcg@16"].items()}
    gains = ndcg["lambdamart"] - ndcg["random_order"]
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    assert gains.mean() > 3.0 * error


@pytest.mark.slow
def test_a_second_run_of_a_trial_reuses_its_datasets_and_models(
    cell: dict[str, Any], directory: Path, result: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    made = {path: path.stat().st_mtime_ns for path in directory.rglob("manifest.json")}
    again = run_trial(cell, directory)
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("manifest.json")} == made
    assert again["per_group"] == result["per_group"]
    assert "up to date" in capfd.readouterr().out


def test_a_failed_job_is_reported_with_its_name_and_reason(cell: dict[str, Any], tmp_path: Path) -> None:
    broken = {**cell, "jobs": [["beam_jobs.letor_to_elwc", "--train", "absent.txt", *cell["jobs"][0][3:]]]}
    with pytest.raises(InputError, match=r"beam_jobs.letor_to_elwc: .*absent\.txt"):
        run_trial(broken, tmp_path)
