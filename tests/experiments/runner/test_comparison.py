"""Comparisons over trials: pooled means by hand, pairing, and what is resampled."""

from typing import Any

import numpy as np
import pytest

from experiments.runner.comparison import Comparison, TrialResult, Trials, gain_cell


def measured(seed: int, queries: list[str], **per_model: list[float]) -> TrialResult:
    result: dict[str, Any] = {"queries": queries, "per_group": {"ndcg@8": per_model}}
    return TrialResult(seed, result)


def test_means_and_gains_are_over_all_groups_of_all_trials() -> None:
    trials = [
        measured(1, ["a", "b"], plain=[0.5, 0.3], better=[0.6, 0.3]),
        measured(2, ["a"], plain=[0.4], better=[0.9]),
    ]
    compared = Comparison(trials, "ndcg@8")
    assert compared.groups == 3
    assert compared.mean("plain").value == pytest.approx((0.5 + 0.3 + 0.4) / 3)
    assert compared.gain("better", "plain").value == pytest.approx(1.8 / 1.2 - 1.0)


def test_a_query_that_comes_twice_in_a_trial_counts_twice() -> None:
    compared = Comparison([measured(1, ["a", "a", "b"], plain=[0.2, 0.4, 0.9])], "ndcg@8")
    assert compared.mean("plain").value == pytest.approx(0.5)


def test_the_interval_of_a_constant_gain_has_no_width() -> None:
    generator = np.random.default_rng(3)
    plain = generator.random(40)
    trials = [
        measured(s, [f"q{i}" for i in range(40)], plain=plain.tolist(), twice=(2 * plain).tolist()) for s in (1, 2)
    ]
    gain = Comparison(trials, "ndcg@8").gain("twice", "plain")
    assert (gain.low, gain.value, gain.high) == pytest.approx((1.0, 1.0, 1.0))


def test_the_interval_includes_the_variation_between_seeds() -> None:
    # each seed shifts every query alike: over queries alone, no width at all would be seen
    shifts = [0.0, 0.1, 0.2, 0.3, 0.4]
    trials = [
        measured(seed, [f"q{i}" for i in range(30)], plain=[0.3 + shift] * 30) for seed, shift in enumerate(shifts)
    ]
    mean = Comparison(trials, "ndcg@8").mean("plain")
    # the mean of 5 shifts has a standard error of about 0.141 / sqrt(5) = 0.063
    assert mean.value == pytest.approx(0.5)
    assert 0.08 < mean.value - mean.low < 0.16
    assert 0.08 < mean.high - mean.value < 0.16


def test_the_interval_covers_the_true_mean_at_its_confidence_level() -> None:
    generator, covered, runs = np.random.default_rng(5), 0, 60
    for _ in range(runs):
        by_query, by_seed = generator.normal(0.0, 1.0, 40), generator.normal(0.0, 0.5, 10)
        trials = [
            measured(s, [str(q) for q in range(40)], plain=(by_query + shift + generator.normal(0, 1, 40)).tolist())
            for s, shift in enumerate(by_seed)
        ]
        interval = Comparison(trials, "ndcg@8").mean("plain")
        covered += interval.low <= 0.0 <= interval.high
    # of 60 intervals of 95%, fewer than 51 would cover in less than one run of this test in ten thousand
    assert covered >= 51


def test_a_table_cell_shows_mean_and_gain() -> None:
    trials = [measured(1, ["a", "b"], plain=[0.5, 0.5], twice=[1.0, 1.0])]
    compared = Comparison(trials, "ndcg@8")
    assert gain_cell(compared, "plain", None) == "0.500 [0.500, 0.500]"
    assert gain_cell(compared, "twice", "plain") == "1.000 [1.000, 1.000] (+100.0% [+100.0%, +100.0%])"


def test_a_gain_over_a_mean_of_0_is_nan_and_is_shown_as_a_dash() -> None:
    compared = Comparison([measured(1, ["a", "b"], plain=[0.0, 0.0], half=[0.0, 1.0])], "ndcg@8")
    assert gain_cell(compared, "half", "plain") == "0.500 [0.000, 1.000] (-)"
    assert not compared.gain("half", "plain").low > 0.0
    unbounded = compared.gain("plain", "half")  # of some resamples: 0 over 0
    assert (unbounded.value, unbounded.low) == (-1.0, -1.0)


def test_a_mean_curve_ends_with_the_shortest_one_and_split_sizes_are_means() -> None:
    trials = [
        TrialResult(
            seed,
            {
                "queries": ["a"],
                "per_group": {"ndcg@8": {"plain": [0.5]}},
                "splits": {"train": {"groups": groups}},
                "histories": {"plain": {"steps": steps, "validation_ndcg": values}},
            },
        )
        for seed, groups, steps, values in ((1, 10, [5, 10], [0.2, 0.4]), (2, 20, [5, 10, 15], [0.4, 0.6, 0.9]))
    ]
    of_both = Trials(trials)
    steps, values = of_both.curve("plain")
    assert steps == [5, 10]
    assert values.tolist() == pytest.approx([0.3, 0.5])
    assert of_both.of_split("train", "groups") == 15.0
    assert all("histories" not in trial for trial in of_both.to_json())
