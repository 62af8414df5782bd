"""Trains one ranker: training steps of equation 1, validation that selects the checkpoint, and learning curves."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from trainer.config import TrainingConfig
from trainer.data.batches import Batches, Groups, scoring_batches
from trainer.evaluation.metrics import Floats, ndcg
from trainer.losses.distillation import Objective, distillation_loss
from trainer.losses.ranking import Loss
from trainer.models.ranker import Ranker

STEPS_PER_CALL = 25  # steps in one call into the graph
VALIDATION_BATCH_GROUPS = 64  # groups whose validation loss is computed in one call


@dataclass
class History:
    """Learning curves, one entry for each validation, and the step whose weights were kept."""

    steps: list[int] = field(default_factory=list)
    training_loss: list[float] = field(default_factory=list)  # mean over items since the previous entry
    teacher_term: list[float] = field(default_factory=list)  # its part (1 - alpha) * teacher loss; 0 without teachers
    validation_loss: list[float] = field(default_factory=list)  # a mean over the items of positive groups
    validation_ndcg: list[float] = field(default_factory=list)
    best_step: int = 0
    seconds: float = 0.0
    pairs: int = 0  # real items trained on

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class GroupScores:
    """A model's logits for a split, in file order and padded to the largest group."""

    labels: Floats  # [groups, items]
    scores: Floats  # [groups, items]
    mask: NDArray[np.bool_]  # [groups, items]


def strategy_of(devices: str) -> tf.distribute.Strategy:
    """The distribution strategy; auto: MirroredStrategy for several GPUs, else one GPU, else the CPU.

    Errors: InputError when `devices` needs a GPU and there is none.
    """
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus and devices in ("gpu", "all_gpus"):
        raise InputError(
            f"training.devices is {devices!r}, expected a GPU, of which TensorFlow finds none: install "
            "tensorflow[and-cuda] and a driver, or write `devices: auto`"
        )
    if not gpus:
        return tf.distribute.get_strategy()  # TensorFlow's default, which adds no overhead to a step
    if devices == "cpu":
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    if devices == "gpu" or len(gpus) == 1:
        return tf.distribute.OneDeviceStrategy("/gpu:0")
    return tf.distribute.MirroredStrategy()


def infer_batches(model: Ranker, batches: Batches) -> Iterator[tuple[dict[str, Any], NDArray[np.float32]]]:
    """Yields each batch of groups, in order, with the model's logits [groups, items]."""
    if model.frozen is not None:
        batches = model.frozen.attached(batches)
    shapes = batches.element_spec
    # traced once with unknown sizes, not again for each new shape
    model.infer.get_concrete_function(shapes["regular"], shapes["privileged"], shapes["mask"])
    for batch in batches:
        yield batch, model.infer(batch["regular"], batch["privileged"], batch["mask"]).numpy()


def score(model: Ranker, groups: Groups) -> GroupScores:
    """Scores labelled groups, in order."""
    return score_batches(model, scoring_batches(groups))


def score_batches(model: Ranker, batches: Batches) -> GroupScores:
    """Scores batches of labelled groups, in order."""
    scored = [(b["label"].numpy(), logits, b["mask"].numpy()) for b, logits in infer_batches(model, batches)]
    widest = max(mask.shape[1] for _, _, mask in scored)
    padded = [[np.pad(part, ((0, 0), (0, widest - part.shape[1]))) for part in batch] for batch in scored]
    labels, scores, mask = (np.concatenate(parts) for parts in zip(*padded, strict=True))
    return GroupScores(labels.astype(np.float64), scores.astype(np.float64), mask)


def mean_loss(loss: Loss, scored: GroupScores) -> float:
    """The sum of a loss over groups, divided by the number of real items."""
    total = 0.0
    # a pairwise loss of all groups at once may not fit
    for start in range(0, len(scored.mask), VALIDATION_BATCH_GROUPS):
        part = slice(start, start + VALIDATION_BATCH_GROUPS)
        labels, scores = (values[part].astype(np.float32) for values in (scored.labels, scored.scores))
        total += float(tf.reduce_sum(loss(labels, scores, scored.mask[part])))
    return total / max(int(scored.mask.sum()), 1)


