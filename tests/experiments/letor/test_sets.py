"""LETOR experiments: which trials a data set gives, what is left out, and the methods' table and claims."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.cells import load_settings
from experiments.comparison import Measured, Trials
from experiments.letor import Fold, LetorSet, LetorSettings, by_set, how_it_was_made, letor_trials
from experiments.letor_methods import METHODS, PAPER, PAPER_SETS, Settings, change, claims, report
from experiments.simulated_letor import DOCUMENTS, FEATURES, QUERIES, write_simulated_set
from features.errors import InputError
from trainer.config import load_config

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "experiments" / "configs"
FOLD = Fold(train=("a.txt",), valid=("b.txt",), test=("c.txt",))


def settings(data: Path, **sets: LetorSet) -> LetorSettings:
    return LetorSettings(data=str(data), sets=sets, quick={"training": {"steps": 2}})


def letor_set(folds: int = 1, seeds: int = 1) -> LetorSet:
    return LetorSet(task=str(CONFIGS / "mq2008.yaml"), folds=(FOLD,) * folds, seeds=seeds)


def write_files(folder: Path) -> Path:
    for name in ("a.txt", "b.txt", "c.txt"):
        (folder / name).write_text("")
    return folder


def test_a_set_gives_a_trial_for_each_fold_and_seed_with_the_experiments_change(tmp_path: Path) -> None:
    told = settings(write_files(tmp_path), small=letor_set(folds=2, seeds=3))
    cells = letor_trials(told, tmp_path, False, {"letor": {"tau": 1.5}}, {"tau": 1.5})
    assert [(c["set"], c["fold"], c["seed"], c["tau"]) for c in cells] == [
        ("small", fold, seed, 1.5) for fold in (1, 2) for seed in (1, 2, 3)
    ]
    assert all(cell["task"]["seed"] == cell["seed"] for cell in cells)
    expected = {"min_documents": 5, "labels": "gumbel", "temperature": 4.0, "tau": 1.5}
    assert all(cell["task"]["letor"] == expected for cell in cells)
    (job,) = cells[0]["jobs"]
    assert job[:2] == ["beam_jobs.letor_to_elwc", "--train"]
    assert str(tmp_path / "a.txt") in job


def test_a_set_whose_files_are_missing_is_left_out_and_named(tmp_path: Path) -> None:
    fold = FOLD.model_copy(update={"test": ("d.txt",)})
    lacking = letor_set().model_copy(update={"folds": (fold,)})
    told = settings(write_files(tmp_path), there=letor_set(), lacking=lacking)
    cells = letor_trials(told, tmp_path, False, {})
    assert {cell["set"] for cell in cells} == {"there"}
    assert "Not at hand where this was made: lacking." in " ".join(how_it_was_made(told, {"there": None}, False))


def test_no_set_at_hand_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no data set of small is whole: put one there, or see .* --quick"):
        letor_trials(settings(tmp_path, small=letor_set()), tmp_path, False, {})


def test_a_quick_run_takes_a_simulated_set_and_few_steps(tmp_path: Path) -> None:
    cells = letor_trials(settings(tmp_path, small=letor_set(folds=5, seeds=20)), tmp_path, True, {})
    assert [(c["set"], c["seed"]) for c in cells] == [("simulated", 1), ("simulated", 2)]
    assert all(c["task"]["training"]["steps"] == 2 for c in cells)


def test_the_simulated_set_is_the_same_every_time_and_reads_as_letor(tmp_path: Path) -> None:
    files = write_simulated_set(tmp_path / "a")
    again = write_simulated_set(tmp_path / "b")
    for split, queries in QUERIES.items():
        lines = Path(files[split][0]).read_text().splitlines()
        assert lines == Path(again[split][0]).read_text().splitlines()
        assert len(lines) == queries * DOCUMENTS
        assert len({line.split()[1] for line in lines}) == queries
        assert {line.split()[0] for line in lines} == {"0", "1", "2"}
        assert all(len(line.split(" #")[0].split()) == FEATURES + 2 for line in lines)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_litert_file_settings_or_task_is_readable(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    tasks = [data_set["task"] for data_set in content.get("sets", {}).values() if "task" in data_set]
    assert all((ROOT / task).exists() for task in tasks)


# ---- letor_methods ----


def test_the_methods_are_one_valid_task(tmp_path: Path) -> None:
    told = load_settings(str(CONFIGS / "letor_methods.yaml"), Settings)
    cell = letor_trials(told, tmp_path, True, change(told.losses))[0]
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(cell["task"]))
    config = load_config(str(tmp_path / "task.yaml"))
    # the self-distilled student's teacher has no row, for it is the baseline
    models = {f"{name}_{loss}" for name in (*METHODS.values(), "teacher_self") for loss in told.losses}
    assert models == {*config.recipes, *(f"teacher_{name}" for name in config.teachers)}
    assert config.teacher_training["gen_rank_net"].loss == config.recipe_training["pfd_rank_net"].loss == "rank_net"


def test_the_papers_gains_follow_from_the_papers_figures() -> None:
    # Yang et al. 2022, Table 2: PFD's gain in NDCG@8, of figures rounded to three digits
    gains = {("yahoo", "rank_bce"): 0.095, ("istella", "rank_bce"): 0.037, ("web30k", "rank_net"): 0.034}
    for (name, loss), gain in gains.items():
        rows = dict(zip(METHODS, PAPER[name, loss], strict=True))
        assert rows["PFD student"][0] / rows["No-distillation"][0] - 1 == pytest.approx(gain, abs=0.006)
    assert {name for name, _ in PAPER} == set(PAPER_SETS)


def trials_of(**ndcg: list[float]) -> Trials:
    """Two seeds of the same figures by model, of RankBCE."""
    queries = [f"q{i}" for i in range(len(ndcg["pfd"]))]
    models = {name if name in ("lambdamart", "random_order") else f"{name}_rank_bce": v for name, v in ndcg.items()}
    result: dict[str, Any] = {
        "queries": queries,
        "per_group": {f"ndcg@{cutoff}": models for cutoff in (8, 16, 32)},
        "splits": {s: {"groups": 100, "positive": 20, "items": 1500} for s in ("train", "test")},
        "histories": {name: {"steps": [20, 40], "validation_ndcg": [0.3, 0.4]} for name in models},
    }
    return Trials([Measured(seed, result) for seed in (1, 2)])


FIGURES = {
    "no_distillation": [0.4, 0.5, 0.6, 0.5] * 5,
    "self_distillation": [0.5, 0.4, 0.6, 0.5] * 5,
    "teacher_gen": [0.3] * 20,
    "gend": [0.35] * 20,
    "teacher_privileged": [0.7] * 20,
    "pfd": [0.5, 0.6, 0.65, 0.55] * 5,
    "lambdamart": [0.5] * 20,
    "random_order": [0.2] * 20,
}


def test_claims_hold_by_their_intervals() -> None:
    above, over_self, not_below = claims("small", trials_of(**FIGURES), "rank_bce")
    assert above.held
    assert above.measured.startswith("+15.0%")
    assert over_self.held
    assert not_below.held
    worse = claims("small", trials_of(**{**FIGURES, "pfd": [0.1] * 20, "self_distillation": [0.2] * 20}), "rank_bce")
    assert [claim.held for claim in worse] == [False, False, False]


def test_the_report_shows_every_method_beside_the_paper_and_what_is_not_at_hand() -> None:
    told = load_settings(str(CONFIGS / "letor_methods.yaml"), Settings)
    told = told.model_copy(update={"losses": ("rank_bce",)})
    page = "\n".join(report(told, {"mq2008": trials_of(**FIGURES)}, quick=False).body)
    assert "the behaviour is simulated" in page
    for label in (*METHODS, "LambdaMART (LightGBM)", "random order"):
        assert f"| {label} " in page, label
    assert "0.575 [" in page
    assert "(+15.0% [" in page
    assert "| mq2008          | 100 " in page
    for line in page.splitlines():
        if line.startswith("| PFD student") and "not at hand" in line:
            assert any(figure in line for figure in ("0.566", "0.417", "0.252"))


def test_results_come_back_by_set() -> None:
    cells = [{"set": name, "seed": seed} for name in ("a", "b") for seed in (1, 2)]
    result = {"queries": ["q"], "per_group": {"ndcg@8": {"plain": [0.5]}}}
    assert {name: [t.seed for t in trials.trials] for name, trials in by_set(cells, [result] * 4).items()} == {
        "a": [1, 2],
        "b": [1, 2],
    }
