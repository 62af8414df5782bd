"""Progress of training: a line for each validation, rewritten in place on a terminal, and TensorBoard logs."""

import json
import sys
import time
from typing import Any

import tensorflow as tf

from trainer.storage.stages import read_file, write_file
from trainer.training.fit_ranker import History

_SECONDS_BETWEEN_LINES = 10.0  # when stdout is not a terminal
CURVES = "curves.json"  # lists the TensorBoard logs that this program wrote


class Progress:
    """Callback for each validation; `done` prints the final line.

    name: the model. steps: its budget. directory: its TensorBoard logs; those of earlier training are deleted.
    """

    def __init__(self, name: str, steps: int, directory: str) -> None:
        self.name, self.steps = name, steps
        self._printed = 0.0
        self._curves = new_curves(directory)

    def __call__(self, history: History) -> None:
        step, best = history.steps[-1], max(history.validation_ndcg)
        speed = history.pairs / max(history.seconds, 1e-9)
        with self._curves.as_default(step):
            tf.summary.scalar("loss/training", history.training_loss[-1])
            tf.summary.scalar("loss/teacher term", history.teacher_term[-1])
            tf.summary.scalar("loss/validation", history.validation_loss[-1])
            tf.summary.scalar("validation NDCG@8", history.validation_ndcg[-1])
            tf.summary.scalar("pairs per second", speed)
        line = (
            f"  {self.name}: step {step:,}/{self.steps:,}  loss {history.training_loss[-1]:.4f}  "
            f"validation NDCG@8 {history.validation_ndcg[-1]:.4f} (best {best:.4f})  {speed:,.0f} pairs/s"
        )
        if sys.stdout.isatty():
            print(f"\r\033[K{line}", end="", flush=True)
        elif time.monotonic() - self._printed > _SECONDS_BETWEEN_LINES:
            self._printed = time.monotonic()
            print(line, flush=True)

    def done(self, history: History) -> None:
        """Prints the final line: the step that was kept."""
        self._curves.close()
        index = history.steps.index(history.best_step)
        start = "\r\033[K" if sys.stdout.isatty() else ""
        print(
            f"{start}  {self.name}: kept step {history.best_step:,} of {history.steps[-1]:,}, "
            f"validation NDCG@8 {history.validation_ndcg[index]:.4f}, {history.seconds:.0f} s",
            flush=True,
        )


def new_curves(directory: str) -> Any:
    """A writer of TensorBoard logs. Deletes the earlier logs that CURVES lists, and lists its own there."""
    former = tf.io.gfile.listdir(directory) if tf.io.gfile.exists(directory) else []
    listed = set(json.loads(read_file(f"{directory}/{CURVES}", "remove it"))) if CURVES in former else set()
    writer = tf.summary.create_file_writer(directory)
    writer.flush()
    own = [name for name in tf.io.gfile.listdir(directory) if name not in former]
    write_file(f"{directory}/{CURVES}", json.dumps([*own, *sorted(listed)]).encode())
    for name in listed.intersection(former):
        tf.io.gfile.remove(f"{directory}/{name}")
    return writer
