"""Selects the features most correlated with the label as privileged. Pure: no Beam.

Source: Yang et al. 2022, 4.1.
"""

from typing import NamedTuple

import numpy as np

from beam_jobs.letor.lines import LetorFloats

_CORRELATION_DECIMALS = 12  # correlations are compared rounded, so that summation order does not matter


class Correlations:
    """Mergeable running Pearson correlations of every feature with the label; stores no document."""

    def __init__(self, features: int) -> None:
        self.documents = 0
        # float64 [features + 1], the label last
        self.mean = np.zeros(features + 1)
        self.squares = np.zeros(features + 1)  # sums of squared deviations from the mean
        self.products = np.zeros(features + 1)  # sums of deviations times the label's

    def add(self, values: LetorFloats, labels: LetorFloats) -> None:
        """values: [n, features]; labels: [n]."""
        columns = np.column_stack([values, labels]).astype(np.float64)
        mean = columns[0] + (columns - columns[0]).mean(axis=0)  # a constant has a deviation of exactly 0
        deviations = columns - mean
        self._merge(len(columns), mean, np.square(deviations).sum(axis=0), deviations[:, -1] @ deviations)

    def merge(self, other: "Correlations") -> None:
        self._merge(other.documents, other.mean, other.squares, other.products)

    def _merge(self, documents: int, mean: LetorFloats, squares: LetorFloats, products: LetorFloats) -> None:
        # Chan, Golub and LeVeque 1979: no cancellation in any order of merging
        total = self.documents + documents
        if not total:
            return
        difference, weight = mean - self.mean, self.documents * documents / total
        self.squares = self.squares + squares + difference * difference * weight
        self.products = self.products + products + difference * difference[-1] * weight
        self.mean = self.mean + difference * (documents / total)
        self.documents = total

    @property
    def label_varies(self) -> bool:
        return bool(self.squares[-1] > 0)

    def to_array(self) -> LetorFloats:
        """float64 [features]; 0 if the feature or the label is constant."""
        spread = np.sqrt(self.squares[:-1] * self.squares[-1])
        found: LetorFloats = np.divide(self.products[:-1], spread, out=np.zeros_like(spread), where=spread > 0)
        return found


class FeatureSplit(NamedTuple):
    """The files' feature ids, from 1, in the order of the two feature vectors."""

    regular: tuple[int, ...]  # ascending ids
    privileged: tuple[int, ...]  # the strongest correlation first


def most_correlated(correlations: LetorFloats, count: int) -> FeatureSplit:
    """Makes the `count` features of the largest absolute correlation privileged; ties go to the lower id."""
    strength = np.round(np.abs(correlations), _CORRELATION_DECIMALS)
    ranked = sorted(range(1, len(strength) + 1), key=lambda feature: (-strength[feature - 1], feature))
    return FeatureSplit(tuple(sorted(ranked[count:])), tuple(ranked[:count]))
