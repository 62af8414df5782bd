"""The command line of the experiments: which there are, what it refuses, and that each runs small."""

import subprocess
import sys
from pathlib import Path

import pytest

from experiments.__main__ import CONFIGS
from experiments.registry import EXPERIMENTS

ROOT = Path(__file__).parents[2]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "experiments", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_every_experiment_is_registered_and_has_settings_and_a_row_in_the_docs() -> None:
    rows = (ROOT / "docs" / "experiments.md").read_text()
    for name in EXPERIMENTS:
        assert (CONFIGS / f"{name}.yaml").exists()
        assert f"| `{name}` |" in rows
    defined = [path for path in (ROOT / "experiments").rglob("*.py") if "\nEXPERIMENT = " in path.read_text()]
    assert sorted(path.stem for path in defined) == sorted(EXPERIMENTS)


def test_help_names_every_experiment_and_shows_examples() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name, experiment in EXPERIMENTS.items():
        assert f"  {name} " in done.stdout
        assert experiment.title in done.stdout
    assert "python -m experiments alpha --out build/experiments/alpha --processes 2" in done.stdout
    assert "python -m experiments all --quick" in done.stdout


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    done = run("beta", "--out", tmp_path)
    assert done.returncode == 2
    assert "invalid choice: 'beta' (choose from 'linear'" in done.stderr


def test_settings_for_all_experiments_at_once_are_refused(tmp_path: Path) -> None:
    done = run("all", "--config", CONFIGS / "alpha.yaml", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.startswith("error: --config is ")
    assert "expected none with `all`, where each experiment has its own: leave it out" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_experiment_runs_small(tmp_path: Path) -> None:
    done = run("all", "--quick", "--out", tmp_path, "--processes", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in EXPERIMENTS:
        assert {"results.json", f"{name}.md", f"{name}.png"} <= {path.name for path in (tmp_path / name).iterdir()}
        assert "simulated" in (tmp_path / name / f"{name}.md").read_text()
