"""The features most correlated with the label become privileged."""

import numpy as np
import pytest

from beam_jobs.letor.privilege import Correlations, most_correlated


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    labels = rng.random(3000) < 0.2
    values = rng.normal(size=(3000, 6)) + np.outer(labels, [0, 1, -2, 0.1, 0, 0])
    values[:, 4] = 0.1  # no binary fraction, so a mean of it is rounded
    values[:, 5] += 1e7  # beside it plain sums of squares would lose the deviations
    return values, labels


def correlations(values, labels, *edges: int) -> Correlations:
    found = Correlations(values.shape[1])
    for part in np.split(np.arange(len(labels)), edges):
        found.add(values[part], labels[part])
    return found


@pytest.mark.parametrize("edges", [(), (1,), (10, 11, 2999), tuple(range(7, 3000, 7))])
def test_correlations_equal_numpys_in_whatever_batches(data, edges):
    values, labels = data
    varying = [0, 1, 2, 3, 5]
    expected = np.corrcoef(values[:, varying].T, labels)[-1, :-1]
    found = correlations(values, labels, *edges)
    np.testing.assert_allclose(found.to_array()[varying], expected, atol=1e-7)
    assert found.to_array()[4] == 0  # constant
    assert found.squares[4] == 0
    assert found.documents == 3000


def test_sums_of_several_files_merge_in_any_order(data):
    values, labels = data
    whole = correlations(values, labels).to_array()
    for order in ((0, 1, 2), (2, 0, 1)):
        total = Correlations(6)
        for third in order:
            rows = slice(1000 * third, 1000 * third + 1000)
            total.merge(correlations(values[rows], labels[rows], 3, 500))
        total.merge(Correlations(6))
        np.testing.assert_allclose(total.to_array(), whole, atol=1e-7)


def test_labels_that_are_all_the_same_correlate_with_nothing():
    found = correlations(np.array([[1.0], [2.0], [4.0]]), np.zeros(3))
    assert found.to_array().tolist() == [0]
    assert not found.label_varies


def test_the_strongest_become_privileged_by_magnitude_and_the_others_keep_their_order():
    split = most_correlated(np.array([0.1, -0.9, 0.0, 0.5, 0.2]), 2)
    assert split.privileged == (2, 4)  # ids from 1; the strongest first
    assert split.regular == (1, 3, 5)


def test_of_equal_correlations_the_lower_id_is_privileged_whatever_rounding_left():
    assert most_correlated(np.array([0.3, 0.3 + 1e-15, -0.3]), 2).privileged == (1, 2)


def test_there_may_be_no_privileged_feature():
    assert most_correlated(np.array([0.3, 0.1]), 0) == ((1, 2), ())
