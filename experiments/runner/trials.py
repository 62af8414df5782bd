"""A trial: a dataset that the Beam jobs make from one draw, and every recipe of its task trained and measured on it.

Trials run what users run: the jobs as the commands of docs/, then the steps of `python -m trainer fit`. So one that
was stopped goes on after the last dataset or model that was done.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from experiments.cells import Cell
from features.errors import InputError
from features.task import Task

VERSION = "1"  # raised when a trial's result has another form or meaning
PLACE = "{trial}"  # in a trial's task and jobs: the directory that is its own until it is done
DIGITS = 4  # of a group's NDCG


def trial(task: Task, jobs: Sequence[Sequence[str]], **told: str | int | float) -> Cell:
    """A cell for `run_trial`.

    task: a whole task. jobs: modules with their arguments, to be run before; `--config` is added to each.
    told: what tells the cell from others, such as data set, fold and seed.
    """
    plain = json.loads(json.dumps(task, default=str))  # YAML's dates too: the text that they were
    return {**told, "task": plain, "jobs": [list(job) for job in jobs]}


def run_trial(cell: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The work of experiments that train. directory: what an earlier run of this very cell has made is not made again.

    Returns splits: name -> groups, positive ones, items, means of features that are single numbers; queries: [groups],
    of the positive test groups; per_group: metric -> model -> [groups]; histories: model -> its learning curves;
    seconds, of this run. Errors: InputError.
    """
    started, folder = time.monotonic(), str(directory.resolve())
    directory.mkdir(parents=True, exist_ok=True)
    task = directory / "task.yaml"
    task.write_text(yaml.safe_dump(cell["task"], sort_keys=False).replace(PLACE, folder))
    for job in cell["jobs"]:
        _run([part.replace(PLACE, folder) for part in job], task)
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
    # here, for TensorFlow takes seconds to import, and who only draws the tables does without
    import tensorflow as tf

    from trainer.config import load_config
    from trainer.evaluate import PER_GROUP, read_test_groups
    from trainer.fit import train_and_evaluate
    from trainer.run import Run, load_history
    from trainer.students import student_directory
    from trainer.teachers import directory_of

    config = load_config(str(task))
    # rewriting an MLP's graphs takes longer than it saves them in all their steps
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": config.student.layers == 0})
    run = Run(config, workdir)
    train_and_evaluate(run)
    with np.load(f"{workdir}/{PER_GROUP}", allow_pickle=False) as flat:
        per_group: dict[str, dict[str, list[float]]] = {}
        for key in flat.files:
            metric, _, model = key.partition("/")
            per_group.setdefault(metric, {})[model] = np.round(flat[key].astype(np.float64), DIGITS).tolist()
    trained = {f"teacher_{name}": directory_of(run, teacher) for name, teacher in config.teachers.items()}
    trained |= {name: student_directory(run, r) for name, r in config.recipes.items() if not r.averages}
    if "lambdamart" in cell:
        from experiments.lambdamart import ndcg_of_lambdamart

        for metric, values in ndcg_of_lambdamart(run, cell["lambdamart"]).items():
            per_group[metric]["lambdamart"] = np.round(values, DIGITS).tolist()
    if "agreement" in cell:
        from experiments.agreement import agreement_with

        for metric, models in agreement_with(run, **cell["agreement"]).items():
            per_group[metric] = {model: np.round(values, DIGITS).tolist() for model, values in models.items()}
    splits = {
        name: {
            "groups": split.groups,
            "positive": split.groups_with_label,
            "items": split.items,
            "means": {f: s.mean for f, s in split.features.items() if isinstance(s.mean, float)},
        }
        for name, split in run.inputs.dataset.splits.items()
    }
    return {
        "splits": splits,
        "queries": read_test_groups(run).queries,
        "per_group": per_group,
        "histories": {name: load_history(directory).to_json() for name, directory in trained.items()},
    }
