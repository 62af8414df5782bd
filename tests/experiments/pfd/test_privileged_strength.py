"""The experiment of privileged features of every strength: its trials, claims and tables by hand, and a quick run."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from experiments.pfd.privileged_strength import (
    EXPERIMENT,
    PrivilegedStrengthSettings,
    best,
    correlation,
    merge_by_tau,
    peak_and_ends,
)
from experiments.runner.comparison import TrialResult, Trials
from experiments.runner.experiment import load_settings
from experiments.runner.report import Claim
from features.errors import InputError
from trainer.config import load_config

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "experiments" / "configs" / "privileged_strength.yaml"


@pytest.fixture(scope="module")
def settings() -> PrivilegedStrengthSettings:
    return load_settings(str(CONFIG), PrivilegedStrengthSettings)


# --- trials


def test_a_trial_has_all_features_regular_and_one_drawn_bool(
    settings: PrivilegedStrengthSettings, tmp_path: Path
) -> None:
    cells = EXPERIMENT.cells(settings, tmp_path, True)
    assert [(cell["seed"], cell["privileged_tau"]) for cell in cells] == [
        (seed, tau) for seed in (1, 2) for tau in (-0.8, 1.6, 2.4)
    ]
    assert all(cell["task"]["letor"]["privileged_tau"] == cell["privileged_tau"] for cell in cells)
    assert all(cell["task"]["letor"]["tau"] == 2.4 for cell in cells)
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(dict(cells[0]["task"])))
    config = load_config(str(tmp_path / "task.yaml"))
    (z,) = config.spec.privileged
    assert (z.name, z.type, z.length, config.spec["regular"].length) == ("privileged", "bool", 1, 46)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no z that is y": ({"privileged_taus": [-1.6, 1.6, 4.0]}, "must rise to 4.8, where z is y"),
    "not ascending": ({"privileged_taus": [1.6, -1.6, 4.8]}, "must rise to 4.8, where z is y"),
    "no half of the seeds": ({"sets": {"mq2008": {"seeds": 1}}}, "mq2008.seeds must be 2 or more: each half of them"),
}


@pytest.mark.parametrize(("change", "complaint"), WRONG.values(), ids=WRONG)
def test_wrong_settings_are_refused(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump({"extends": str(CONFIG), **change}))
    with pytest.raises(InputError, match=re.escape(complaint)):
        load_settings(str(tmp_path / "wrong.yaml"), PrivilegedStrengthSettings)


# --- what comes of them


def test_the_correlation_of_draws_of_one_pair_follows_from_their_means() -> None:
    generator = np.random.default_rng(4)
    pair, relevance = generator.gumbel(size=(5000, 2)), generator.integers(0, 3, 5000)
    for privileged_tau in (0.5, 1.8, 2.4):
        y, z = (4 * relevance + pair[:, 0] > 4 * tau + pair[:, 1] for tau in (1.8, privileged_tau))
        result = {"splits": {"train": {"means": {"label": y.mean(), "privileged": z.mean()}}}}
        assert correlation(result) == pytest.approx(np.corrcoef(y, z)[0, 1])


TAUS = (-0.8, 1.6, 2.4)
TEACHERS = (0.5, 0.7, 1.0)


def by_tau(*students: list[float]) -> dict[float, Trials]:
    """students: of each privileged_tau, the mean NDCG of each seed, on 20 queries that differ alike."""
    found = {}
    for tau, of_seeds, teacher in zip(TAUS, students, TEACHERS, strict=True):
        trials = []
        for seed, student in enumerate(of_seeds, start=1):
            models = {"no_distillation": 0.5, "pfd": student, "teacher_privileged": teacher}
            result = {
                "queries": [f"q{i}" for i in range(20)],
                "per_group": {
                    "ndcg@8": {name: [v + 0.01 * (i % 5 - 2) for i in range(20)] for name, v in models.items()}
                },
                "splits": {"train": {"means": {"label": 0.02, "privileged": {-0.8: 0.98, 1.6: 0.08, 2.4: 0.02}[tau]}}},
            }
            trials.append(TrialResult(seed, result))
        found[tau] = Trials(trials)
    return found


RISES_AND_FALLS = by_tau([0.50, 0.51, 0.50, 0.51], [0.55, 0.56, 0.56, 0.55], [0.52, 0.53, 0.52, 0.53])


def claims(settings: PrivilegedStrengthSettings, by_tau: dict[float, Trials]) -> list[Claim]:
    return EXPERIMENT.claims(settings, {"small": by_tau})


def test_a_peak_between_the_ends_is_a_rise_and_a_fall(settings: PrivilegedStrengthSettings) -> None:
    teachers, rise, fall = claims(settings, RISES_AND_FALLS)
    assert teachers.measured == "0.500 to 0.700 to 1.000"
    assert teachers.held
    assert rise.held
    assert rise.measured.startswith("+9.9% [")  # 0.555 of 0.505
    assert fall.held
    assert fall.measured.startswith("+5.7% [")  # 0.555 of 0.525


def test_a_student_that_is_best_with_z_equal_to_y_does_not_fall(settings: PrivilegedStrengthSettings) -> None:
    _, rise, fall = claims(settings, by_tau([0.50] * 4, [0.52] * 4, [0.55] * 4))
    assert rise.held
    assert (fall.held, fall.measured) == (False, "+0.0% [+0.0%, +0.0%]")


def test_a_seed_does_not_judge_the_z_that_it_chose() -> None:
    # odd seeds' luck is with the middle z, even seeds' with the last: each half is judged by the other's choice
    trials = merge_by_tau(by_tau([0.50, 0.50], [0.60, 0.50], [0.50, 0.58]))
    assert best([trials[0]], TAUS) == 1.6
    assert best([trials[1]], TAUS) == 2.4
    judged = peak_and_ends(trials, TAUS)
    assert judged.mean("peak").value == pytest.approx((0.50 + 0.50) / 2)
    assert judged.mean("strongest").value == pytest.approx((0.50 + 0.58) / 2)


def test_the_report_has_a_row_for_each_z(settings: PrivilegedStrengthSettings) -> None:
    written = EXPERIMENT.report(settings, {"mq2008": RISES_AND_FALLS}, quick=False)
    page = "\n".join(written.body)
    # z and y with shares 0.08 and 0.02: sqrt(0.02 * 0.92 / (0.08 * 0.98)) = 0.48
    assert (
        "| 1.6            | 0.48                   | 0.700           | 0.555       | 0.500           | +11.0% [" in page
    )
    assert "| 2.4            | 1.00                   | 1.000           | 0.525 " in page
    assert list(written.results["trials_by_privileged_tau"]["mq2008"]) == ["-0.8", "1.6", "2.4"]


@pytest.mark.slow
def test_a_quick_run_writes_its_three_files(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "experiments", "privileged_strength", "--config", str(CONFIG)]
    done = subprocess.run([*command, "--out", str(tmp_path), "--quick"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "privileged_strength.md").read_text()
    assert "A quick run on a simulated data set" in page
    rows = [line.split("|") for line in page.splitlines() if line.startswith(("| -0.8", "| 1.6", "| 2.4"))]
    correlations = [float(row[2]) for row in rows]
    assert 0.0 <= correlations[0] < correlations[1] < correlations[2] == 1.0
    assert len({row[5] for row in rows}) == 1  # no-distillation does not know of z
    assert (tmp_path / "privileged_strength.png").read_bytes().startswith(b"\x89PNG")
