"""Teachers with imputed features: the task, the claims, the paper's figures, and the command."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.letor.sets import LetorSettings
from experiments.pfd.imputation import EXPERIMENT, IMPUTED, PAPER, TEACHER
from experiments.pfd.letor_methods import METHODS
from experiments.pfd.letor_methods import PAPER as TABLE_4
from experiments.runner.comparison import TrialResult, Trials
from experiments.runner.experiment import load_settings
from experiments.runner.report import Claim
from trainer.config import load_config

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "experiments" / "configs" / "imputation.yaml"
NDCG = {
    "random_order": [0.2] * 8,
    "no_distillation": [0.5] * 8,
    TEACHER: [0.6] * 8,
    IMPUTED["zero"]: [0.3] * 8,
    IMPUTED["mean"]: [0.9, 0.0] * 4,  # 10% below, and too noisy to say so
}


def trials_of(ndcg: dict[str, list[float]]) -> Trials:
    """Two seeds of the same figures by model."""
    result: dict[str, Any] = {
        "queries": [f"q{i}" for i in range(8)],
        "per_group": {f"ndcg@{cutoff}": ndcg for cutoff in (8, 16, 32)},
    }
    return Trials([TrialResult(seed, result) for seed in (1, 2)])


def claims(found: Trials) -> list[Claim]:
    return EXPERIMENT.claims(load_settings(str(CONFIG), LetorSettings), {"small": found})


def test_the_task_imputes_in_both_ways(tmp_path: Path) -> None:
    settings = load_settings(str(CONFIG), LetorSettings)
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(EXPERIMENT.cells(settings, tmp_path, True)[0]["task"]))
    config = load_config(str(tmp_path / "task.yaml"))
    assert config.evaluation.impute == ("zero", "mean")
    assert config.teachers["privileged"].sees == ("privileged",)
    assert list(config.recipes) == ["no_distillation"]


def test_the_papers_baseline_and_true_teacher_are_those_of_table_4() -> None:
    assert set(PAPER) == {name for name, _ in TABLE_4}
    for name, (true, _, _, plain) in PAPER.items():
        rows = dict(zip(METHODS, TABLE_4[name, "rank_bce"], strict=True))
        assert (true, plain) == (rows["PFD teacher*"], rows["No-distillation"])


def test_claims_hold_where_the_whole_interval_says_so() -> None:
    true, zero, mean = claims(trials_of(NDCG))
    assert (true.held, true.measured) == (True, "+20.0% [+20.0%, +20.0%]")
    assert (zero.held, zero.measured) == (True, "-40.0% [-40.0%, -40.0%]")
    assert mean.measured.startswith("-10.0% [")
    assert not mean.held
    turned = claims(trials_of({**NDCG, TEACHER: [0.4] * 8, IMPUTED["zero"]: [0.6] * 8}))
    assert [claim.held for claim in turned] == [False, False, False]


def test_the_report_shows_what_was_measured_beside_the_paper() -> None:
    written = EXPERIMENT.report(load_settings(str(CONFIG), LetorSettings), {"mq2008": trials_of(NDCG)}, quick=False)
    lines = "\n".join(written.body).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| Teacher, zero")]
    assert rows[0][1] == "0.300 [0.300, 0.300] (-40.0% [-40.0%, -40.0%])"
    assert [row[4:] for row in rows] == [
        ["-", "-", "-"],
        ["0.329", "0.378", "0.418"],
        ["0.210", "0.249", "0.285"],
        ["0.177", "0.210", "0.247"],
    ]
    assert any(line.startswith("| random order ") and "0.200 [" in line for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quick_run_ranks_by_true_and_by_imputed_values(tmp_path: Path) -> None:
    flags = ["--config", str(CONFIG), "--out", str(tmp_path), "--processes", "2", "--quick"]
    command = [sys.executable, "-m", "experiments", "imputation", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "says nothing of the methods" in (tmp_path / "imputation.md").read_text()
    for trial in json.loads((tmp_path / "results.json").read_text())["trials"]["simulated"]:
        ndcg = trial["per_group"]["ndcg@8"]
        assert ndcg[TEACHER] != ndcg[IMPUTED["zero"]] != ndcg[IMPUTED["mean"]] != ndcg[TEACHER]
