"""RankDistil's experiment: its students, its claims, tables and the command."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import yaml

from experiments.rank_distil.rank_distil import (
    BASELINE,
    CUTOFFS,
    EXPERIMENT,
    LOSSES,
    ROWS,
    STUDENTS,
    RankDistilSettings,
    students_task,
)
from experiments.runner.comparison import TrialResult, Trials
from experiments.runner.experiment import load_settings
from experiments.runner.report import Claim
from features.task import load_task, merged
from trainer.config import load_config
from trainer.recipes import RankDistilConfig, settings_of_loss

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "experiments" / "configs" / "rank_distil.yaml"
METRICS = ("ndcg", "precision", "recall", "overlap", "in_order")


@pytest.fixture(scope="module")
def settings() -> RankDistilSettings:
    return load_settings(str(CONFIG), RankDistilSettings)


def trials(gains: dict[str, float], noise: float = 0.0) -> Trials:
    """Two seeds of 50 queries; a model's every figure is the baseline's, times 1 + its gain + noise of each group."""
    generator, measured = np.random.default_rng(3), []
    queries = [f"q{i}" for i in range(50)]
    for seed in (1, 2):
        base = generator.uniform(0.2, 0.4, len(queries))
        per_group: dict[str, Any] = {}
        for metric in (f"{name}@{k}" for name in METRICS for k in CUTOFFS):
            without_teacher = metric.startswith(("overlap", "in_order"))
            models = [m for m in ROWS.values() if not (without_teacher and m.startswith("teacher"))]
            per_group[metric] = {
                model: (base * (1.0 + gains.get(model, 0.0) + noise * generator.standard_normal(len(base)))).tolist()
                for model in models
            }
        histories = {model: {"best_step": 20 * seed} for model in ROWS.values()}
        result = {"queries": queries, "per_group": per_group, "histories": histories}
        measured.append(TrialResult(seed, {**result, "splits": {}, "seconds": 1.0}))
    return Trials(measured)


def claims(gains: dict[str, float], noise: float = 0.0) -> list[Claim]:
    return EXPERIMENT.claims(load_settings(str(CONFIG), RankDistilSettings), {"small": trials(gains, noise)})


def held(gains: dict[str, float], noise: float = 0.0) -> list[bool]:
    return [claim.held for claim in claims(gains, noise)]


# --- what is trained


def test_every_loss_of_the_paper_has_a_student_and_the_students_differ_in_nothing_else(
    settings: RankDistilSettings, tmp_path: Path
) -> None:
    task = merged(load_task(str(ROOT / "experiments" / "configs" / "mq2008.yaml")), students_task(settings))
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(task))
    config = load_config(str(tmp_path / "task.yaml"))
    assert list(config.recipes) == list(STUDENTS.values())
    assert set(LOSSES.values()) == set(get_args(RankDistilConfig.model_fields["loss"].annotation))
    assert len({training.model_dump_json() for training in config.recipe_training.values()}) == 1
    taught = {name: recipe for name, recipe in config.recipes.items() if name != BASELINE}
    assert {(recipe.teachers, recipe.alpha) for recipe in taught.values()} == {(("privileged",), settings.alpha)}
    distilled = {name: recipe.rank_distil for name, recipe in taught.items() if recipe.rank_distil}
    assert {name: knobs.loss for name, knobs in distilled.items()} == {
        **{loss: loss for loss in LOSSES.values()},
        "coupled_sampled": "coupled",
    }
    for knobs in distilled.values():  # each has all of the shared settings that it uses
        used = knobs.model_dump(include=set(settings_of_loss(knobs.loss)) & settings.rank_distil.keys())
        assert used == {
            name: value for name, value in settings.rank_distil.items() if name in settings_of_loss(knobs.loss)
        }
    assert [name for name, knobs in distilled.items() if knobs.permutations] == ["coupled_sampled"]
    assert {knobs.top for knobs in distilled.values()} == {max(CUTOFFS)}  # the paper's p is at least k


# --- claims


def test_claims_of_gains_hold_for_clear_gains_and_not_within_noise() -> None:
    of_losses = dict.fromkeys(LOSSES.values(), 0.1)
    assert held({**of_losses, "coupled_sampled": 0.1}) == [True] * 6
    assert held({}) == [False, False, False, False, False, True]
    # too much noise to tell anything from anything
    assert held({**of_losses, "coupled_sampled": 0.1}, noise=2.0) == [False, False, False, False, False, True]


def test_one_loss_below_the_baseline_refutes_the_claims_of_all_losses_and_is_named() -> None:
    gains = {**dict.fromkeys(LOSSES.values(), 0.1), "pairwise_hinge_hinge": -0.1, "coupled_sampled": 0.1}
    ranked, kept, *others = claims(gains)
    assert not ranked.held
    assert not kept.held
    assert ranked.measured == "least certain, pairwise: hinge + hinge: -10.0% [-10.0%, -10.0%]"
    assert all(claim.held for claim in others)


def test_a_sampled_loss_that_ranks_better_does_not_pass_for_the_exact_one() -> None:
    assert held({**dict.fromkeys(LOSSES.values(), 0.1), "coupled_sampled": 0.2})[-1] is False


# --- report


def test_the_report_shows_every_model_and_no_figure_of_the_paper(settings: RankDistilSettings) -> None:
    made = EXPERIMENT.report(settings, {"mq2008": trials({"coupled": 0.1})}, quick=False)
    page = "\n\n".join(made.body)
    for label in ROWS:
        assert page.count(f"| {label} ") == (2 if label == "the teacher*" else 3), label
    assert "the behaviour is simulated" in page
    assert "no column here is the paper's" in page
    assert "in the mean: no-distillation 30; PFD, RankBCE 30;" in page
    assert len(made.figure.axes) == 2
    assert set(made.results["trials"]["mq2008"][0]["per_group"]) == {f"{name}@{k}" for name in METRICS for k in CUTOFFS}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quick_run_writes_its_three_files(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "experiments",
        "rank_distil",
        "--config",
        str(CONFIG),
        "--quick",
        "--processes",
        "2",
    ]
    done = subprocess.run([*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "results.json").read_text())
    for trial in content["trials"]["simulated"]:
        found = {metric: models["coupled"] for metric, models in trial["per_group"].items()}
        assert {len(values) for values in found.values()} == {len(trial["queries"])}
        assert found["precision@1"] == found["ndcg@1"]
        assert found["overlap@1"] == found["in_order@1"]
    assert "A quick run on a simulated data set" in (tmp_path / "rank_distil.md").read_text()
    assert (tmp_path / "rank_distil.png").exists()
