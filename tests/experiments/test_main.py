"""One command for every experiment: which there are, and that each runs small."""

import subprocess
import sys
from pathlib import Path

import pytest

from experiments.all import CONFIGS, EXPERIMENTS

ROOT = Path(__file__).parents[2]


def test_every_experiment_has_a_module_settings_and_a_row_in_the_docs() -> None:
    rows = (ROOT / "docs" / "experiments.md").read_text()
    for name in EXPERIMENTS:
        assert (ROOT / "experiments" / f"{name}.py").exists()
        assert (CONFIGS / f"{name}.yaml").exists()
        assert f"| `{name}` |" in rows
    with_main = {p.stem for p in (ROOT / "experiments").glob("*.py") if "def main()" in p.read_text()}
    assert with_main == {*EXPERIMENTS, "all"}


def test_help_shows_an_example() -> None:
    command = [sys.executable, "-m", "experiments.all", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "python -m experiments.all --quick" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_experiment_runs_small(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments.all", "--quick", "--out", str(tmp_path), "--processes", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in EXPERIMENTS:
        assert {"results.json", f"{name}.md", f"{name}.png"} <= {path.name for path in (tmp_path / name).iterdir()}
        assert "simulated" in (tmp_path / name / f"{name}.md").read_text()
