"""Compares models over trials: pooled over positive test groups, paired, with a bootstrap over queries and seeds."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.runner.report import percent
from trainer.evaluation.metrics import Floats, Interval

SAMPLES, CONFIDENCE = 2000, 0.95


class TrialResult(NamedTuple):
    """A trial's seed, and what `run_trial` returned."""

    seed: int
    result: Mapping[str, Any]


class Comparison:
    """One metric of every model over trials of the same models.

    A resample draws queries and seeds independently, with replacement, and takes the groups of drawn pairs: a query's
    groups share its difficulty, and a seed's groups share the trained models. All models use the same resamples.
    Source: Owen 2007, the pigeonhole bootstrap, which errs towards wide.
    """

    def __init__(self, trials: Sequence[TrialResult], metric: str) -> None:
        queries = sorted({query for trial in trials for query in trial.result["queries"]})
        seeds = sorted({trial.seed for trial in trials})
        place = {query: row for row, query in enumerate(queries)}
        self.groups = sum(len(trial.result["queries"]) for trial in trials)
        shape = (len(queries), len(seeds))
        counts = np.zeros(shape)
        self._sums = {model: np.zeros(shape) for model in trials[0].result["per_group"][metric]}
        for trial in trials:
            rows = [place[query] for query in trial.result["queries"]]
            column = seeds.index(trial.seed)
            np.add.at(counts[:, column], rows, 1.0)
            for model, sums in self._sums.items():
                np.add.at(sums[:, column], rows, trial.result["per_group"][metric][model])
        generator = np.random.default_rng(0)
        self._by_query, self._by_seed = (
            generator.multinomial(size, np.full(size, 1.0 / size), size=SAMPLES).astype(np.float64) for size in shape
        )
        self._count, self._counts = float(counts.sum()), self._resampled(counts)

    @property
    def models(self) -> list[str]:
        return list(self._sums)

    def mean(self, model: str) -> Interval:
        """Over groups."""
        return _interval(self._value(model), self._means(model))

    def gain(self, model: str, baseline: str) -> Interval:
        """The model's mean divided by the baseline's, minus 1; NaN if the baseline's is 0."""
        if not self._value(baseline):
            return Interval(np.nan, np.nan, np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):  # with few groups, a resample's baseline may be 0
            resampled = self._means(model) / self._means(baseline) - 1.0
        return _interval(self._value(model) / self._value(baseline) - 1.0, resampled)

    def _value(self, model: str) -> float:
        return float(self._sums[model].sum()) / self._count

    def _means(self, model: str) -> Floats:
        with np.errstate(invalid="ignore"):  # with few queries and seeds, a resample may be empty
            return self._resampled(self._sums[model]) / self._counts

    def _resampled(self, table: NDArray[np.float64]) -> Floats:
        """[samples]: the sum of a table [queries, seeds] in each resample."""
        sums: Floats = ((self._by_query @ table) * self._by_seed).sum(axis=1)
        return sums


class Trials:
    """The trials of one data set, or of one setting, and each metric's comparison."""

    def __init__(self, trials: Sequence[TrialResult]) -> None:
        self.trials = trials
        self.by_metric = {metric: Comparison(trials, metric) for metric in trials[0].result["per_group"]}

    def __getitem__(self, metric: str) -> Comparison:
        return self.by_metric[metric]

    def curve(self, model: str, which: str = "validation_ndcg") -> tuple[list[int], Floats]:
        """A learning curve of `trainer.training.fit_ranker.History`: its steps, and the mean over trials at each."""
        histories = [trial.result["histories"][model] for trial in self.trials]
        shortest = min(len(history["steps"]) for history in histories)
        values: Floats = np.mean([history[which][:shortest] for history in histories], axis=0)
        return histories[0]["steps"][:shortest], values

    def of_split(self, split: str, what: str) -> float:
        """A mean over trials: `groups`, `positive` groups or `items` of a split."""
        return float(np.mean([trial.result["splits"][split][what] for trial in self.trials]))

    def positive_share(self, split: str) -> float:
        """The share of a split's query groups that have a positive label."""
        return self.of_split(split, "positive") / self.of_split(split, "groups")

    def to_json(self, *metrics: str) -> list[dict[str, Any]]:
        """Raw per-group results, without learning curves. metrics: the metrics to include; empty: all."""
        trials = []
        for trial in self.trials:
            content = {"seed": trial.seed, **{k: v for k, v in trial.result.items() if k != "histories"}}
            per_group = trial.result["per_group"]
            trials.append(content | {"per_group": {metric: per_group[metric] for metric in metrics or per_group}})
        return trials


def _interval(value: float, resampled: Floats) -> Interval:
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.nanquantile(resampled, (tail, 1.0 - tail))
    return Interval(value, float(low), float(high))


def gain_cell(comparison: Comparison, model: str, baseline: str | None) -> str:
    """`0.566 [0.561, 0.570]` and, over a baseline, `(+9.5% [+8.1%, +11.0%])`."""
    mean = comparison.mean(model)
    value = f"{mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}]"
    return value if baseline is None else f"{value} ({percent(comparison.gain(model, baseline))})"
