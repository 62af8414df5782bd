"""Theorems 1 and 2: hand arithmetic, a simulation that follows the paper word by word, and the command."""

import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from experiments.pfd.linear_simulation import LinearSettings, simulate, squared_errors
from experiments.pfd.linear_theory import World
from experiments.runner.experiment import load_settings
from features.errors import InputError
from features.manifest import stage_key
from trainer.evaluation.metrics import Floats

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "experiments" / "configs" / "linear.yaml"
EXAMPLE_1 = World(labelled=30, unlabelled=200, sigma=15.0, regular=10, effects=tuple(range(10, 0, -1)))
SMALL = World(labelled=14, unlabelled=6, sigma=4.0, regular=2, effects=(3.0, 2.0, 1.0))
NO_UNLABELLED = replace(SMALL, unlabelled=0)


# --- closed forms


def test_the_closed_forms_of_example_1_are_as_computed_by_hand() -> None:
    # |v*|^2 = 385, sigma^2 = 225; d_z = 2 explains 100 + 81 and leaves 610 - 181 = 429
    assert EXAMPLE_1.least_squares() == pytest.approx(10 * 610 / 19)
    assert EXAMPLE_1.leading(2) == pytest.approx(10 * 429 / 17 + 10 * 181 / 219)
    assert EXAMPLE_1.leading(10) == pytest.approx(10 * 225 / 9 + 10 * 385 / 219)
    assert EXAMPLE_1.neglected(10) == pytest.approx(-225 * 10 * 10 / (9 * 219))


def test_without_privileged_features_nothing_is_neglected_and_pfd_is_least_squares() -> None:
    assert EXAMPLE_1.neglected(0) == 0.0
    assert EXAMPLE_1.exact(0) == pytest.approx(EXAMPLE_1.least_squares())


@pytest.mark.parametrize("privileged", range(4))
def test_without_unlabelled_examples_the_exact_form_is_least_squares(privileged: int) -> None:
    assert NO_UNLABELLED.exact(privileged) == pytest.approx(NO_UNLABELLED.least_squares())


def test_example_1_is_not_monotone_in_closed_form() -> None:
    for curve in (EXAMPLE_1.leading, EXAMPLE_1.exact):
        errors = [curve(d_z) for d_z in range(11)]
        best = int(np.argmin(errors))
        assert best == 6
        assert errors[: best + 1] == sorted(errors[: best + 1], reverse=True)
        assert errors[best:] == sorted(errors[best:])
        assert errors[10] > 1.2 * errors[best]


def test_the_neglected_share_of_example_1_is_below_5_percent_and_halves_as_n_and_m_double() -> None:
    worlds = [World(30 * 2**i, 200 * 2**i, 15.0, 10, EXAMPLE_1.effects) for i in range(3)]
    shares = [-world.neglected(10) / world.leading(10) for world in worlds]
    assert shares[0] == pytest.approx(0.0427, abs=5e-5)
    assert shares[1] < shares[0] / 2
    assert shares[2] < shares[1] / 2


# --- simulation


def by_the_book(world: World, draws: int, seed: int) -> Floats:
    """[draws, 2 + d_u] squared errors, a draw at a time and a regression at a time, as section 5.1 tells it."""
    generator = np.random.default_rng(seed)
    errors = np.empty((draws, 2 + world.hidden))
    for draw in range(draws):
        w = generator.normal(size=world.regular)
        x = generator.normal(size=(world.labelled, world.regular))
        u = generator.normal(size=(world.labelled, world.hidden))
        y = x @ w + u @ np.array(world.effects) + generator.normal(scale=world.sigma, size=world.labelled)
        all_x = np.vstack([x, generator.normal(size=(world.unlabelled, world.regular))])
        all_u = np.vstack([u, generator.normal(size=(world.unlabelled, world.hidden))])
        students = [np.linalg.lstsq(x, y, rcond=None)[0]]
        for d_z in range(world.hidden + 1):
            teacher = np.linalg.lstsq(np.hstack([x, u[:, :d_z]]), y, rcond=None)[0]
            predictions = np.hstack([all_x, all_u[:, :d_z]]) @ teacher
            students.append(np.linalg.lstsq(all_x, predictions, rcond=None)[0])
        errors[draw] = [np.sum((student - w) ** 2) for student in students]
    return errors


def standard_errors(errors: Floats) -> Floats:
    """Of each column's mean; few enough percent of it that the comparisons below can fail."""
    deviations: Floats = errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
    assert np.all(deviations < 0.03 * errors.mean(axis=0))
    return deviations


CLOSED_FORMS = np.array([SMALL.least_squares(), *(SMALL.exact(d_z) for d_z in range(4))])


