"""Labels drawn by the Gumbel difference (Yang et al. 2022, eq. 2)."""

import numpy as np
import pytest

from beam_jobs.letor.labels import binary_labels, gumbels

MANY = [f"d{number}" for number in range(40_000)]


@pytest.fixture(scope="module")
def draws():
    return gumbels(7, "q", MANY)


def test_a_label_is_1_where_relevance_and_chance_together_exceed_tau():
    # 4 * 2 + 1 = 9 > 4 * 2.1 + 0 = 8.4;  4 * 2 + 0 = 8 < 4 * 2.1 + 1 = 9.4;  4 * 3 + 0 = 12 > 9.4
    drawn = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert binary_labels(np.array([2, 2, 3]), drawn, temperature=4.0, tau=2.1).tolist() == [True, False, True]


@pytest.mark.parametrize("relevance", range(5))
@pytest.mark.parametrize(("temperature", "tau"), [(4.0, 2.4), (1.0, 1.5), (0.5, 4.8)])
def test_the_share_of_labels_is_sigma_of_relevance_within_standard_errors(draws, relevance, temperature, tau):
    labels = binary_labels(np.full(len(MANY), relevance), draws, temperature, tau)
    expected = 1 / (1 + np.exp(-temperature * (relevance - tau)))
    error = np.sqrt(expected * (1 - expected) / len(MANY))
    assert abs(labels.mean() - expected) < 4 * error + 1 / len(MANY)


def test_draws_are_two_independent_standard_gumbels(draws):
    error = np.pi / np.sqrt(6 * len(MANY))  # of a mean: the deviation is pi / sqrt 6
    assert np.abs(draws.mean(axis=0) - np.euler_gamma).max() < 4 * error
    assert np.abs(draws.var(axis=0) / (np.pi**2 / 6) - 1).max() < 0.05
    assert abs(np.corrcoef(draws.T)[0, 1]) < 4 / np.sqrt(len(MANY))
    assert np.isfinite(draws).all()


def test_a_documents_draws_depend_on_seed_query_and_item_alone():
    alone = gumbels(7, "q", ["d3"])[0].tolist()
    assert gumbels(7, "q", ["d9", "d3", "d1"])[1].tolist() == alone
    others = [gumbels(8, "q", ["d3"]), gumbels(7, "r", ["d3"]), gumbels(7, "q", ["d4"])]
    assert all(set(other[0].tolist()).isdisjoint(alone) for other in others)


def test_a_privileged_feature_of_a_lower_tau_comes_from_the_same_draws(draws):
    relevance = np.arange(len(MANY)) % 5
    label, feature = (binary_labels(relevance, draws, 4.0, tau) for tau in (3.0, 1.0))
    assert (feature >= label).all()
    assert feature.sum() > label.sum()
    assert (binary_labels(relevance, draws, 4.0, 3.0) == label).all()
