"""Table 3 on simulated shops: which trials make it, how its shapes are judged, and the command itself."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from experiments.pfd.shop_methods import (
    EXPERIMENT,
    FIRST,
    ShopSettings,
    describe_shops,
    judged,
    share_of_distance,
    shared_texts,
)
from experiments.pfd.shop_models import BASELINE, ROWS
from experiments.runner.cells import Cell
from experiments.runner.comparison import TrialResult, Trials
from experiments.runner.experiment import load_settings
from features.task import load_task
from trainer.config import load_config

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "experiments" / "configs" / "shop_methods.yaml"


@pytest.fixture(scope="module")
def settings() -> ShopSettings:
    read = load_settings(str(CONFIG), ShopSettings)
    return read.model_copy(update={"task": str(ROOT / read.task)})


def shop_trials(settings: ShopSettings, quick: bool) -> Sequence[Cell]:
    return EXPERIMENT.cells(settings, Path("nothing is written"), quick)


# --- trials


def test_a_trial_simulates_its_own_shop_and_changes_nothing_else_of_the_demo(settings: ShopSettings) -> None:
    demo = json.loads(json.dumps(load_task(settings.task), default=str))
    cells = shop_trials(settings, quick=False)
    assert [cell["seed"] for cell in cells] == [1, 2, 3, 4, 5]
    for cell in cells:
        task = cell["task"]
        assert task["seed"] == task["simulator"]["seed"] == cell["seed"]
        assert {**task["simulator"], "seed": 7} == demo["simulator"]
        for section in ("features", "teachers", "dataset", "vocabulary", "student", "teacher_architecture"):
            assert task[section] == demo[section], section
        assert task["recipes"][: len(demo["recipes"])] == demo["recipes"]


def test_a_trial_runs_the_jobs_that_the_demo_runs_in_a_directory_of_its_own(settings: ShopSettings) -> None:
    macros = [
        macro
        for macro in (ROOT / "Makefile").read_text().split("define ")
        if macro.startswith(("dataset\n", "train\n"))
    ]
    assert len(macros) == 2
    of_demo = [
        line.split()[2]
        for macro in macros
        for line in macro.splitlines()
        if line.startswith(("\t$(PY) -m simulator ", "\t$(PY) -m beam_jobs."))
    ]
    for cell in shop_trials(settings, quick=False):
        assert [job[0] for job in cell["jobs"]] == of_demo
        places = [part for job in cell["jobs"] for part in job if "/" in part]
        assert all(place.startswith("{trial}/") for place in (*places, *cell["data"].values()))


def test_the_rows_are_the_models_of_a_trial(settings: ShopSettings, tmp_path: Path) -> None:
    path = tmp_path / "task.yaml"
    path.write_text(yaml.safe_dump(shop_trials(settings, quick=False)[0]["task"]))
    config = load_config(str(path))
    trained = {f"teacher_{name}" for name in config.teachers} | set(config.recipes)
    assert set(ROWS) == trained | {"random_order", "bm25", "oracle"}
    assert {model for model, row in ROWS.items() if row.kind == "teacher"} == {f"teacher_{t}" for t in config.teachers}
    # the paper's pretraining on add is ours on click, but for what is learned
    by_click, by_add = (config.recipes[f"pretrained_on_{what}"] for what in ("click", "add"))
    assert (by_click.learns, by_add.learns) == ("click", "add_to_cart")
    assert config.recipes["pretrained_on_add_then_tuned"].starts_from == "pretrained_on_add"


def test_a_quick_run_simulates_less_and_trains_less(settings: ShopSettings) -> None:
    first, second = shop_trials(settings, quick=True)
    assert (first["seed"], second["seed"]) == (1, 2)
    assert first["task"]["simulator"]["requests"] < 5000
    assert first["task"]["training"]["steps"] < 100
    assert first["task"]["recipes"] == shop_trials(settings, quick=False)[0]["task"]["recipes"]


# --- judging

IN_PAPER = {model: row.paper[0] if row.paper else 1.0 for model, row in ROWS.items()}
AS_PUBLISHED = {**IN_PAPER, "random_order": 0.5, "oracle": 1.2, "student": 1.112}  # times the baseline's


def trials(factors: dict[str, float], noise: float = 0.0, seeds: int = 2, groups: int = 40) -> Trials:
    """Every model's NDCG as a multiple of the baseline's 0.4, each group with noise of its own for each model."""
    generator = np.random.default_rng(1)
    measured = []
    for seed in range(1, seeds + 1):
        values = {
            model: (0.4 * factor + noise * generator.normal(size=groups)).tolist() for model, factor in factors.items()
        }
        result: dict[str, Any] = {
            "queries": [f"query {number}" for number in range(groups)],
            "per_group": {f"ndcg@{cutoff}": values for cutoff in (8, 16, 32)},
            "splits": {split: {"groups": 500, "positive": groups, "items": 8000} for split in ("train", "test")},
        }
        measured.append(TrialResult(seed, result))
    return Trials(measured)


def missed(found: Trials) -> list[str]:
    return [each.sentence for each in judged(found[FIRST]) if not each.held]


def test_the_papers_own_figures_have_every_shape() -> None:
    found = trials(AS_PUBLISHED)
    assert missed(found) == []
    first = judged(found[FIRST])[0].claim
    assert first.statement == "PFD pays: student of position above no-distillation"
    assert first.measured == "+7.8% [+7.8%, +7.8%]; paper: +7.8%"


def test_a_best_teacher_with_the_best_student_is_reported_as_a_missed_shape() -> None:
    (sentence,) = missed(trials({**AS_PUBLISHED, "from_add": 1.10}))
    # 1.082 over 1.10 is 1.6% less; the paper has 1.082 over 1.073
    assert sentence == (
        "The best teacher does not make the best student: student of click is clearly below student of add "
        "(-1.6% [-1.6%, -1.6%]; paper: +0.8%)."
    )


def test_several_teachers_and_pretraining_are_measured_against_the_best_of_the_others() -> None:
    sentences = missed(trials({**AS_PUBLISHED, "from_position": 1.12, "pretrained_on_add": 1.15}))
    assert (
        "Several teachers match the best single one: student of all three is clearly below student of position"
        in (sentences[0])
    )
    beaten = [sentence for sentence in sentences if sentence.startswith("Several teachers beat")]
    assert len(beaten) == 2
    assert all("clearly below pretrained on add (" in sentence for sentence in beaten)
    assert beaten[1].endswith("paper: no such row).")  # of the weighted teachers


def test_within_noise_above_does_not_hold_and_not_below_does() -> None:
    same = {**dict.fromkeys(AS_PUBLISHED, 1.0), "self_distillation": 0.999}
    verdicts = {(v.shape.model, v.shape.other): v for v in judged(trials(same, noise=0.1)[FIRST])}
    student = verdicts["from_click", BASELINE]
    assert student.gain.low < 0.0 < student.gain.high
    assert not student.held
    assert "student of click cannot be told from no-distillation" in student.sentence
    assert verdicts["self_distillation", BASELINE].held
    assert not {(v.shape.model, v.shape.other): v for v in judged(trials({**same, "self_distillation": 0.8})[FIRST])}[
        "self_distillation", BASELINE
    ].held


# --- report


def test_the_share_of_the_distance_to_the_oracle_is_as_computed_by_hand() -> None:
    # baseline 0.4, oracle 0.48, student 0.4448: 0.0448 of 0.08
    compared = trials(AS_PUBLISHED)[FIRST]
    assert share_of_distance(compared, "student") == pytest.approx(0.56)
    assert share_of_distance(compared, BASELINE) == 0.0


def test_shared_texts_are_a_share_of_the_distinct_texts() -> None:
    queries = (["sofa", "sofa", "lamp"], ["sofa", "rug", "desk"])
    results: list[dict[str, Any]] = [{"queries": of, "per_group": {FIRST: {"m": [0.5] * 3}}} for of in queries]
    found = Trials([TrialResult(seed, result) for seed, result in enumerate(results, start=1)])
    assert shared_texts(found) == 0.25  # sofa, of sofa, lamp, rug and desk


def test_the_report_has_every_row_beside_the_papers_and_says_that_it_is_simulated(settings: ShopSettings) -> None:
    found = trials(AS_PUBLISHED)
    page = "\n".join(EXPERIMENT.report(settings, found, quick=False).body)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:2] == "| "]
    multiple = next(row for row in rows if row[0] == "student of all three")
    assert multiple == ["student of all three", *["1.112 [1.112, 1.112]"] * 3, "56%", "1.112", "1.085", "1.077"]
    teacher = next(row for row in rows if row[0] == "teacher add*")
    assert teacher[4:] == ["-", "2.292", "2.053", "1.972"]
    assert ["student of add", "1.073", "1.073"] in rows  # seed by seed
    assert "Every shape of the paper's table came out." in page
    assert "no-distillation 0.400 [0.400, 0.400]" in page
    assert "**All behaviour is simulated**" in page
    assert "says nothing of the methods" not in page
    assert "says nothing of the methods" in describe_shops(settings, found, quick=True)[-1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_quick_run_simulates_logs_trains_and_writes_the_report(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "experiments",
        "shop_methods",
        "--config",
        "experiments/configs/shop_methods.yaml",
    ]
    command += ["--out", str(tmp_path), "--quick", "--processes", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "shop_methods.md").read_text()
    assert "A quick run on small logs" in page
    results = json.loads((tmp_path / "results.json").read_text())
    assert [trial["seed"] for trial in results["trials"]] == [1, 2]
    assert results["trials"][0]["queries"] != results["trials"][1]["queries"]  # two shops
    for trial in results["trials"]:
        assert set(trial["per_group"][FIRST]) == set(ROWS)
        oracle, random = (np.mean(trial["per_group"][FIRST][name]) for name in ("oracle", "random_order"))
        assert oracle > random
    assert (tmp_path / "shop_methods.png").read_bytes().startswith(b"\x89PNG")
