"""LETOR experiments: which trials a data set gives, and what is left out."""

from pathlib import Path

import pytest
import yaml

from experiments.letor.sets import Fold, LetorSet, LetorSettings, describe_setup, group_by_set, letor_trials
from experiments.letor.simulated import DOCUMENTS, FEATURES, QUERIES, write_simulated_set
from features.errors import InputError

ROOT = Path(__file__).parents[3]
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
    set_settings = settings(write_files(tmp_path), small=letor_set(folds=2, seeds=3))
    cells = letor_trials(set_settings, tmp_path, False, {"letor": {"tau": 1.5}}, {"tau": 1.5})
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
    set_settings = settings(write_files(tmp_path), there=letor_set(), lacking=lacking)
    cells = letor_trials(set_settings, tmp_path, False, {})
    assert {cell["set"] for cell in cells} == {"there"}
    assert "Not at hand where this was made: lacking." in " ".join(describe_setup(set_settings, {"there": None}, False))


def test_without_a_whole_set_the_error_names_the_sets_and_the_quick_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no data set of small is whole: put one there, or see .* --quick"):
        letor_trials(settings(tmp_path, small=letor_set()), tmp_path, False, {})


def test_a_quick_run_takes_a_simulated_set_and_few_steps(tmp_path: Path) -> None:
    cells = letor_trials(settings(tmp_path, small=letor_set(folds=5, seeds=20)), tmp_path, True, {})
    assert [(c["set"], c["seed"]) for c in cells] == [("simulated", 1), ("simulated", 2)]
    assert all(c["task"]["training"]["steps"] == 2 for c in cells)


def test_the_simulated_set_is_deterministic_and_in_the_letor_format(tmp_path: Path) -> None:
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
def test_every_settings_file_is_readable_and_names_task_files_that_exist(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    tasks = [data_set["task"] for data_set in content.get("sets", {}).values() if "task" in data_set]
    assert all((ROOT / task).exists() for task in tasks)


def test_results_are_grouped_by_set() -> None:
    cells = [{"set": name, "seed": seed} for name in ("a", "b") for seed in (1, 2)]
    result = {"queries": ["q"], "per_group": {"ndcg@8": {"plain": [0.5]}}}
    assert {name: [t.seed for t in trials.trials] for name, trials in group_by_set(cells, [result] * 4).items()} == {
        "a": [1, 2],
        "b": [1, 2],
    }
