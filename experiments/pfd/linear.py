"""Privileged features distillation of linear models: closed forms against simulation (Yang et al. 2022, section 5).

**What is simulated.** A draw has n labelled and m unlabelled examples of x (d_x regular features) and u (d_u hidden
ones), all standard normal and independent; w* is standard normal too, z, the privileged features, the first d_z of u:

    y = x.w* + u.v* + noise of variance sigma^2

*Least squares* regresses y on x over the labelled. *PFD* (alpha = 0) regresses y on x and z over the labelled, predicts
all n + m with that teacher, and regresses the predictions on x. The *error* of either is E|its coefficients - w*|^2.

**What the theorems say.** With s^2 = sigma^2 + |v*|^2 - |v_z|^2, the variance of y that x and z leave unexplained:

    least squares    d_x (sigma^2 + |v*|^2) / (n - d_x - 1)                               exact, proof of Theorem 1
    PFD, leading     d_x s^2 / (n - d_x - d_z - 1) + d_x |v_z|^2 / (n + m - d_x - 1)      Theorem 2

and PFD's neglected terms are O(1 / (n m)). Theorem 1 is the case d_z = d_u in orders of magnitude.

**The neglected terms, exactly.** PFD misses w* by T1 + T2 + T3: the regression over all of z.v_z on x, the teacher's
error in w*, and the regression over all of z.(its error in v_z) on x. E|T1|^2 and E|T2|^2 are the leading terms, T1 is
uncorrelated with the rest, and the proof drops T3. But T3 is correlated with T2. Let W and W_a regress z on x over the
labelled and over all, and S be the labelled z's scatter about the former. Given x and z, the teacher's error in v_z has
covariance s^2 S^-1, and -s^2 W S^-1 with its error in w*: so E|T3|^2 = s^2 E tr(W_a S^-1 W_a') and E T2.T3 =
-s^2 E tr(W S^-1 W_a'). Given x, S is independent of W and W_a; E S^-1 = I / (n - d_x - d_z - 1), and E W_a W_a' =
E W W_a' = d_z I / (n + m - d_x - 1). Hence E|T3|^2 + 2 E T2.T3 = R - 2 R = -R with

    R = s^2 d_x d_z / ((n - d_x - d_z - 1)(n + m - d_x - 1))

The theorem overstates PFD's error by R. With m = 0 or d_z = 0, leading - R is least squares' error, as it must be.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field, NonNegativeInt, model_validator

from experiments.cells import load_settings, parse_arguments, run_cells
from experiments.report import Claim, Estimate, Report, claims_table, draw_line, panels, percent, table, write_report
from features.errors import exit_code_of
from features.manifest import stage_key
from features.task import Section
from trainer.metrics import Floats, Interval, PairedBootstrap

TITLE = "Linear models: Theorems 1 and 2 and Example 1 of Yang et al. 2022"
VERSION = "linear 1"  # raised when `simulate` changes
BATCH_NUMBERS = 4_000_000  # random numbers of a batch: 32 MB
BOOTSTRAP_SAMPLES, CONFIDENCE = 2000, 0.95
LARGEST_GAP, LEAST_DRAWS = 0.05, 40_000  # of the claim on leading terms


class Draws(Section):
    """How many draws a setting gets: `chunks` cells of `each`."""

    chunks: int = Field(ge=2)
    each: int = Field(ge=1)


class Settings(Section):
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
    def _errors_have_a_deviation(self) -> "Settings":
        if self.labelled < (least := self.regular + len(self.effects) + 4):
            raise ValueError(f"labelled {self.labelled} must be {least} or more: else the error's variance is infinite")
        return self


@dataclass(frozen=True)
class World:
    """What the draws of one setting have in common, and what the theory says of them."""

    labelled: int
    unlabelled: int
    sigma: float
    regular: int
    effects: tuple[float, ...]

    @property
    def hidden(self) -> int:
        """d_u."""
        return len(self.effects)

    def explained(self, privileged: int) -> float:
        """|v_z|^2 for d_z = privileged."""
        return sum(effect**2 for effect in self.effects[:privileged])

    def unexplained(self, privileged: int) -> float:
        """s^2."""
        return self.sigma**2 + sum(effect**2 for effect in self.effects[privileged:])

    def least_squares(self) -> float:
        return self.regular * self.unexplained(0) / (self.labelled - self.regular - 1)

    def leading(self, privileged: int) -> float:
        """Theorem 2 without its remainder."""
        teacher, student = self._freedom(privileged)
        return self.regular * (self.unexplained(privileged) / teacher + self.explained(privileged) / student)

    def neglected(self, privileged: int) -> float:
        """-R, which Theorem 2 leaves out."""
        teacher, student = self._freedom(privileged)
        return -self.unexplained(privileged) * self.regular * privileged / (teacher * student)

    def exact(self, privileged: int) -> float:
        return self.leading(privileged) + self.neglected(privileged)

    def _freedom(self, privileged: int) -> tuple[int, int]:
        """The denominators: of the teacher, who sees labels only; of the student, who sees every example."""
        student = self.labelled + self.unlabelled - self.regular - 1
        return self.labelled - self.regular - privileged - 1, student


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
class Findings:
    """The simulated worlds, by what they are for."""

    draws: int  # of each world
    example: Simulated
    doubled: list[Simulated]  # the example first
    by_unlabelled: list[Simulated]  # m ascending, the example among them
    noisier: Simulated
    all: list[Simulated]


def find(settings: Settings, draws: Draws, out: Path, processes: int) -> Findings:
    """Simulates every world, a cell a chunk."""
    example = World(settings.labelled, settings.unlabelled, settings.sigma, settings.regular, settings.effects)
    n, m = example.labelled, example.unlabelled
    doubled = [replace(example, labelled=n * 2**i, unlabelled=m * 2**i) for i in range(settings.doublings + 1)]
    by_unlabelled = [replace(example, unlabelled=other) for other in sorted({*settings.more_unlabelled, m})]
    noisier = replace(example, sigma=settings.noisier_sigma)
    worlds = list(dict.fromkeys((*doubled, *by_unlabelled, noisier)))
    cells = [
        asdict(world) | {"seed": settings.seed, "draws": draws.each, "chunk": chunk}
        for world in worlds
        for chunk in range(draws.chunks)
    ]
    errors = np.array(run_cells(cells, simulate, out, processes, VERSION)).reshape(len(worlds), draws.chunks, -1)
    simulated = {world: Simulated(world, chunks) for world, chunks in zip(worlds, errors, strict=True)}
    return Findings(
        draws=draws.chunks * draws.each,
        example=simulated[example],
        doubled=[simulated[world] for world in doubled],
        by_unlabelled=[simulated[world] for world in by_unlabelled],
        noisier=simulated[noisier],
        all=list(simulated.values()),
    )


# --- what was to be shown, each with the rule that decides it


def closeness_claims(found: Findings) -> list[Claim]:
    """Simulation against closed forms."""
    every_d_z = range(found.example.world.hidden + 1)
    of_least_squares = [s.least_squares.distance(s.world.least_squares()) for s in found.all]
    of_exact_form = [s.distilled(d_z).distance(s.world.exact(d_z)) for s in found.all for d_z in every_d_z]
    overstated = [s.overstated(d_z).value for s in found.doubled for d_z in every_d_z]
    return [
        Claim(
            "Least squares is within 3 standard errors of its closed form in every setting",
            f"{len(of_least_squares)} settings, the farthest {max(of_least_squares):.1f} standard errors",
            max(of_least_squares) <= 3.0,
        ),
        Claim(
            f"PFD is within {LARGEST_GAP:.0%} of Theorem 2's leading terms at {LEAST_DRAWS:,} draws or more: "
            "in Example 1 and its doublings, at every d_z",
            f"{len(overstated)} points of {found.draws:,} draws, the farthest {-max(overstated, key=abs):+.1%}",
            max(map(abs, overstated)) <= LARGEST_GAP and found.draws >= LEAST_DRAWS,
        ),
        Claim(
            "PFD is within 4 standard errors of our exact form in every setting, at every d_z",
            f"{len(of_exact_form)} points, the farthest {max(of_exact_form):.1f} standard errors",
            max(of_exact_form) <= 4.0,
        ),
    ]


def shape_claims(found: Findings) -> list[Claim]:
    """How PFD's error and its neglected terms change with n, m, d_z and the noise."""
    example, all_of_u = found.example, found.example.world.hidden
    overstated = [s.overstated(all_of_u) for s in found.doubled]
    errors = [s.distilled(all_of_u) for s in found.by_unlabelled]
    best = min(range(all_of_u + 1), key=lambda d_z: example.distilled(d_z).value)
    rise = example.change(all_of_u, since=best)
    quiet, noisy = example.change(all_of_u), found.noisier.change(all_of_u)
    return [
        Claim(
            "The neglected terms' share shrinks at each doubling of n and m (all of u privileged)",
            " to ".join(f"{-share.value:+.2%} ± {share.error:.2%}" for share in overstated),
            all(earlier.clearly_above(later) for earlier, later in pairwise(overstated)),
        ),
        Claim(
            "Example 1: the best d_z lies strictly between 0 and d_u; seeing all of u is worse",
            f"best d_z = {best}; the error at d_z = {all_of_u} differs by {percent(rise)}",
            0 < best < all_of_u and rise.low > 0.0,
        ),
        Claim(
            "Theorem 1: each larger m lowers PFD's error (all of u privileged)",
            " to ".join(f"{error.value:.1f} ± {error.error:.1f}" for error in errors),
            all(earlier.clearly_above(later) for earlier, later in pairwise(errors)),
        ),
        Claim(
            "PFD beats least squares in Example 1 and loses to it under the larger noise (all of u privileged)",
            f"error at sigma = {example.world.sigma:g}: {percent(quiet)}; "
            f"at sigma = {found.noisier.world.sigma:g}: {percent(noisy)}",
            quiet.high < 0.0 < noisy.low,
        ),
    ]


