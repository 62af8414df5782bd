"""Which features become privileged: those most correlated with the label. Pure: no Beam.

Source: Yang et al. 2022, 4.1.
"""

from typing import NamedTuple

import numpy as np

from beam_jobs.letor import Floats

TIE = 12  # decimals; correlations that agree to here are equal, in whatever order documents were summed


class Correlations:
    """Running Pearson correlations of every feature with the label; they merge, and hold no document."""

    def __init__(self, features: int) -> None:
        self.documents = 0
        # float64 [features + 1], the label last
        self.mean = np.zeros(features + 1)
        self.squares = np.zeros(features + 1)  # sums of squared deviations from the mean
        self.products = np.zeros(features + 1)  # sums of deviations times the label's

    def add(self, values: Floats, labels: Floats) -> None:
        """values: [n, features]; labels: [n]."""
        columns = np.column_stack([values, labels]).astype(np.float64)
        mean = columns[0] + (columns - columns[0]).mean(axis=0)  # so a constant has no deviation at all
        deviations = columns - mean
        self._merge(len(columns), mean, np.square(deviations).sum(axis=0), deviations[:, -1] @ deviations)

    def merge(self, other: "Correlations") -> None:
        self._merge(other.documents, other.mean, other.squares, other.products)

    def _merge(self, documents: int, mean: Floats, squares: Floats, products: Floats) -> None:
        # Chan, Golub and LeVeque 1979: no cancellation, whatever the order of merging
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

    def to_array(self) -> Floats:
        """float64 [features]; 0 where a feature or the label is constant."""
        spread = np.sqrt(self.squares[:-1] * self.squares[-1])
        found: Floats = np.divide(self.products[:-1], spread, out=np.zeros_like(spread), where=spread > 0)
        return found


class FeatureSplit(NamedTuple):
    """The files' feature ids, from 1, in the order in which the two vectors hold them."""

    regular: tuple[int, ...]  # ascending ids
    privileged: tuple[int, ...]  # the strongest correlation first


def most_correlated(correlations: Floats, count: int) -> FeatureSplit:
    """The `count` features of the largest magnitude become privileged; of equal ones those with the lower id."""
    strength = np.round(np.abs(correlations), TIE)
    ranked = sorted(range(1, len(strength) + 1), key=lambda feature: (-strength[feature - 1], feature))
    return FeatureSplit(tuple(sorted(ranked[count:])), tuple(ranked[:count]))
