"""What a person sees while a model trains: a line a validation, rewritten in place on a terminal, and TensorBoard."""

import sys
import time

import tensorflow as tf

from trainer.training import History

SECONDS_BETWEEN_LINES = 10.0  # where output is a file


class Progress:
    """Called at each validation; the last line of a model stays.

    name: of the model. steps: its budget. directory: of its TensorBoard logs; former ones there go.
    """

    def __init__(self, name: str, steps: int, directory: str) -> None:
        self.name, self.steps = name, steps
        self._printed = 0.0
        if tf.io.gfile.exists(directory):
            tf.io.gfile.rmtree(directory)
        self._curves = tf.summary.create_file_writer(directory)

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
        elif time.monotonic() - self._printed > SECONDS_BETWEEN_LINES:
            self._printed = time.monotonic()
            print(line, flush=True)

    def done(self, history: History) -> None:
        """The line that stays: which step was kept."""
        self._curves.close()
        index = history.steps.index(history.best_step)
        start = "\r\033[K" if sys.stdout.isatty() else ""
        print(
            f"{start}  {self.name}: kept step {history.best_step:,} of {history.steps[-1]:,}, "
            f"validation NDCG@8 {history.validation_ndcg[index]:.4f}, {history.seconds:.0f} s",
            flush=True,
        )
