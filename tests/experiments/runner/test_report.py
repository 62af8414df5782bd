"""Reports: tables, claims and comparisons by hand, and the three files."""

import json
import platform
import sys
from dataclasses import replace
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from experiments.runner.report import (
    Claim,
    Estimate,
    Report,
    claims_table,
    command_line,
    draw_line,
    environment,
    panels,
    percent,
    png,
)
from features.errors import InputError
from trainer.evaluation.markdown_table import markdown_table
from trainer.evaluation.metrics import Interval

# --- statistics


def test_an_estimate_of_four_values_is_as_computed_by_hand() -> None:
    # mean 3, squared deviations 4 + 1 + 0 + 9: their variance is 14 / 3, their mean's a quarter of that
    estimate = Estimate.of(np.array([1.0, 2.0, 3.0, 6.0]))
    assert estimate.value == 3.0
    assert estimate.error == pytest.approx(np.sqrt(14 / 3 / 4))
    assert estimate.distance(3.0 + 2.0 * estimate.error) == pytest.approx(2.0)
    assert estimate.interval == Interval(3.0, 3.0 - 3.0 * estimate.error, 3.0 + 3.0 * estimate.error)
    assert str(Estimate(256.158, 0.442)) == "256.16 ± 0.44"


def test_clearly_above_counts_the_errors_of_both_estimates() -> None:
    # errors 3 and 4 make 5 for the difference, so 15 is where clearly begins
    assert Estimate(25.1, 3.0).clearly_above(Estimate(10.0, 4.0))
    assert not Estimate(24.9, 3.0).clearly_above(Estimate(10.0, 4.0))
    assert not Estimate(10.0, 3.0).clearly_above(Estimate(25.1, 4.0))


def test_a_relative_change_is_shown_with_its_sign_and_interval() -> None:
    assert percent(Interval(0.0949, 0.0811, 0.1102)) == "+9.5% [+8.1%, +11.0%]"
    assert percent(Interval(-0.15, -0.2, 0.01)) == "-15.0% [-20.0%, +1.0%]"


# --- Markdown


def test_the_columns_of_a_table_are_aligned_and_a_bar_in_a_cell_is_escaped() -> None:
    assert markdown_table(("method", "gain"), [("PFD", "+9.5%"), ("|v|²", "")]).splitlines() == [
        "| method | gain  |",
        "|--------|-------|",
        "| PFD    | +9.5% |",
        "| \\|v\\|² |       |",
    ]


def test_rows_of_different_length_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        markdown_table(("method", "gain"), [("PFD",)])


def test_a_claim_that_did_not_hold_is_marked_in_bold() -> None:
    lines = claims_table([Claim("rises", "+2%", True), Claim("falls", "+2%", False)]).splitlines()
    assert lines[2:] == ["| rises | +2%      | yes    |", "| falls | +2%      | **no** |"]


# --- figures


def test_a_figure_shows_its_lines_and_their_bars() -> None:
    intervals = [Interval(1.0, 0.5, 2.0), Interval(2.0, 1.9, 2.1)]
    blank = image.imread(BytesIO(png(panels(2)[0])))
    figure, (left, right) = panels(2)
    draw_line(left, [0.0, 1.0], intervals, "PFD", color="red")
    assert left.get_ylim()[0] <= 0.5  # the bar's ends are in view
    assert left.get_ylim()[1] >= 2.0
    assert not right.lines
    drawn = image.imread(BytesIO(png(figure)))
    assert drawn.shape[1] > 1.5 * drawn.shape[0]
    red = (drawn[..., 0] > 0.9) & (drawn[..., 1] < 0.3)
    assert red.any()
    assert not ((blank[..., 0] > 0.9) & (blank[..., 1] < 0.3)).any()
    assert not red[:, drawn.shape[1] // 2 :].any()


def test_a_mean_just_outside_its_interval_can_be_drawn() -> None:
    _, (axes,) = panels(1)
    draw_line(axes, [0.0], [Interval(1.0, 1.0 + 1e-16 * 4, 1.0 - 1e-16 * 4)], "perfect")
    assert len(axes.containers) == 1


# --- the three files


def report() -> Report:
    figure, (axes,) = panels(1)
    draw_line(axes, [0.0, 1.0], [Interval(1.0, 0.5, 2.0), Interval(2.0, 1.9, 2.1)], "PFD")
    return Report(
        name="toy",
        title="A toy",
        packages=("numpy",),
        settings={"seed": 7, "widths": [8, 16]},
        results={"ndcg": {"PFD": [0.25, 0.5], "GenD": [0.125, 1.0]}},
        body=["Before the table.", markdown_table(("a",), [("1",)])],
        figure=figure,
        caption="a line",
    )


def test_the_three_files_hold_the_results_and_how_they_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["__main__.py", "toy", "--config", "toy.yaml", "--out", "a folder"])
    report().write(tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["results.json", "toy.md", "toy.png"]

    command = "python -m experiments toy --config toy.yaml --out 'a folder'"
    text = (tmp_path / "new" / "results.json").read_text()
    assert json.loads(text) == {
        "command": command,
        "environment": {"python": platform.python_version(), "numpy": np.__version__},
        "settings": {"seed": 7, "widths": [8, 16]},
        "ndcg": {"PFD": [0.25, 0.5], "GenD": [0.125, 1.0]},
    }
    assert '\n  "PFD": [0.25,0.5],\n' in text  # a line a method

    page = (tmp_path / "new" / "toy.md").read_text()
    assert page.startswith(f"# A toy\n\nMade by `{command}` with python {platform.python_version()}, numpy ")
    assert "![a line](toy.png)\n\nBefore the table.\n\n| a |\n|---|\n| 1 |\n" in page
    assert image.imread(tmp_path / "new" / "toy.png").ndim == 3


def test_results_that_are_not_json_and_an_unwritable_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        replace(report(), results={"ndcg": float("nan")}).write(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="cannot write"):
        report().write(tmp_path / "file")


def test_the_environment_names_versions_and_nothing_of_the_machine() -> None:
    assert environment(["numpy", "matplotlib"]) == {
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "matplotlib": version("matplotlib"),
    }
    assert command_line(["toy", "--quick"]) == "python -m experiments toy --quick"
