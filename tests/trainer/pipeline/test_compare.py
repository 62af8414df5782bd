"""`trainer compare`: every recipe with several seeds, the mean over them, and a recommendation."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.shop import NUMBERS, data_of, write_shop, write_task
from trainer.config import load_config
from trainer.pipeline.compare import compare_recipes
from trainer.pipeline.evaluate import load_metrics, load_per_group
from trainer.pipeline.fit import fit

ROOT = Path(__file__).parents[3]
TASK: dict[str, Any] = {
    "student": {"layers": 0, "hidden": [8]},
    "training": {"batch_groups": 8, "steps": 4, "evaluate_every": 2, "warmup_steps": 0},
    "teachers": [{"name": "click", "sees": ["click"], "folds": 2}],
    "recipes": [
        {"name": "no_distillation"},
        {"name": "student", "teachers": ["click"]},
        {"name": "tuned", "starts_from": "student"},
    ],
    "evaluation": {"bootstrap_samples": 100},
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    """The shop's folder, the comparison's workdir, and what `compare` returned for two seeds."""
    root = tmp_path_factory.mktemp("compare")
    write_shop(root, NUMBERS)
    config = load_config(str(write_task(root, NUMBERS, **TASK)))
    return root, root / "run", compare_recipes(config, data_of(root, NUMBERS), str(root / "run"), seeds=2)


def test_a_value_is_the_mean_over_the_seeds_of_each_group(compared: tuple[Path, Path, dict[str, Any]]):
    _, workdir, comparison = compared
    first, second = comparison["seeds"]
    assert second == first + 1
    per_group = [load_per_group(str(workdir / f"seed_{seed}")) for seed in (first, second)]
    for name in ("no_distillation", "student"):
        found = comparison["models"][name]["ndcg@8"]
        expected = np.mean([values["ndcg@8"][name] for values in per_group], axis=0)
        assert found["value"] == pytest.approx(expected.mean())
        assert found["by_seed"] == pytest.approx([values["ndcg@8"][name].mean() for values in per_group], abs=1e-6)
    by_seed = comparison["models"]["student"]["ndcg@8"]["by_seed"]
    assert by_seed[0] != by_seed[1]


def test_each_seed_is_the_run_that_fit_makes_of_it(compared: tuple[Path, Path, dict[str, Any]], tmp_path: Path):
    root, workdir, comparison = compared
    task = write_task(tmp_path, NUMBERS, **TASK, seed=comparison["seeds"][1])
    fitted = fit(load_config(str(task)), data_of(root, NUMBERS), str(tmp_path / "run"))
    assert load_metrics(str(workdir / f"seed_{comparison['seeds'][1]}"))["models"] == fitted["models"]


def test_the_recommendation_comes_with_reasons_a_file_and_a_chart(compared: tuple[Path, Path, dict[str, Any]]):
    _, workdir, comparison = compared
    assert comparison["recommended"] in comparison["models"]
    assert comparison["decided_by"] == "relevance_ndcg@8"  # known here, and less noisy than purchases
    assert any(reason.startswith("The best distilled student, ") for reason in comparison["reasons"])
    # a shop without titles has no reference that could be served
    assert comparison["over_references"] == {"relevance_ndcg@8": {}, "ndcg@8": {}}
    assert json.loads((workdir / "comparison.json").read_text()) == comparison
    assert (workdir / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert not list(workdir.glob("seed_*/export"))


def test_models_are_counted_with_folds_and_with_what_a_recipe_builds_on(compared: tuple[Path, Path, dict[str, Any]]):
    from trainer.pipeline.compare import _trained

    config = load_config(str(compared[0] / "task.yaml"))
    # the teacher has two folds; `tuned` builds on `student`, which has that teacher
    assert [_trained(config, name) for name in ("no_distillation", "student", "tuned")] == [1, 3, 4]


def test_a_second_call_trains_nothing_and_prints_the_same(compared: tuple[Path, Path, dict[str, Any]]):
    root, workdir, comparison = compared
    data = data_of(root, NUMBERS)
    flags = ["--config", root / "task.yaml", "--dataset", data.dataset, "--workdir", workdir, "--seeds", "2"]
    command = [sys.executable, "-m", "trainer", "compare", *map(str, flags)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "step" not in done.stdout
    assert done.stdout.count("up to date") >= 2
    assert f"recommended: {comparison['recommended']}" in done.stdout
    assert all(reason in done.stdout for reason in comparison["reasons"])


def test_no_seed_is_refused(compared: tuple[Path, Path, dict[str, Any]]):
    root, workdir, _ = compared
    command = [sys.executable, "-m", "trainer", "compare", "--config", root / "task.yaml", "--dataset", root]
    done = subprocess.run(
        [*map(str, command), "--workdir", str(workdir), "--seeds", "0"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "expected at least 1" in done.stderr
