"""SDR's experiment: its models as one task, what the tables combine, its claims, and the command."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from experiments.letor.simulated import FEATURES
from experiments.runner.cells import Cell
from experiments.runner.comparison import TrialResult, Trials
from experiments.runner.experiment import load_settings
from experiments.sdr.models import ALPHA, ENSEMBLES, LOSSES, SdrSettings, combined, trials_of, with_all_regular
from experiments.sdr.paper import MAIN, PAPER_ALPHAS, PAPER_MAIN, PAPER_POINTWISE_OR_LISTWISE, POINTWISE_OR_LISTWISE
from experiments.sdr.sdr import EXPERIMENT, last_third
from features.task import load_task
from trainer.config import TrainerConfig, load_config
from trainer.losses.distillation import objective_of

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "experiments" / "configs"
SETTINGS = load_settings(str(CONFIGS / "sdr.yaml"), SdrSettings)


def config_of(cell: Cell, folder: Path) -> TrainerConfig:
    (folder / "task.yaml").write_text(yaml.safe_dump(cell["task"]))
    return load_config(str(folder / "task.yaml"))


# --- the trials


def test_the_models_are_one_valid_task_of_graded_labels_with_no_privilege(tmp_path: Path) -> None:
    cells = trials_of(SETTINGS, tmp_path, quick=True)
    assert [(cell["fold"], cell["seed"]) for cell in cells] == [(1, 1), (1, 2)]
    config = config_of(cells[0], tmp_path)
    assert not config.spec.privileged
    assert config.spec["regular"].length == FEATURES
    assert config.spec.label.type == "int"
    assert cells[0]["task"]["letor"]["labels"] == "graded"
    assert all(not teacher.sees and teacher.sees_regular for teacher in config.teachers.values())
    assert {config.student} == set(config.teacher_architecture.values())
    assert config.student.interaction is not None

    trained = {*config.recipes, *(f"teacher_{name}" for name in config.teachers)}
    in_tables = {*MAIN.values(), *POINTWISE_OR_LISTWISE.values(), *SETTINGS.by_alpha.values()}
    in_tables |= {*SETTINGS.by_temperature.values(), *(member for m in ENSEMBLES for member in SETTINGS.members_of(m))}
    assert in_tables - trained == {"original", "sdr", "listwise_pointwise", "pointwise_pointwise"} | {
        "lambdamart",
        "random_order",
    }


def test_a_student_has_its_teachers_data_loss_and_the_distillation_that_its_name_says(tmp_path: Path) -> None:
    config = config_of(trials_of(SETTINGS, tmp_path, quick=True)[0], tmp_path)
    for name, recipe in config.recipes.items():
        if recipe.teachers:
            (teacher,) = recipe.teachers
            assert config.recipe_training[name].loss == config.teacher_training[teacher].loss == LOSSES[teacher]
            by_points = name.startswith(("listwise_pointwise", "pointwise_pointwise"))
            assert recipe.teacher_loss == ("mse" if by_points else "softmax")
            assert teacher == ("pointwise" if name.startswith("pointwise") else "listwise")
    sdr, only = config.recipes["sdr_1"], config.recipes["teacher_only"]
    assert sdr.targets.transform == "affine"
    assert objective_of(sdr, "softmax").data_weight == 0.5
    assert objective_of(only, "softmax").data_weight == 0.0
    by_alpha = {config.recipes[n].data_weight for n in SETTINGS.by_alpha.values()}
    assert by_alpha == set(SETTINGS.by_alpha)


def test_no_two_models_of_one_form_start_from_the_same_seed_in_any_trial(tmp_path: Path) -> None:
    starts = [
        cell["task"]["seed"] + seed
        for cell in trials_of(SETTINGS, tmp_path, quick=True)
        for seed in (0, *(r["seed"] for r in cell["task"]["recipes"] if r["name"] in SETTINGS.members_of("sdr")))
    ]
    assert len(starts) == 2 * (1 + SETTINGS.members) == len(set(starts))


@pytest.mark.parametrize(("name", "features"), [("mq2008", 46), ("web30k", 136), ("yahoo", 700), ("istella", 220)])
def test_all_of_a_sets_features_are_regular(name: str, features: int) -> None:
    task = with_all_regular(load_task(SETTINGS.sets[name].task))
    assert "privileged" not in task["features"]
    assert task["features"]["regular"]["length"] == features
    assert with_all_regular(task) == task


# --- what the tables combine

SMALL = SETTINGS.model_copy(
    update={"members": 2, "alphas": (0.25,), "temperatures": (1.0, 4.0), "pointwise_alphas": (0.5, 0.9)}
)


def test_methods_are_means_over_members_and_a_pointwise_student_is_the_best_on_validation() -> None:
    models = {"original_1": [0.2, 0.4], "original_2": [0.4, 0.4], "sdr_1": [0.5, 0.5], "sdr_2": [0.6, 0.9]}
    validation = {"original_1": 0.5, "original_2": 0.5, "sdr_1": 0.5, "sdr_2": 0.5}
    for teacher, (half, most) in {"listwise": (0.3, 0.2), "pointwise": (0.1, 0.6)}.items():
        models |= {f"{teacher}_pointwise_0_5": [half, half], f"{teacher}_pointwise_0_9": [most, most]}
        validation |= {f"{teacher}_pointwise_0_5": half, f"{teacher}_pointwise_0_9": most}
    # the best validation of any step decides, not the last one
    histories = {name: {"validation_ndcg": [0.0, best, 0.05]} for name, best in validation.items()}
    result = combined(SMALL, {"per_group": {"ndcg@5": models}, "histories": histories})
    found = result["per_group"]["ndcg@5"]
    np.testing.assert_allclose(found["original"], [0.3, 0.4])
    np.testing.assert_allclose(found["sdr"], [0.55, 0.7])
    assert found["listwise_pointwise"] == [0.3, 0.3]
    assert found["pointwise_pointwise"] == [0.6, 0.6]
    assert result["made_of"]["pointwise_pointwise"] == ["pointwise_pointwise_0_9"]


# --- claims and tables

FIGURES = {
    "random_order": 0.30,
    "pointwise_pointwise": 0.42,
    "teacher_only": 0.43,
    "listwise_pointwise": 0.43,
    "teacher_pointwise": 0.44,
    "lambdamart": 0.45,
    "teacher_listwise": 0.50,
    "original": 0.50,
    "original_1": 0.50,
    "pointwise_listwise": 0.51,
    "alpha_0_25": 0.53,
    "temperature_1": 0.52,
    "temperature_4": 0.51,
    "original_ensemble": 0.54,
    "sdr": 0.55,
    "sdr_1": 0.55,
    "sdr_ensemble": 0.57,
}


def measured(figures: dict[str, float], sdr_last: tuple[float, float] = (0.8, 0.7)) -> Trials:
    """Two seeds in which each of 20 queries moves every model alike.

    sdr_last: its data loss on training data and its validation NDCG at last; the original's are 0.6, 0.6.
    """
    by_query = np.linspace(-0.2, 0.2, 20)
    models = {name: (value + by_query).tolist() for name, value in figures.items()}
    fit, ranking = sdr_last
    common = {"steps": [20, 40], "validation_loss": [1.0, 0.9]}
    original = {**common, "training_loss": [0.9, 0.6], "teacher_term": [0.0, 0.0], "validation_ndcg": [0.3, 0.6]}
    # of SDR's mixed loss 0.2 are the teacher's term; the data loss is in it times alpha
    mixed = [0.7, ALPHA * fit + 0.2]
    distilled = {**common, "training_loss": mixed, "teacher_term": [0.2, 0.2], "validation_ndcg": [0.3, ranking]}
    histories = {f"original_{m}": original for m in (1, 2)} | {f"sdr_{m}": distilled for m in (1, 2)}
    result: dict[str, Any] = {
        "queries": [f"q{i}" for i in range(20)],
        "per_group": {f"ndcg@{cutoff}": models for cutoff in (5, 1, 10)},
        "histories": histories,
    }
    return Trials([TrialResult(seed, result) for seed in (1, 2)])


def judged(sdr_last: tuple[float, float] = (0.8, 0.7), **changed: float) -> dict[str, bool]:
    """Claim -> whether it held."""
    found = measured({**FIGURES, **changed}, sdr_last)
    claims = EXPERIMENT.claims(SMALL, {"small": found})
    return {claim.statement.removeprefix("small: "): claim.held for claim in claims}


def test_every_claim_holds_for_figures_like_the_papers() -> None:
    held = judged()
    assert len(held) == 17  # the example of Theorem 1 is one of them
    assert all(held.values())


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        ({"teacher_listwise": 0.55}, "SDR above its teacher"),
        ({"original": 0.56}, "SDR above the original loss alone"),
        ({"sdr_ensemble": 0.55}, "SDR-ens above SDR"),
        ({"lambdamart": 0.56}, "SDR above LambdaMART"),
        ({"listwise_pointwise": 0.56}, "listwise distillation above pointwise, of the listwise teacher"),
        ({"listwise_pointwise": 0.51}, "pointwise distillation not above the listwise teacher"),
        ({"teacher_only": 0.56}, "SDR above the teacher's objective alone"),
        ({"alpha_0_25": 0.49}, "every alpha strictly between 0 and 1 above the original loss alone, in the mean"),
        ({"temperature_4": 0.56}, "the softmax transform below the affine one at every temperature, in the mean"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_claim_does_not_hold_when_a_figure_is_changed_against_it(changed: dict[str, float], lost: str) -> None:
    assert not judged(**changed)[lost]


@pytest.mark.parametrize("sdr_last", [(0.5, 0.7), (0.8, 0.5)], ids=["fits better", "ranks worse"])
def test_a_student_that_fits_better_or_ranks_worse_is_not_regularised(sdr_last: tuple[float, float]) -> None:
    claim = "in the last third of training SDR fits training labels less and ranks validation data better"
    assert judged()[claim]
    assert not judged(sdr_last)[claim]


def test_the_last_third_of_seven_points_is_two() -> None:
    assert last_third({"step": [1.0] * 7, "loss": [9.0, 9.0, 9.0, 9.0, 9.0, 1.0, 2.0]}) == {"loss": 1.5}
    assert last_third({"loss": [9.0, 2.0]}) == {"loss": 2.0}


def test_the_report_has_every_table_beside_the_papers_numbers() -> None:
    report = EXPERIMENT.report(SMALL, {"mq2008": measured(FIGURES)}, quick=False)
    page = "\n".join(report.body)
    assert "Not at hand where this was made: yahoo, istella, web30k." in page
    assert "the paper's alpha, which weighs the teacher, is one minus it" in page
    for table in ("Table 1", "Table 2", "Table 3 and Figure 2", "Figure 3, left", "Figure 3, right", "Figure 4"):
        assert f"({table}" in page, table
    rows = {line.split(" | ")[0].removeprefix("| ").strip(): line for line in page.splitlines() if " [" in line}
    assert "0.550 [" in rows["SDR"]
    assert "(+10.0% [" in rows["SDR"]
    assert "0.25 (the paper's 0.75)" in rows
    assert "softmax, T = 4" in rows
    missing = [line for line in page.splitlines() if "not at hand |" in line and line.startswith("| SDR ")]
    assert [figure in line for line, figure in zip(missing, ("0.7389", "0.7024", "0.5156"), strict=True)] == [True] * 3
    # of the mixed loss 0.7, 0.2 are the teacher's, and the data loss was halved
    assert report.results["curves"]["mq2008"]["sdr"]["data loss on training data"] == [1.0, 0.8]


def test_the_papers_figures_give_the_papers_gains() -> None:
    # Table 1's own rows of gains, in percent, of figures rounded to two digits
    gains = {
        "web30k": ((1.49, 1.26, 1.30), (0.64, 0.77, 0.67)),
        "yahoo": ((-0.21, 0.18, 0.24), (0.29, 0.73, 0.44)),
        "istella": ((0.27, 0.26, 0.23), (0.15, 0.27, 0.16)),
    }
    for name, (of_sdr, of_ensemble) in gains.items():
        rows = {label: np.array(row) for label, row in PAPER_MAIN[name].items()}
        np.testing.assert_allclose(100 * (rows["SDR"] / rows["DASALC: SDR's teacher"] - 1), of_sdr, atol=0.02)
        np.testing.assert_allclose(100 * (rows["SDR-ens"] / rows["DASALC-ens"] - 1), of_ensemble, atol=0.02)
    of_web30k = PAPER_MAIN["web30k"]
    assert PAPER_ALPHAS[0.5] == PAPER_POINTWISE_OR_LISTWISE["listwise teacher, listwise distillation (SDR)"]
    assert PAPER_ALPHAS[0.5] == of_web30k["SDR"]
    assert PAPER_ALPHAS[1.0] == of_web30k["DASALC: SDR's teacher"] == PAPER_POINTWISE_OR_LISTWISE["listwise teacher"]


# --- the command


@pytest.mark.slow
def test_a_quick_run_writes_its_files(tmp_path: Path) -> None:
    flags = ["--config", str(CONFIGS / "sdr.yaml"), "--out", str(tmp_path), "--processes", "2", "--quick"]
    command = [sys.executable, "-W", "ignore", "-m", "experiments", "sdr", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "sdr.md").read_text()
    assert "A quick run on a simulated data set" in page
    assert "## simulated: methods (Table 1" in page
    assert (tmp_path / "sdr.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads((tmp_path / "results.json").read_text())
    # a member's data loss cannot differ from its fellow's by more than luck, so the curves' recovery of SDR's is sound
    curves = results["curves"]["simulated"]
    assert curves["sdr"]["data loss on training data"] == pytest.approx(
        curves["original"]["data loss on training data"], rel=0.2
    )
    assert [len(trial["queries"]) for trial in results["trials"]["simulated"]] == [30, 30]
