"""Privileged features distillation of linear models: closed forms against simulation (Yang et al. 2022, section 5).

linear_simulation.py simulates; linear_theory.py has the closed forms.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.pfd.linear_simulation import (
    CONFIDENCE,
    SIMULATION_VERSION,
    Findings,
    LinearSettings,
    Simulated,
    chunk_cells,
    gather_findings,
    simulate,
)
from experiments.pfd.linear_theory import WHERE_THEY_DIFFER
from experiments.runner.experiment import Experiment
from experiments.runner.report import Claim, claims_table, draw_line, panels, percent
from trainer.evaluation.markdown_table import markdown_table

LARGEST_GAP, LEAST_DRAWS = 0.05, 40_000  # of the claim on leading terms


# --- what was to be shown, each with the rule that decides it


def _closeness_claims(found: Findings) -> list[Claim]:
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


def _shape_claims(found: Findings) -> list[Claim]:
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


def _raw(settings: LinearSettings, found: Findings) -> dict[str, Any]:
    return {
        "columns": ["least squares", *(f"PFD, d_z = {d_z}" for d_z in range(len(settings.effects) + 1))],
        "mean_squared_errors_by_chunk": {
            f"n = {s.world.labelled}, m = {s.world.unlabelled}, sigma = {s.world.sigma:g}": s.chunks.tolist()
            for s in found.all
        },
    }


def _body(_: LinearSettings, found: Findings, claims: Sequence[Claim], _quick: bool) -> list[str]:
    example, world, all_of_u = found.example, found.example.world, found.example.world.hidden
    effects = ", ".join(f"{effect:g}" for effect in world.effects)
    few = "" if found.draws >= LEAST_DRAWS else " **These are too few draws to judge the claims by.**"
    return [
        f"Every draw is simulated; a setting has {found.draws:,} in {len(example.chunks)} chunks. An error is a mean "
        f"|w - w*|², ± one standard error over chunks; brackets are {CONFIDENCE:.0%} paired bootstrap intervals over "
        f"chunks.{few}",
        claims_table(claims),
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
    return markdown_table(head, rows)


def _figure(_: LinearSettings, found: Findings) -> Figure:
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


EXPERIMENT = Experiment(
    name="linear",
    title="Linear models: Theorems 1 and 2 and Example 1 of Yang et al. 2022",
    settings=LinearSettings,
    cells=lambda settings, _out, _quick: chunk_cells(settings),
    gather=lambda settings, _, results: gather_findings(settings, results),
    claims=lambda _, found: [*_closeness_claims(found), *_shape_claims(found)],
    raw=_raw,
    body=_body,
    figure=_figure,
    caption="PFD's error by privileged features and by unlabelled examples: closed forms and simulation",
    packages=("numpy",),
    work=simulate,
    version=SIMULATION_VERSION,
    quick_settings=lambda settings: settings.model_copy(update={"draws": settings.quick}),
)
