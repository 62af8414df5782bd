"""The whole run: what it leaves, what it skips, what it does again, and that a killed one leaves no half stage."""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from features.errors import InputError
from tests.published import version_of
from tests.trainer.conftest import Fitted
from tests.trainer.shop import NUMBERS, SPLITS, data_of, write_shop, write_task
from trainer.config import load_config
from trainer.data.batches import with_label
from trainer.evaluation.metrics import expected_random_ndcg
from trainer.evaluation.summary import gain_line, table_lines
from trainer.pipeline.evaluate import load_metrics
from trainer.pipeline.fit import fit, train_and_evaluate
from trainer.pipeline.report import bar_chart, write_report
from trainer.pipeline.run import Run
from trainer.pipeline.students import student_directory
from trainer.pipeline.teachers import cached_logits, load_teacher
from trainer.storage.stages import stage_folder
from trainer.training.fit_ranker import score

ROOT = Path(__file__).parents[3]
QUICK: dict[str, Any] = {
    "student": {"layers": 0, "hidden": [8]},
    "training": {"batch_groups": 8, "steps": 4, "evaluate_every": 2, "warmup_steps": 0},
    "teachers": [{"name": "click", "sees": ["click"]}],
    "recipes": [{"name": "no_distillation"}, {"name": "student", "teachers": ["click"]}],
    "evaluation": {"bootstrap_samples": 100},
}


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """The folder of a tiny shop without text."""
    root = tmp_path / "numbers"
    write_shop(root, NUMBERS)
    return root


def quick_fit(numbers: Path, workdir: Path, **sections: Any) -> str:
    """Fits the shop without text with small models into `workdir`; returns what was printed."""
    task = write_task(numbers, NUMBERS, **{**QUICK, **sections})
    with contextlib.redirect_stdout(io.StringIO()) as output:
        fit(load_config(str(task)), data_of(numbers, NUMBERS), str(workdir))
    return output.getvalue()


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def up_to_date(output: str, workdir: Path) -> set[str]:
    lines = [line.split("up to date: ")[1] for line in output.splitlines() if "up to date: " in line]
    return {line.removeprefix(f"{workdir}/") for line in lines}


# ---- what a run leaves ----


def test_metrics_json_holds_what_fit_returned_and_the_summary_prints(fitted: Fitted) -> None:
    assert json.loads((fitted.workdir / "metrics.json").read_text()) == fitted.metrics
    assert load_metrics(str(fitted.workdir)) == fitted.metrics
    lines = fitted.output.splitlines()
    assert lines[-1] == gain_line(fitted.metrics)
    assert "\n".join(table_lines(fitted.metrics)) in fitted.output
    for name in ("random order", "BM25", "teacher: click", "no_distillation", "student", "oracle (true relevance)"):
        assert any(line.startswith(f"| {name} ") for line in lines), name


def test_the_last_line_says_the_gain_its_interval_and_over_what(fitted: Fitted) -> None:
    gain = fitted.metrics["models"]["student"]["ndcg@8"]["gain"]
    assert gain_line(fitted.metrics) == (
        f"student gain: {gain['value']:+.1%} purchase NDCG@8 [{gain['low']:+.1%}, {gain['high']:+.1%}] "
        "over no-distillation"
    )


def test_every_figure_is_inside_its_interval_and_the_oracle_is_perfect(fitted: Fitted) -> None:
    for name, model in fitted.metrics["models"].items():
        for cutoff in fitted.metrics["cutoffs"]:
            figure = model[f"ndcg@{cutoff}"]
            assert -1e-9 <= figure["low"] <= figure["value"] + 1e-9, name
            assert figure["value"] - 1e-9 <= figure["high"] <= 1.0 + 1e-9, name
    # who fits was clicked and bought, and relevance says so
    assert fitted.metrics["models"]["oracle"]["ndcg@8"]["value"] == pytest.approx(1.0)


def test_groups_without_a_purchase_are_reported_three_ways(fitted: Fitted) -> None:
    positive, groups = fitted.metrics["positive_test_groups"], fitted.metrics["test_groups"]
    assert 0 < positive < groups == SPLITS["test"]
    for model in fitted.metrics["models"].values():
        mean = model["ndcg@8"]["value"]
        assert model["unlabelled_groups_as_0"] == pytest.approx(mean * positive / groups)
        assert model["unlabelled_groups_as_1"] == pytest.approx((mean * positive + groups - positive) / groups)


def test_tensorboard_finds_every_models_learning_curves(fitted: Fitted) -> None:
    for name in ("teachers/position", "teachers/click", "students/no_distillation", "students/student"):
        (log,) = (fitted.workdir / "tensorboard" / name).glob("events*")
        events = [tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(log))]
        steps = {
            event.step for event in events if event.summary.value and event.summary.value[0].tag == "loss/training"
        }
        assert steps == {10, 20}, name


