"""A trial: Beam jobs make a dataset from one draw; every recipe of its task is trained and evaluated on it.

Trials run the same commands as users: the Beam jobs, then the steps of `python -m trainer fit`. A stopped trial resumes
after the last finished dataset or model.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from experiments.runner.cells import Cell
from features.errors import InputError
from features.task import Task
from trainer.evaluation.metrics import Floats

if TYPE_CHECKING:
    from trainer.pipeline.run import Run

TRIAL_FORMAT = "1"  # raised when the format or meaning of a trial's result changes
WORKDIR_PLACEHOLDER = "{trial}"  # in a trial's task, jobs and data: stands for the trial's directory
DIGITS = 4  # stored of a group's metric


def trial(task: Task, jobs: Sequence[Sequence[str]], data: Mapping[str, str], **labels: str | int | float) -> Cell:
    """A cell for `run_trial`.

    task: a complete task. jobs: modules with arguments, run first; `--config` is added to each.
    data: the jobs' outputs, by the fields of `trainer.pipeline.inputs.DataPaths`.
    labels: identify the cell, such as data set, fold and seed.
    """
    plain = json.loads(json.dumps(task, default=str))  # YAML dates become text again
    return {**labels, "task": plain, "jobs": [list(job) for job in jobs], "data": dict(data)}


def run_trial(cell: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The work of experiments that train. directory: outputs of an earlier run of the same cell are reused.

    Returns splits: name -> groups, positive ones, items, means of features that are single numbers; queries: [groups],
    of the positive test groups; per_group: metric -> model -> [groups]; histories: model -> its learning curves;
    seconds of this run. Errors: InputError.
    """
    started, folder = time.monotonic(), str(directory.resolve())
    directory.mkdir(parents=True, exist_ok=True)
    task = Path(folder, "task.yaml")
    task.write_text(yaml.safe_dump(cell["task"], sort_keys=False).replace(WORKDIR_PLACEHOLDER, folder))
    for job in cell["jobs"]:
        _run([part.replace(WORKDIR_PLACEHOLDER, folder) for part in job], task)
    result = _trained(task, f"{folder}/run", cell)
    return {**result, "seconds": round(time.monotonic() - started, 1)}


def _run(job: list[str], task: Path) -> None:
    command = [sys.executable, "-m", *job, "--config", str(task)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    print(done.stdout, done.stderr, flush=True)
    if done.returncode:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise InputError(f"{job[0]}: {last.removeprefix('error: ')}")


def _trained(task: Path, workdir: str, cell: Cell) -> dict[str, Any]:
    # imported here: TensorFlow takes seconds to import, and reports do not need it
    import tensorflow as tf

    from trainer.config import load_config
    from trainer.pipeline.fit import train_and_evaluate
    from trainer.pipeline.inputs import DataPaths
    from trainer.pipeline.query_groups import positive_test_groups
    from trainer.pipeline.run import Run

    config = load_config(str(task))
    # for an MLP, graph rewriting takes longer than it saves
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": config.student.layers == 0})
    paths = {name: path.replace(WORKDIR_PLACEHOLDER, str(task.parent)) for name, path in cell["data"].items()}
    run = Run(config, DataPaths(**paths), workdir)
    train_and_evaluate(run)
    per_group = _metrics_of_run(workdir)
    for metric, models in _added_metrics(run, cell).items():
        rounded = {model: np.round(values, DIGITS).tolist() for model, values in models.items()}
        per_group[metric] = per_group.get(metric, {}) | rounded
    return {
        "splits": _split_sizes(run),
        "queries": positive_test_groups(run).queries,
        "per_group": per_group,
        "histories": _histories(run),
    }


def _metrics_of_run(workdir: str) -> dict[str, dict[str, list[float]]]:
    """What the run's evaluation stored: metric -> model -> [groups]."""
    from trainer.pipeline.evaluate import PER_GROUP

    per_group: dict[str, dict[str, list[float]]] = {}
    with np.load(f"{workdir}/{PER_GROUP}", allow_pickle=False) as flat:
        for key in flat.files:
            metric, _, model = key.partition("/")
            per_group.setdefault(metric, {})[model] = np.round(flat[key].astype(np.float64), DIGITS).tolist()
    return per_group


def _added_metrics(run: "Run", cell: Cell) -> dict[str, dict[str, Floats]]:
    """What a cell asks for beside the run's evaluation: metric -> model -> [groups].

    Of a cell: `lambdamart`, the parameters of `ndcg_of_lambdamart`; `agreement`, the arguments of `agreement_with`.
    """
    added: dict[str, dict[str, Floats]] = {}
    if "lambdamart" in cell:
        from experiments.runner.lambdamart import ndcg_of_lambdamart

        added |= {m: {"lambdamart": ndcg} for m, ndcg in ndcg_of_lambdamart(run, cell["lambdamart"]).items()}
    if "agreement" in cell:
        from experiments.runner.agreement import agreement_with

        added |= agreement_with(run, **cell["agreement"])
    return added


def _split_sizes(run: "Run") -> dict[str, Any]:
    return {
        name: {
            "groups": split.groups,
            "positive": split.groups_with_label,
            "items": split.items,
            "means": {f: s.mean for f, s in split.features.items() if isinstance(s.mean, float)},
        }
        for name, split in run.inputs.dataset.splits.items()
    }


def _histories(run: "Run") -> dict[str, Any]:
    """Learning curves by model, but of students that average others."""
    from trainer.pipeline.run import load_history
    from trainer.pipeline.students import student_directory
    from trainer.pipeline.teachers import teacher_directory

    trained = {f"teacher_{name}": teacher_directory(run, teacher) for name, teacher in run.config.teachers.items()}
    trained |= {name: student_directory(run, r) for name, r in run.config.recipes.items() if not r.averages}
    return {name: load_history(directory).to_json() for name, directory in trained.items()}
