"""Training speed of the demo's student: pairs/s through the input pipeline, against the bare training step.

Needs the output of `make demo`. The peer runs the same step on batches in memory, so the ratio is the share of the
bare speed that remains after reading, bucketing and batching.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from statistics import median

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks.figures import emit
from features.errors import exit_code_of
from trainer.config import load_config
from trainer.data.batches import training_batches, with_label
from trainer.losses.distillation import Objective
from trainer.losses.ranking import LOSSES
from trainer.pipeline.inputs import DataPaths
from trainer.pipeline.run import Run
from trainer.training.fit_ranker import Training

_GROUPS = 4000  # training groups read
_WARM_UP_STEPS, _STEPS, _RUNS = 10, 30, 5


def bench_training(config_path: str, data: DataPaths, workdir: str) -> None:
    """Emits `training_pairs_per_second`, the median of runs that alternate with the peer's."""
    config = load_config(config_path)
    run = Run(config, data, workdir)
    groups = with_label(run.train.groups.take(_GROUPS), config.spec.label.name).cache()
    objective = Objective(LOSSES[config.training.loss])
    training = Training(run.new_ranker(training=config.training), config.training, objective, run.strategy)
    batches = iter(training_batches(groups, config.training.batch_groups, config.seed))
    in_memory = [next(batches) for _ in range(8)]
    step = tf.function(lambda batch: run.strategy.run(training.train_step, args=(batch,)), reduce_retracing=True)
    _pairs_per_second(step, batches, _WARM_UP_STEPS)
    ours, bare = [], []
    for _ in range(_RUNS):
        ours.append(_pairs_per_second(step, batches, _STEPS))
        bare.append(_pairs_per_second(step, cycle(in_memory), _STEPS))
    emit("training_pairs_per_second", median(ours), "pairs/s", peer=median(bare))


def _pairs_per_second(step: Callable[..., tuple[tf.Tensor, tf.Tensor]], batches: Iterator[object], steps: int) -> float:
    started, pairs = time.perf_counter(), 0
    for _ in range(steps):
        _, counted = step(next(batches))
        pairs += int(counted)
    return pairs / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example, after `make demo`: python -m benchmarks.training",
    )
    parser.parse_args()
    data = DataPaths("build/demo/dataset", "build/demo/vocabulary")
    bench_training("configs/product_search.yaml", data, "build/demo/run")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