# --- report

WHERE_THEY_DIFFER = """\
Theorem 2 gives its remainder as an order of magnitude. It is exactly
-s² d_x d_z / ((n - d_x - d_z - 1)(n + m - d_x - 1)), as `experiments/linear.py` derives: the part of PFD's error that
the proof drops adds that much, and its correlation with another part takes away twice as much. So:

- The theorem overstates PFD's error: the more so the fewer unlabelled examples there are and, here, the larger d_z.
- The remainder is of order 1/(n (n + m)). At m = 0, PFD is least squares, and the leading terms are farthest off.
- PFD's error less that of least squares is
  m / ((n - d_x - 1)(n + m - d_x - 1)) · (s² d_z / (n - d_x - d_z - 1) - |v_z|²). Its sign does not depend on m: PFD
  wins where z explains more than its d_z coefficients cost the teacher, and more unlabelled examples widen the
  difference either way. Theorem 1's orders of magnitude hide that cost."""


def report(settings: Settings, found: Findings) -> Report:
    judged = [*closeness_claims(found), *shape_claims(found)]
    return Report(
        name="linear",
        title=TITLE,
        module="experiments.linear",
        packages=("numpy",),
        settings=settings.model_dump(mode="json"),
        results={
            "claims": [asdict(claim) for claim in judged],
            "columns": ["least squares", *(f"PFD, d_z = {d_z}" for d_z in range(len(settings.effects) + 1))],
            "mean_squared_errors_by_chunk": {
                f"n = {s.world.labelled}, m = {s.world.unlabelled}, sigma = {s.world.sigma:g}": s.chunks.tolist()
                for s in found.all
            },
        },
        body=_body(found, judged),
        figure=_figure(found),
        caption="PFD's error by privileged features and by unlabelled examples: closed forms and simulation",
    )


