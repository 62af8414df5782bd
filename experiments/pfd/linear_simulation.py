"""Simulates linear models: least squares, and privileged features distillation (PFD).

A draw has n labelled and m unlabelled examples of x (d_x regular features) and u (d_u hidden
ones), all standard normal and independent; w* is standard normal too, z, the privileged features, the first d_z of u:

    y = x.w* + u.v* + noise of variance sigma^2

*Least squares* regresses y on x over the labelled. *PFD* (alpha = 0) regresses y on x and z over the labelled, predicts
all n + m with that teacher, and regresses the predictions on x. The *error* of either is E|its coefficients - w*|^2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, NonNegativeInt, model_validator

from experiments.pfd.linear_theory import World
from experiments.runner.cells import Cell
from experiments.runner.report import Estimate
from features.manifest import stage_key
from features.task import Section
from trainer.evaluation.metrics import Floats, Interval, PairedBootstrap

SIMULATION_VERSION = "linear 1"  # raised when `simulate` changes
BATCH_NUMBERS = 4_000_000  # random numbers of a batch: 32 MB
BOOTSTRAP_SAMPLES, CONFIDENCE = 2000, 0.95


class Draws(Section):
    """How many draws a setting gets: `chunks` cells of `each`."""

    chunks: int = Field(ge=2)
    each: int = Field(ge=1)


class LinearSettings(Section):
    """experiments/configs/linear.yaml, which says what each is."""

    seed: NonNegativeInt
    regular: int = Field(ge=1)
    effects: tuple[float, ...] = Field(min_length=1)
    sigma: float = Field(gt=0.0)
    labelled: int
    unlabelled: NonNegativeInt
    doublings: int = Field(ge=1)
    more_unlabelled: tuple[NonNegativeInt, ...]
    noisier_sigma: float = Field(gt=0.0)
    draws: Draws
    quick: Draws

    @model_validator(mode="after")
    def _errors_have_a_deviation(self) -> "LinearSettings":
        if self.labelled < (least := self.regular + len(self.effects) + 4):
            raise ValueError(f"labelled {self.labelled} must be {least} or more: else the error's variance is infinite")
        return self


def simulate(cell: dict[str, Any], _: Path) -> list[float]:
    """A chunk's mean squared errors: of least squares, then of PFD with d_z = 0 .. d_u."""
    world, draws = World(**{name: cell[name] for name in World.__dataclass_fields__}), cell["draws"]
    # all that describes the chunk seeds it, so that no two chunks share their numbers
    generator = np.random.default_rng(int(stage_key(**cell), 16))
    batch = max(1, BATCH_NUMBERS // ((world.labelled + world.unlabelled) * (world.regular + world.hidden)))
    total = np.zeros(2 + world.hidden)
    for start in range(0, draws, batch):
        total += squared_errors(world, min(batch, draws - start), generator).sum(axis=0)
    return [float(mean) for mean in total / draws]


def squared_errors(world: World, draws: int, generator: np.random.Generator) -> Floats:
    """[draws, 2 + d_u]: |w - w*|^2 of least squares, then of PFD with d_z = 0 .. d_u, all of the same draws."""
    n, d_x = world.labelled, world.regular
    features = generator.standard_normal((draws, n + world.unlabelled, d_x + world.hidden))  # x, then u
    truth = generator.standard_normal((draws, d_x))
    noise = world.sigma * generator.standard_normal((draws, n, 1))
    coefficients = np.concatenate([truth, np.broadcast_to(world.effects, (draws, world.hidden))], axis=1)[..., None]
    labelled = features[:, :n]
    # normal equations: the labelled examples' for every teacher, those of all examples for every student
    gram = labelled.swapaxes(1, 2) @ labelled
    moments = labelled.swapaxes(1, 2) @ (labelled @ coefficients + noise)
    student_gram = features[..., :d_x].swapaxes(1, 2) @ features

    least_squares = np.linalg.solve(gram[:, :d_x, :d_x], moments[:, :d_x])
    predicted = []  # what each teacher's predictions make of the students' moments
    for seen in range(d_x, d_x + world.hidden + 1):
        teacher = np.linalg.solve(gram[:, :seen, :seen], moments[:, :seen])
        predicted.append(student_gram[..., :seen] @ teacher)
    students = np.linalg.solve(student_gram[..., :d_x], np.concatenate(predicted, axis=2))
    errors: Floats = np.square(np.concatenate([least_squares, students], axis=2) - truth[..., None]).sum(axis=1)
    return errors


@dataclass(frozen=True)
class Simulated:
    """A world's errors. chunks: [chunks, 2 + d_u], each row what `simulate` returned."""

    world: World
    chunks: Floats

    @property
    def least_squares(self) -> Estimate:
        return Estimate.of(self.chunks[:, 0])

    def distilled(self, privileged: int) -> Estimate:
        """PFD's error with d_z = privileged."""
        return Estimate.of(self.chunks[:, 1 + privileged])

    def overstated(self, privileged: int) -> Estimate:
        """By how much of themselves the leading terms lie above PFD's error."""
        return Estimate.of(1.0 - self.chunks[:, 1 + privileged] / self.world.leading(privileged))

    def change(self, privileged: int, since: int = 0) -> Interval:
        """PFD's error over that with d_z = since, less 1, paired by chunk. With d_z = 0 PFD is least squares."""
        bootstrap = PairedBootstrap(len(self.chunks), BOOTSTRAP_SAMPLES, CONFIDENCE, seed=0)
        return bootstrap.relative_gain(self.chunks[:, 1 + privileged], self.chunks[:, 1 + since])


@dataclass(frozen=True)
class Worlds:
    """The worlds that the settings ask for, by what they are for."""

    example: World
    doubled: list[World]  # the example first
    by_unlabelled: list[World]  # m ascending, the example among them
    noisier: World

    @classmethod
    def of(cls, settings: LinearSettings) -> "Worlds":
        example = World(settings.labelled, settings.unlabelled, settings.sigma, settings.regular, settings.effects)
        n, m = example.labelled, example.unlabelled
        return cls(
            example=example,
            doubled=[replace(example, labelled=n * 2**i, unlabelled=m * 2**i) for i in range(settings.doublings + 1)],
            by_unlabelled=[replace(example, unlabelled=other) for other in sorted({*settings.more_unlabelled, m})],
            noisier=replace(example, sigma=settings.noisier_sigma),
        )

    @property
    def all(self) -> list[World]:
        """Each world once."""
        return list(dict.fromkeys((*self.doubled, *self.by_unlabelled, self.noisier)))


@dataclass(frozen=True)
class Findings:
    """The simulated worlds of an experiment. draws: of each world."""

    draws: int
    worlds: Worlds
    simulated: Mapping[World, Simulated]

    @property
    def example(self) -> Simulated:
        return self.simulated[self.worlds.example]

    @property
    def doubled(self) -> list[Simulated]:
        return [self.simulated[world] for world in self.worlds.doubled]

    @property
    def by_unlabelled(self) -> list[Simulated]:
        return [self.simulated[world] for world in self.worlds.by_unlabelled]

    @property
    def noisier(self) -> Simulated:
        return self.simulated[self.worlds.noisier]

    @property
    def all(self) -> list[Simulated]:
        return list(self.simulated.values())


def chunk_cells(settings: LinearSettings) -> list[Cell]:
    """A cell for each chunk of draws of each world."""
    return [
        asdict(world) | {"seed": settings.seed, "draws": settings.draws.each, "chunk": chunk}
        for world in Worlds.of(settings).all
        for chunk in range(settings.draws.chunks)
    ]


def gather_findings(settings: LinearSettings, errors: Sequence[list[float]]) -> Findings:
    """errors: what `simulate` returned for each of `chunk_cells`."""
    worlds, draws = Worlds.of(settings), settings.draws
    by_world = np.array(errors).reshape(len(worlds.all), draws.chunks, -1)
    simulated = {world: Simulated(world, chunks) for world, chunks in zip(worlds.all, by_world, strict=True)}
    return Findings(draws.chunks * draws.each, worlds, simulated)