class Training:
    """Trains one model. `train` returns the history and leaves the best weights in the model."""

    def __init__(
        self, model: Ranker, config: TrainingConfig, objective: Objective, strategy: tf.distribute.Strategy
    ) -> None:
        self.model, self.config, self.objective, self.strategy = model, config, objective, strategy
        with strategy.scope():
            self.optimiser = _new_optimiser(model, config)
            # creates the variables before the first step, which would otherwise be traced twice
            self.optimiser.build(model.trainable_variables)

    def train(self, batches: Groups, validation: Batches, report: Callable[[History], None]) -> History:
        """batches: endless. validation: batches of labelled positive groups. report: called at each validation."""
        history, best, best_weights, started = History(), -np.inf, self.model.get_weights(), time.monotonic()
        if self.model.frozen is not None:
            batches = self.model.frozen.attached(batches).prefetch(2)
        iterator = iter(self.strategy.experimental_distribute_dataset(batches))
        several_steps = tf.function(self._several_steps, autograph=False)  # converting the model takes seconds
        step, since_best = 0, 0
        while step < self.config.steps and since_best < self.config.patience:
            terms, items = np.zeros(2), 0  # equation 1's two, summed over items
            target = min(step + self.config.evaluate_every, self.config.steps)
            while step < target:
                call_steps = min(STEPS_PER_CALL, target - step)
                summed, counted = several_steps(iterator, tf.constant(call_steps))
                terms, items, step = terms + summed.numpy(), items + int(counted), step + call_steps
            if not np.isfinite(terms.sum()):
                raise InputError(
                    f"training diverged: the loss is {terms.sum()} at step {step}, expected a finite number. "
                    "Lower learning_rate or clip_norm in the task file"
                )
            if self.config.averaging:
                # validates and keeps the running average of the weights; training continues from the last weights
                running = self.model.get_weights()
                self.optimiser.finalize_variable_values(self.model.trainable_variables)
            value = self._validate(history, validation, step, terms / max(items, 1))
            history.pairs += items
            history.seconds = time.monotonic() - started
            if value > best:
                best, since_best, best_weights, history.best_step = value, 0, self.model.get_weights(), step
            else:
                since_best += 1
            if self.config.averaging:
                self.model.set_weights(running)
            report(history)
        self.model.set_weights(best_weights)
        return history

    def _validate(self, history: History, validation: Batches, step: int, terms: Floats) -> float:
        scored = score_batches(self.model, validation)
        history.steps.append(step)
        history.training_loss.append(float(terms.sum()))
        history.teacher_term.append(float(terms[1]))
        history.validation_loss.append(mean_loss(self.objective.data_loss, scored))
        history.validation_ndcg.append(float(np.nanmean(ndcg(scored.labels, scored.scores, scored.mask, 8))))
        return -history.validation_loss[-1] if self.config.select_by == "loss" else history.validation_ndcg[-1]

    def _several_steps(self, iterator: Any, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def loop_body(step: tf.Tensor, terms: tf.Tensor, items: tf.Tensor) -> tuple[tf.Tensor, ...]:
            step_terms, counted = self.strategy.run(self.train_step, args=(next(iterator),))
            step_terms = self.strategy.reduce(tf.distribute.ReduceOp.SUM, step_terms, axis=None)
            counted = self.strategy.reduce(tf.distribute.ReduceOp.SUM, counted, axis=None)
            return step + 1, terms + step_terms, items + counted

        start = (tf.constant(0), tf.zeros([2]), tf.constant(0, tf.int64))
        # parallel steps would race for the random generators, so that the seed would not determine their draws
        _, terms, items = tf.while_loop(lambda step, *_: step < steps, loop_body, start, parallel_iterations=1)
        return terms, items

    def train_step(self, batch: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor]:
        """One step. Returns equation 1's two terms, float32 [2], summed over items, and the number of items."""
        mask = batch["mask"]
        local_items = tf.math.count_nonzero(mask)
        context = tf.distribute.get_replica_context()
        # each replica divides by the items of the whole batch, so that the gradients sum to the batch's
        items = tf.cast(context.all_reduce(tf.distribute.ReduceOp.SUM, local_items), tf.float32)
        logits = batch.get("teacher_logits", tf.zeros([*tf.unstack(tf.shape(mask)), 0]))
        with tf.GradientTape() as tape:
            scores = self.model(batch["regular"], batch["privileged"], mask, training=True)
            terms = distillation_loss(scores, batch["label"], mask, logits, batch["weight"], self.objective)
            loss = tf.add_n(terms) / items + self._l2_penalty() / context.num_replicas_in_sync
        variables = self.model.trainable_variables
        self.optimiser.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return tf.stack(terms), local_items

    def _l2_penalty(self) -> tf.Tensor:
        """l2 times half the squared length of the weights that decay."""
        if not self.config.l2:
            return tf.constant(0.0)
        return self.config.l2 * tf.add_n([tf.nn.l2_loss(weight) for weight in self.model.decayed])


def _new_optimiser(model: Ranker, config: TrainingConfig) -> tf.keras.optimizers.Optimizer:
    optimiser = tf.keras.optimizers.Adam(  # AdamW when weight_decay is set; tf.keras.optimizers.AdamW accepts no None
        HalvingSchedule(config) if config.halve_every else _cosine(config),
        weight_decay=config.weight_decay or None,  # a decay of 0 would still be computed
        global_clipnorm=config.clip_norm,
        use_ema=config.averaging > 0.0,
        ema_momentum=config.averaging or 0.99,
    )
    decayed = {weight.ref() for weight in model.decayed}
    optimiser.exclude_from_weight_decay([v for v in model.trainable_variables if v.ref() not in decayed])
    return optimiser


def _cosine(config: TrainingConfig) -> tf.keras.optimizers.schedules.LearningRateSchedule:
    return tf.keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0 if config.warmup_steps else config.learning_rate,
        decay_steps=max(config.steps - config.warmup_steps, 1),
        alpha=0.1,
        warmup_target=config.learning_rate if config.warmup_steps else None,
        warmup_steps=config.warmup_steps,
    )


class HalvingSchedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    """The rate halves every `halve_every` steps after a linear warm-up. Source: Yang et al. 2022, A.2."""

    def __init__(self, config: TrainingConfig) -> None:
        self.config = config

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        config, step = self.config, tf.cast(step, tf.float32)
        warm = tf.minimum(step / max(config.warmup_steps, 1), 1.0) if config.warmup_steps else 1.0
        return config.learning_rate * warm * 0.5 ** tf.floor(step / config.halve_every)

    def get_config(self) -> dict[str, Any]:
        return {"config": self.config}
