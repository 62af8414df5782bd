"""The sparsity experiment: its trials, claims and tables by hand, and a quick run."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.letor.sets import group_by_set_and
from experiments.pfd.sparsity import CHANGE, EXPERIMENT, PFD, SparsitySettings, with_tau
from experiments.runner.comparison import TrialResult, Trials
from experiments.runner.experiment import load_settings
from experiments.runner.report import Claim, claims_table
from trainer.config import load_config

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "experiments" / "configs" / "sparsity.yaml"


@pytest.fixture(scope="module")
def settings() -> SparsitySettings:
    return load_settings(str(CONFIG), SparsitySettings)


# --- trials


def test_a_quick_run_draws_each_seeds_labels_at_both_ends(settings: SparsitySettings, tmp_path: Path) -> None:
    cells = EXPERIMENT.cells(settings, tmp_path, True)
    # 0.4 and 4.8 where relevance goes to 4; the simulated set's goes to 2
    assert [(cell["seed"], cell["tau"]) for cell in cells] == [(1, 0.2), (1, 2.4), (2, 0.2), (2, 2.4)]
    assert all(cell["task"]["letor"]["tau"] == cell["tau"] for cell in cells)


def test_a_tau_is_the_papers_own_where_the_tasks_is() -> None:
    cell = {"set": "web30k", "task": {"letor": {"tau": 4.8, "temperature": 4.0}}}
    assert with_tau(cell, 2.8) == {"set": "web30k", "tau": 2.8, "task": {"letor": {"tau": 2.8, "temperature": 4.0}}}


def test_the_methods_are_one_valid_task(settings: SparsitySettings, tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(dict(EXPERIMENT.cells(settings, tmp_path, True)[0]["task"])))
    config = load_config(str(tmp_path / "task.yaml"))
    assert list(config.recipes) == [recipe["name"] for recipe in CHANGE["recipes"]]
    assert config.teachers["self"].sees == ()
    assert config.recipe_training[PFD].loss == config.teacher_training["privileged"].loss == "rank_bce"


# --- what comes of them


def result(positive: int, **ndcg: float) -> dict[str, Any]:
    """A trial's, whose 20 queries differ alike for every model."""
    models = {"random_order": 0.2, "no_distillation": 0.5, "self_distillation": 0.5, "pfd": 0.5, **ndcg}
    return {
        "queries": [f"q{i}" for i in range(20)],
        "per_group": {"ndcg@8": {name: [v + 0.01 * (i % 5) for i in range(20)] for name, v in models.items()}},
        "splits": {"train": {"groups": 200, "positive": positive}},
    }


def trials_of(*seeds: dict[str, Any]) -> Trials:
    return Trials([TrialResult(seed, of_seed) for seed, of_seed in enumerate(seeds, start=1)])


DENSE = trials_of(result(180, pfd=0.505), result(190, pfd=0.515))
SPARSE = trials_of(result(20, pfd=0.56, self_distillation=0.52), result(30, pfd=0.57, self_distillation=0.52))


def claims(settings: SparsitySettings, by_tau: dict[float, Trials]) -> list[Claim]:
    return EXPERIMENT.claims(settings, {"small": by_tau})


def test_gains_that_grow_by_more_than_their_intervals_hold(settings: SparsitySettings) -> None:
    above, over_plain, over_self = claims(settings, {0.2: DENSE, 2.4: SPARSE})
    assert above.held
    assert over_plain.held
    # a mean of 0.02 lies on every NDCG: 0.53 and 0.585 of 0.52, and at the sparsest 0.585 of 0.54
    assert over_plain.measured.startswith("+1.9% [")
    assert " to +12.5% [" in over_plain.measured
    assert over_self.held
    assert " to +8.3% [" in over_self.measured


def test_the_sparsest_positives_are_those_of_the_highest_tau_and_shrinking_gains_do_not_hold(
    settings: SparsitySettings,
) -> None:
    assert [claim.held for claim in claims(settings, {0.2: SPARSE, 2.4: DENSE})] == [True, False, False]


def test_a_gain_whose_intervals_touch_is_not_said_to_grow(settings: SparsitySettings) -> None:
    # the larger gain is one seed's luck: its interval goes down to the other's
    lucky = trials_of(result(20, pfd=0.505), result(30, pfd=0.57))
    _, over_plain, _ = claims(settings, {0.2: DENSE, 2.4: lucky})
    assert not over_plain.held


def test_the_report_shows_each_tau_and_what_the_paper_printed(settings: SparsitySettings) -> None:
    written = EXPERIMENT.report(settings, {"mq2008": {0.2: DENSE, 2.4: SPARSE}}, quick=False)
    page = "\n".join(written.body)
    assert SPARSE.positive_share("train") == 25 / 200
    assert "| 2.4 | 12.5%                    | 40                      | 0.220        | 0.520           |" in page
    # Yang et al. 2022, Table 4: 0.517, 0.522 and 0.566
    assert "| yahoo    | 2.5%                     | 0.517           | +1.0%             | +9.5% | +8.4%" in page
    assert claims_table(EXPERIMENT.claims(settings, {"mq2008": {0.2: DENSE, 2.4: SPARSE}})) in page
    assert list(written.results["trials_by_tau"]["mq2008"]) == ["0.2", "2.4"]


def test_results_are_grouped_by_set_and_tau() -> None:
    cells = [{"set": s, "seed": 1, "tau": tau} for s, tau in (("a", 4.8), ("a", 0.4), ("b", 2.4), ("b", 0.2))]
    found = group_by_set_and("tau", cells, [result(positive) for positive in (10, 20, 30, 40)])
    assert {name: {tau: t.positive_share("train") for tau, t in by_tau.items()} for name, by_tau in found.items()} == {
        "a": {0.4: 0.1, 4.8: 0.05},
        "b": {0.2: 0.2, 2.4: 0.15},
    }
    assert list(found["a"]) == [0.4, 4.8]


@pytest.mark.slow
def test_a_quick_run_writes_its_three_files(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "experiments", "sparsity", "--config", str(CONFIG)]
    done = subprocess.run([*command, "--out", str(tmp_path), "--quick"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "sparsity.md").read_text()
    assert "A quick run on a simulated data set" in page
    dense, sparse = (
        float(line.split("|")[2].strip().rstrip("%"))
        for line in page.splitlines()
        if line.startswith(("| 0.2", "| 2.4"))
    )
    assert 0.0 < sparse < dense <= 100.0
    assert (tmp_path / "sparsity.png").read_bytes().startswith(b"\x89PNG")