def _body(found: Findings, judged: Sequence[Claim]) -> list[str]:
    example, world, all_of_u = found.example, found.example.world, found.example.world.hidden
    effects = ", ".join(f"{effect:g}" for effect in world.effects)
    few = "" if found.draws >= LEAST_DRAWS else " **These are too few draws to judge the claims by.**"
    return [
        f"Every draw is simulated; a setting has {found.draws:,} in {len(example.chunks)} chunks. An error is a mean "
        f"|w - w*|², ± one standard error over chunks; brackets are {CONFIDENCE:.0%} paired bootstrap intervals over "
        f"chunks.{few}",
        claims_table(judged),
        "## Example 1 (Figure 6)",
        f"n = {world.labelled}, m = {world.unlabelled}, d_x = {world.regular}, sigma = {world.sigma:g}, "
        f"v* = ({effects}). The paper draws Figure 6 and prints none of its numbers: its side is Theorem 2. Least "
        f"squares: {world.least_squares():.2f} in closed form, {example.least_squares} simulated.",
        _table("d_z", {str(d_z): (example, d_z) for d_z in range(all_of_u + 1)}),
        "## The neglected terms as n and m double (d_z = d_u)",
        _table("n, m", {f"{s.world.labelled}, {s.world.unlabelled}": (s, all_of_u) for s in found.doubled}),
        "## Theorem 1: more unlabelled examples (d_z = d_u)",
        _table("m", {str(s.world.unlabelled): (s, all_of_u) for s in found.by_unlabelled}),
        "## Where simulation and theorem differ, and why",
        WHERE_THEY_DIFFER,
    ]