def test_a_simulation_by_the_book_agrees_with_the_exact_forms_and_not_with_the_leading_terms() -> None:
    errors = by_the_book(SMALL, draws=2000, seed=1)
    assert np.all(np.abs(errors.mean(axis=0) - CLOSED_FORMS) < 3.0 * standard_errors(errors))
    # for d_z = 3: 2 * 16 / 8 + 2 * 14 / 17, which neglects 16 * 2 * 3 / (8 * 17), an eighth of it
    assert SMALL.leading(3) - errors[:, 4].mean() > 3.0 * standard_errors(errors)[4]


def test_the_vectorised_simulation_agrees_with_the_exact_forms() -> None:
    errors = squared_errors(SMALL, 40_000, np.random.default_rng(2))
    assert np.all(np.abs(errors.mean(axis=0) - CLOSED_FORMS) < 3.0 * standard_errors(errors))


def test_pfd_without_privileged_features_is_least_squares_in_every_draw() -> None:
    errors = squared_errors(SMALL, 200, np.random.default_rng(3))
    np.testing.assert_allclose(errors[:, 1], errors[:, 0], rtol=1e-8)
    assert not np.allclose(errors[:, 2], errors[:, 0], rtol=1e-2)


def test_pfd_without_unlabelled_examples_is_least_squares_in_every_draw() -> None:
    # what regressing on x and z leaves is orthogonal to x, so its predictions regress on x as y does
    errors = squared_errors(NO_UNLABELLED, 200, np.random.default_rng(4))
    np.testing.assert_allclose(errors, errors[:, :1] @ np.ones((1, 5)), rtol=1e-6)


CELL: dict[str, Any] = {**asdict(SMALL), "effects": [3.0, 2.0, 1.0], "seed": 7, "draws": 60, "chunk": 0}


def test_a_cell_is_reproducible_and_no_other_cell_shares_its_draws() -> None:
    first = simulate(CELL, Path())
    assert first == simulate(CELL, Path())
    for change in ({"chunk": 1}, {"seed": 8}, {"draws": 61}, {"unlabelled": 7}):
        assert not set(first) & set(simulate({**CELL, **change}, Path()))


def test_a_chunk_of_several_batches_is_the_mean_over_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # batches are drawn one after the other, so a chunk of three batches is the mean of three chunks' errors
    monkeypatch.setattr(
        "experiments.pfd.linear_simulation.BATCH_NUMBERS", 20 * 20 * 5
    )  # 20 draws of 20 examples with 5 features
    generator = np.random.default_rng(int(stage_key(**CELL), 16))
    by_hand = np.concatenate([squared_errors(SMALL, 20, generator) for _ in range(3)])
    np.testing.assert_allclose(simulate(CELL, Path()), by_hand.mean(axis=0), rtol=1e-12)


# --- the command


def linear(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "experiments", "linear", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_a_quick_run_writes_its_three_files_and_a_second_one_computes_nothing(tmp_path: Path) -> None:
    flags = ("--config", CONFIG.relative_to(ROOT), "--out", tmp_path, "--processes", "2", "--quick")
    done = linear(*flags)
    assert done.returncode == 0, done.stderr
    assert f"of 7 claims held; wrote {tmp_path}/linear.md" in done.stdout

    page = (tmp_path / "linear.md").read_text()
    assert "too few draws to judge the claims by" in page
    assert f"python -m experiments linear {' '.join(map(str, flags))}`" in page
    assert "| 10  | 267.58" in page  # Example 1 with all of u privileged, by hand above
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["settings"]["seed"] == yaml.safe_load(CONFIG.read_text())["seed"]
    chunks = results["mean_squared_errors_by_chunk"]["n = 30, m = 200, sigma = 15"]
    assert np.array(chunks).shape == (4, len(results["columns"]))
    assert np.mean(chunks, axis=0)[0] == pytest.approx(EXAMPLE_1.least_squares(), rel=0.15)
    assert (tmp_path / "linear.png").read_bytes().startswith(b"\x89PNG")

    again = linear(*flags)
    assert "32 cells: 32 are there, 0 to compute" in again.stderr
    assert (tmp_path / "linear.md").read_text() == page


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"sgima": 1.0}, "unknown key 'sgima', expected one of extends, seed"),
    "too few labels": ({"labelled": 23}, "labelled 23 must be 24 or more"),
    "a noise below 0": ({"sigma": -1.0}, "sigma is -1.0"),
    "fewer than no unlabelled examples": ({"more_unlabelled": [-1]}, "more_unlabelled.0 is -1"),
    "a single chunk": ({"draws": {"chunks": 1, "each": 10}}, "draws.chunks is 1"),
}


@pytest.mark.parametrize(("change", "complaint"), WRONG.values(), ids=WRONG)
def test_wrong_settings_are_refused(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump({"extends": str(CONFIG), **change}))
    with pytest.raises(InputError, match=re.escape(complaint)):
        load_settings(str(path), LinearSettings)


def test_a_missing_settings_file_ends_the_command_with_one_message(tmp_path: Path) -> None:
    wrong = linear("--config", tmp_path / "missing.yaml", "--out", tmp_path / "out")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: cannot read")
    assert wrong.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
