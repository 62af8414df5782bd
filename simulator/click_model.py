"""Simulated behaviour: a production ranker sets positions; shoppers examine, click, add to cart and purchase.

Pure: arrays in, arrays out, one random generator.
"""

from dataclasses import dataclass

import numpy as np
from pydantic import Field, model_validator

from features.task import Section
from simulator.shop import NO_ITEM, BoolArray, Candidates, FloatArray, IntArray

_MILLISECONDS = 1000


class RankerConfig(Section):
    """The production ranker: score = utility_weight * utility + overlap_weight * overlap + noise * N(0, 1)."""

    utility_weight: float = 1.0  # score per unit of true utility
    overlap_weight: float = 0.5  # score per unit of token overlap (share of the query's tokens in the title)
    noise: float = Field(default=0.4, ge=0)  # standard deviation, score


class ExaminationConfig(Section):
    """P(examined | position) = (1 + position) ** -decay, position 0 being the top."""

    decay: float = Field(default=0.7, ge=0)  # eta
    stop_after_add: float = Field(default=0.6, ge=0, le=1)  # probability of leaving after an add-to-cart


class Curve(Section):
    """A probability that rises with x: floor + (ceiling - floor) / (1 + exp(-steepness * (x - midpoint)))."""

    floor: float = Field(ge=0, le=1)  # probability far below the midpoint
    ceiling: float = Field(ge=0, le=1)  # probability far above it
    midpoint: float  # units of x
    steepness: float = Field(ge=0)  # per unit of x

    @model_validator(mode="after")
    def _rises(self) -> "Curve":
        if self.ceiling < self.floor:
            raise ValueError(f"ceiling {self.ceiling} is below floor {self.floor}: exchange them")
        return self

    def probability(self, x: FloatArray) -> FloatArray:
        rise: FloatArray = (1 + np.tanh(self.steepness * (x - self.midpoint) / 2)) / 2  # the logistic, without overflow
        return self.floor + (self.ceiling - self.floor) * rise


class Delay(Section):
    """Log-normal: median * exp(sigma * N(0, 1))."""

    median_seconds: float = Field(gt=0)
    sigma: float = Field(ge=0)  # standard deviation of the logarithm


class BehaviourConfig(Section):
    """Parameters of the behaviour model; docs/simulator.md gives the formulas."""

    ranker: RankerConfig = RankerConfig()
    examination: ExaminationConfig = ExaminationConfig()
    perception_noise: float = Field(default=0.2, ge=0)  # standard deviation of perceived minus true utility
    click: Curve = Curve(floor=0.01, ceiling=0.28, midpoint=0.65, steepness=5.0)  # given examination, x = perceived
    # given a click, x = true utility
    add_to_cart: Curve = Curve(floor=0.01, ceiling=0.22, midpoint=0.65, steepness=6.0)
    purchase: Curve = Curve(floor=0.3, ceiling=0.6, midpoint=0.5, steepness=5.0)  # given an add, x = true utility
    click_delay: Delay = Delay(median_seconds=15.0, sigma=1.0)  # after the impression
    add_delay: Delay = Delay(median_seconds=90.0, sigma=1.0)  # after the click
    purchase_delay: Delay = Delay(median_seconds=1800.0, sigma=1.8)  # after the add: minutes to days


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Events at each position of each request. All arrays are [requests, n]; column = position, 0 the top.

    items, grades: as in Candidates, in the order shown; NO_ITEM after the last.
    click_ms, add_ms, purchase_ms: milliseconds after the impression, valid only where the event is True.
    """

    items: IntArray
    grades: IntArray
    click: BoolArray
    add_to_cart: BoolArray
    purchase: BoolArray
    click_ms: IntArray
    add_ms: IntArray
    purchase_ms: IntArray


def simulate_behaviour(
    candidates: Candidates, overlap: FloatArray, config: BehaviourConfig, rng: np.random.Generator
) -> Behaviour:
    """Ranks each request's candidates and simulates the shoppers' actions.

    overlap: [requests, n], the token overlap of each candidate, in [0, 1].
    """
    order = shown_order(candidates, overlap, config.ranker, rng)
    items = np.take_along_axis(candidates.items, order, axis=1)
    utility = np.take_along_axis(candidates.utilities, order, axis=1)
    examined = (rng.random(items.shape) < examination(items.shape[1], config.examination)) & (items != NO_ITEM)
    perceived = utility + config.perception_noise * rng.standard_normal(items.shape)
    click = examined & (rng.random(items.shape) < config.click.probability(perceived))
    add = click & (rng.random(items.shape) < config.add_to_cart.probability(utility))
    stopped = add & (rng.random(items.shape) < config.examination.stop_after_add)
    reached = before_first(stopped)
    click, add = click & reached, add & reached
    purchase = add & (rng.random(items.shape) < config.purchase.probability(utility))
    click_ms = _delays(config.click_delay, items.shape, rng)
    add_ms = click_ms + _delays(config.add_delay, items.shape, rng)
    purchase_ms = add_ms + _delays(config.purchase_delay, items.shape, rng)
    grades = np.take_along_axis(candidates.grades, order, axis=1)
    return Behaviour(items, grades, click, add, purchase, click_ms, add_ms, purchase_ms)


def shown_order(
    candidates: Candidates, overlap: FloatArray, config: RankerConfig, rng: np.random.Generator
) -> IntArray:
    """[requests, n]: column of the candidate at each position, by descending score, missing items last."""
    score = config.utility_weight * candidates.utilities + config.overlap_weight * overlap
    score += config.noise * rng.standard_normal(score.shape)
    return np.argsort(np.where(candidates.items == NO_ITEM, np.inf, -score), axis=1, kind="stable")


def examination(positions: int, config: ExaminationConfig) -> FloatArray:
    """[positions]: the probability that a shopper examines each position."""
    return (1.0 + np.arange(positions)) ** -config.decay


def before_first(stopped: BoolArray) -> BoolArray:
    """[requests, n]: True up to and at each row's first True of `stopped`, False after it."""
    reached: BoolArray = np.cumsum(stopped, axis=1) - stopped == 0
    return reached


def _delays(delay: Delay, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
    seconds = delay.median_seconds * np.exp(delay.sigma * rng.standard_normal(shape))
    milliseconds: IntArray = np.maximum(np.rint(seconds * _MILLISECONDS), 1).astype(np.int64)
    return milliseconds