def _table(first: str, points: Mapping[str, tuple[Simulated, int]]) -> str:
    """points: what stands in the first column -> the world and its d_z."""
    head = (first, "Theorem 2, leading", "our exact form", "simulated", "against leading", "against least squares")
    rows = [
        [
            label,
            f"{s.world.leading(d_z):.2f}",
            f"{s.world.exact(d_z):.2f}",
            str(s.distilled(d_z)),
            f"{-s.overstated(d_z).value:+.2%} ± {s.overstated(d_z).error:.2%}",
            percent(s.change(d_z)),
        ]
        for label, (s, d_z) in points.items()
    ]
    return table(head, rows)


def _figure(found: Findings) -> Figure:
    example, all_of_u = found.example, found.example.world.hidden
    figure, (by_privileged, by_unlabelled) = panels(2)
    _draw(by_privileged, {d_z: (example, d_z) for d_z in range(all_of_u + 1)})
    by_privileged.set(title="Example 1 (Figure 6)", xlabel="privileged features d_z", ylabel="mean |w - w*|²")
    by_privileged.legend(fontsize=8)
    _draw(by_unlabelled, {s.world.unlabelled: (s, all_of_u) for s in found.by_unlabelled})
    by_unlabelled.set(title=f"All {all_of_u} hidden features privileged", xlabel="unlabelled examples m")
    by_unlabelled.set_xscale("symlog", linthresh=20)
    return figure


def _draw(axes: Axes, points: Mapping[int, tuple[Simulated, int]]) -> None:
    """points: the place on the x axis -> the world and its d_z."""
    at = list(points)
    simulated = [s.distilled(d_z).interval for s, d_z in points.values()]
    axes.plot(at, [s.world.least_squares() for s, _ in points.values()], color="#9aa5b1", label="least squares")
    axes.plot(at, [s.world.leading(d_z) for s, d_z in points.values()], "--", color="#d9a441", label="Theorem 2")
    axes.plot(at, [s.world.exact(d_z) for s, d_z in points.values()], color="#2f6fb3", label="PFD, our exact form")
    draw_line(axes, at, simulated, "PFD, simulated ± 3 s.e.", color="#1d2733", marker=".", linestyle="none")


def main() -> None:
    arguments = parse_arguments("linear", TITLE)
    settings = load_settings(arguments.config, Settings)
    draws = settings.quick if arguments.quick else settings.draws
    written = report(settings, find(settings, draws, arguments.out, arguments.processes))
    write_report(written, arguments.out)
    held = [claim["held"] for claim in written.results["claims"]]
    print(f"{sum(held)} of {len(held)} claims held; wrote {arguments.out / 'linear.md'}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