def test_each_groups_ndcg_is_kept_for_later_comparisons(fitted: Fitted) -> None:
    kept = np.load(fitted.workdir / "metrics_per_group.npz", allow_pickle=False)
    run = Run(fitted.config, fitted.data, str(fitted.workdir))
    test = score(run.new_ranker(seed=1), with_label(run.test.groups, "purchase"))
    random = expected_random_ndcg(test.labels, test.mask, 8)
    np.testing.assert_allclose(kept["ndcg@8/random_order"], random[~np.isnan(random)], atol=1e-6)
    for name, model in fitted.metrics["models"].items():
        values = kept[f"ndcg@8/{name}"]
        assert len(values) == fitted.metrics["positive_test_groups"]
        assert values.mean() == pytest.approx(model["ndcg@8"]["value"], abs=1e-6)


def test_the_report_is_one_file_that_shows_the_table_and_the_curves(fitted: Fitted) -> None:
    page = (fitted.workdir / "report.html").read_text()
    assert gain_line(fitted.metrics) in page
    assert page.count("data:image/png;base64,") == 2
    assert "teacher: click" in page
    assert 'src="http' not in page


def test_the_report_escapes_hostile_text(fitted: Fitted, tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\"'"
    for name in ("teachers", "students"):
        (tmp_path / name).symlink_to(fitted.workdir / name)
    run = Run(fitted.config, fitted.data, str(tmp_path))
    run.config = dataclasses.replace(fitted.config, name=hostile, resolved={**fitted.config.resolved, "name": hostile})
    write_report(run, {**fitted.metrics, "task": hostile})
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3  # title, heading, task file


def test_the_chart_bears_a_figure_that_rounding_puts_outside_its_interval(fitted: Fitted) -> None:
    metrics = json.loads(json.dumps(fitted.metrics))
    metrics["models"]["oracle"]["ndcg@8"] = {"value": 1.0, "low": 1.0000000000000002, "high": 0.9999999999999998}
    bar_chart(metrics).savefig(io.BytesIO(), format="png")


# ---- teachers ----


@pytest.mark.parametrize("name", ["position", "click"])
def test_a_teachers_scores_are_cached_for_every_training_group_in_order(fitted: Fitted, name: str) -> None:
    run = Run(fitted.config, fitted.data, str(fitted.workdir))
    teacher = load_teacher(run, fitted.config.teachers[name])
    expected = score(teacher, with_label(run.train.groups, "purchase"))
    cached = list(cached_logits([f"{fitted.workdir}/teacher_scores/{name}"]).as_numpy_iterator())
    assert len(cached) == SPLITS["train"]  # groups without a purchase too
    for logits, scores, mask in zip(cached, expected.scores, expected.mask, strict=True):
        assert logits.shape == (mask.sum(), 1)
        np.testing.assert_allclose(logits[:, 0], scores[mask], atol=1e-5)


def test_several_teachers_scores_stand_side_by_side(fitted: Fitted) -> None:
    folders = [f"{fitted.workdir}/teacher_scores/{name}" for name in ("position", "click")]
    singles = [list(cached_logits([folder]).as_numpy_iterator()) for folder in folders]
    for both, first, second in zip(cached_logits(folders).as_numpy_iterator(), *singles, strict=True):
        np.testing.assert_array_equal(both, np.concatenate([first, second], axis=1))


def test_a_saved_student_has_no_variable_for_what_it_may_not_see(fitted: Fitted) -> None:
    run = Run(fitted.config, fitted.data, str(fitted.workdir))
    folder = student_directory(run, fitted.config.recipes["student"])
    stored = " ".join(name for name, _ in tf.train.list_variables(f"{stage_folder(folder)}/weights"))
    assert "click" not in stored
    assert "position/" not in stored


# ---- what a second run does ----


def test_finished_stages_are_skipped_and_what_changed_runs_again(numbers: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    models = {"teachers/click", "students/no_distillation", "students/student"}
    first = quick_fit(numbers, workdir)
    assert up_to_date(first, workdir) == set()
    before = contents(workdir)
    assert not [name for name in before if ".partial" in name]

    assert up_to_date(quick_fit(numbers, workdir), workdir) == {*models, "metrics.json", "export/1"}
    assert contents(workdir) == before

    other = [{"name": "no_distillation"}, {"name": "student", "teachers": ["click"], "alpha": 0.25}]
    redone = up_to_date(quick_fit(numbers, workdir, recipes=other), workdir)
    assert redone == models - {"students/student"}
    after = contents(workdir)
    changed = {name for name in before if after.get(name) != before[name]}
    assert {name.split("/")[0] for name in changed} <= {
        "students",
        "tensorboard",
        "config.yaml",
        "metrics.json",
        "metrics_per_group.npz",
        "report.html",
    }
    assert not [name for name in changed if "no_distillation" in name]
    assert any(name.startswith("export/2/") for name in after)


@pytest.mark.slow
def test_a_changed_teacher_runs_again_with_its_students(numbers: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    quick_fit(numbers, workdir)
    teachers = [{"name": "click", "sees": ["click", "position"]}]
    assert up_to_date(quick_fit(numbers, workdir, teachers=teachers), workdir) == {"students/no_distillation"}


@pytest.mark.slow
def test_a_run_is_decided_by_its_seed(numbers: Path, tmp_path: Path) -> None:
    plain = {"recipes": [{"name": "student"}], "teachers": [], "evaluation": {"baseline": "student"}}
    scores = []
    for folder, seed in (("a", 3), ("b", 3), ("c", 4)):
        quick_fit(numbers, tmp_path / folder, seed=seed, **plain)
        scores.append(np.load(tmp_path / folder / "metrics_per_group.npz")["ndcg@8/student"].tolist())
    assert scores[0] == scores[1] != scores[2]


TAUGHT: dict[str, Any] = {  # dropout, a loss that draws, and a seed that is not the teacher's
    "recipes": [{"name": "student", "teachers": ["click"], "teacher_loss": "gumbel_approx_ndcg", "seed": 1}],
    "evaluation": {"baseline": "student", "bootstrap_samples": 100},
    "export": {"recipe": "student"},
}


def weights(workdir: Path) -> dict[str, Any]:
    path = f"{version_of(Path(workdir) / 'students' / 'student')}/weights"
    return {name: tf.train.load_variable(path, name) for name, _ in tf.train.list_variables(path)}


def test_a_seed_decides_a_run_whatever_an_earlier_one_has_left(
    numbers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run a makes everything; b finds a's teacher and its scores; c finds the teacher alone."""
    config = load_config(str(write_task(numbers, NUMBERS, **{**QUICK, **TAUGHT})))
    first, scored = tmp_path / "a", "scored 96 training groups"
    expected = train_and_evaluate(Run(config, data_of(numbers, NUMBERS), str(first)))
    assert scored in capsys.readouterr().out
    for name, left in (("b", ("teachers", "teacher_scores")), ("c", ("teachers",))):
        for folder in left:
            shutil.copytree(first / folder, tmp_path / name / folder)
        found = train_and_evaluate(Run(config, data_of(numbers, NUMBERS), str(tmp_path / name)))
        printed = capsys.readouterr().out
        assert up_to_date(printed, tmp_path / name) == {"teachers/click"}
        assert (scored in printed) == ("teacher_scores" not in left)
        assert found["models"] == expected["models"]
        again = weights(tmp_path / name)
        assert again.keys() == weights(first).keys()
        for variable, values in weights(first).items():
            np.testing.assert_array_equal(again[variable], values, err_msg=variable)


def test_cached_scores_of_fewer_groups_than_the_dataset_are_refused(numbers: Path, tmp_path: Path) -> None:
    quick_fit(numbers, tmp_path / "run")
    path = version_of(tmp_path / "run" / "teacher_scores" / "click") / "train.tfrecord.gz"
    records = list(tf.data.TFRecordDataset(str(path), "GZIP").as_numpy_iterator())
    items = sum(len(record) // 4 for record in records)
    shutil.rmtree(tmp_path / "run" / "students" / "student")
    for kept in (records[:-2], [*records[:-1], records[-1][:-4]]):
        with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
            for record in kept:
                writer.write(record)
        left = sum(len(record) // 4 for record in kept)
        expected = (
            f"holds scores of {len(kept)} groups with {left} items, expected 96 with {items}, as the training split"
        )
        with pytest.raises(
            InputError, match=f"{expected}.* has: remove .*/teacher_scores/click, and fit scores them again"
        ):
            quick_fit(numbers, tmp_path / "run")
        assert not (tmp_path / "run" / "students" / "student").exists()


@pytest.mark.slow
def test_a_killed_run_leaves_no_half_stage_and_the_next_one_completes(numbers: Path, tmp_path: Path) -> None:
    task = write_task(
        numbers,
        NUMBERS,
        **{
            **QUICK,
            "evaluation": {"baseline": "student", "bootstrap_samples": 100},
            "recipes": [{"name": "student", "teachers": ["click"]}],
        },
    )
    data = ["--dataset", str(numbers / "dataset"), "--relevance", str(numbers / "relevance.tsv")]
    command = [sys.executable, "-m", "trainer", "fit", "--config", str(task), *data, "--workdir", str(tmp_path / "run")]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        student, deadline = tmp_path / "run" / "students" / "student", time.monotonic() + 120
        while not list(student.glob("run-*/run.json")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert [path.name[:4] for path in student.iterdir()] == ["run-"]
    assert not (tmp_path / "run" / "export").exists()
    assert (tmp_path / "run" / "teachers" / "click" / "manifest.json").exists()

    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert up_to_date(done.stdout, tmp_path / "run") == {"teachers/click"}
    assert done.stderr == ""
    left = [str(path) for path in (tmp_path / "run").rglob("*")]
    assert not [name for name in left if ".partial" in name or name.endswith("/run.json")]
    assert len(list(student.iterdir())) == 2  # the manifest and the run that it names
    assert (tmp_path / "run" / "export" / "1" / "saved_model.pb").exists()
