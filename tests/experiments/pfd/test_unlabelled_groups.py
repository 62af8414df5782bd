"""Positive groups or all in the data loss: the task, the claim, the paper's figures, and the command."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.letor.sets import LetorSettings
from experiments.pfd.letor_methods import METHODS
from experiments.pfd.letor_methods import PAPER as TABLE_4
from experiments.pfd.unlabelled_groups import EXPERIMENT, PAPER
from experiments.runner.comparison import TrialResult, Trials
from experiments.runner.experiment import load_settings
from experiments.runner.report import Claim
from trainer.config import load_config

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "experiments" / "configs" / "unlabelled_groups.yaml"


def trials_of(**ndcg: list[float]) -> Trials:
    """Two seeds of the same figures by model."""
    result: dict[str, Any] = {
        "queries": [f"q{i}" for i in range(len(ndcg["pfd_all"]))],
        "per_group": {f"ndcg@{cutoff}": ndcg for cutoff in (8, 16, 32)},
        "splits": {"train": {"groups": 120, "positive": 30, "items": 900}},
    }
    return Trials([TrialResult(seed, result) for seed in (1, 2)])


def claims(found: Trials) -> list[Claim]:
    return EXPERIMENT.claims(load_settings(str(CONFIG), LetorSettings), {"small": found})


def test_only_the_groups_of_the_data_loss_differ(tmp_path: Path) -> None:
    settings = load_settings(str(CONFIG), LetorSettings)
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(EXPERIMENT.cells(settings, tmp_path, True)[0]["task"]))
    config = load_config(str(tmp_path / "task.yaml"))
    positive, of_all = config.recipes["pfd_positive"], config.recipes["pfd_all"]
    assert (positive.data_loss_groups, of_all.data_loss_groups) == ("positive", "all")
    assert positive.model_copy(update={"name": "pfd_all", "data_loss_groups": "all"}) == of_all
    assert (positive.data_weight, config.recipe_training["pfd_positive"].loss) == (0.5, "rank_bce")


def test_table_5_agrees_with_table_4_where_they_tell_of_the_same_model() -> None:
    assert set(PAPER) == {name for name, _ in TABLE_4}
    for name, (plain, positive, _) in PAPER.items():
        rows = dict(zip(METHODS, TABLE_4[name, "rank_bce"], strict=True))
        assert (plain, positive) == (rows["No-distillation"], rows["PFD student"])


def test_the_claim_holds_where_the_whole_interval_is_above_0() -> None:
    plain = [0.4] * 8
    (claim,) = claims(trials_of(no_distillation=plain, pfd_positive=[0.55] * 8, pfd_all=[0.5] * 8))
    assert (claim.held, claim.measured) == (True, "+10.0% [+10.0%, +10.0%]")
    (noisy,) = claims(trials_of(no_distillation=plain, pfd_positive=[0.9, 0.2] * 4, pfd_all=[0.5] * 8))
    assert noisy.measured.startswith("+10.0% [-")
    assert not noisy.held


def test_the_report_shows_what_was_measured_beside_the_paper() -> None:
    settings = load_settings(str(CONFIG), LetorSettings)
    found = {"mq2008": trials_of(no_distillation=[0.4] * 8, pfd_positive=[0.5] * 8, pfd_all=[0.3] * 8)}
    written = EXPERIMENT.report(settings, found, quick=False)
    page = "\n".join(written.body)
    assert "Training groups that are positive: mq2008 25.0%." in page
    assert "Not at hand where this was made: yahoo, istella, web30k." in page
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| PFD, all")
    ]
    assert [row[4] for row in rows] == ["-", "0.522", "0.413", "0.236"]
    assert rows[0][1] == "0.300 [0.300, 0.300] (-25.0% [-25.0%, -25.0%])"
    assert all(row[1:4] == ["not at hand"] * 3 for row in rows[1:])
    (axes,) = written.figure.axes
    assert len(axes.containers) == 3  # of each cutoff
    assert list(axes.containers[0][0].get_ydata()) == pytest.approx([0.25, -0.25])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quick_run_trains_and_compares_the_three(tmp_path: Path) -> None:
    flags = ["--config", str(CONFIG), "--out", str(tmp_path), "--processes", "2", "--quick"]
    command = [sys.executable, "-m", "experiments", "unlabelled_groups", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "says nothing of the methods" in (tmp_path / "unlabelled_groups.md").read_text()
    for trial in json.loads((tmp_path / "results.json").read_text())["trials"]["simulated"]:
        assert trial["per_group"]["ndcg@8"]["pfd_positive"] != trial["per_group"]["ndcg@8"]["pfd_all"]
