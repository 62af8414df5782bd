"""Recommends one of several recipes from the values of each test group, and says why."""

from collections.abc import Sequence
from typing import NamedTuple

from trainer.evaluation.metrics import Floats, Interval, PairedBootstrap


class Candidate(NamedTuple):
    """A ranker that can be served.

    values: [groups], its metric on each test group, a mean over seeds. models: how many its training takes; 0 for
    a reference, which needs none.
    """

    name: str
    values: Floats
    models: int
    distilled: bool = False

    @property
    def mean(self) -> float:
        return float(self.values.mean())


class Recommendation(NamedTuple):
    """The recipe to serve, and the sentences that give the reason."""

    recipe: str
    reasons: tuple[str, ...]


def recommend(
    recipes: Sequence[Candidate], references: Sequence[Candidate], bootstrap: PairedBootstrap
) -> Recommendation:
    """Recommends the recipe that trains the fewest models among those that no other is surely above.

    A ranker is surely above another if the paired interval of its relative gain is above 0.
    recipes: at least one. references: rankers that need no training, such as BM25; may be empty.
    """
    best = max(recipes, key=lambda r: r.mean)
    gains = {r.name: bootstrap.relative_gain(best.values, r.values) for r in recipes if r is not best}
    level = [best, *(r for r in recipes if r is not best and gains[r.name].low <= 0.0)]
    chosen = min(level, key=lambda r: (r.models, -r.mean))
    if chosen is best:
        reasons = [f"{best.name} has the highest mean, and no recipe of fewer models is level with it."]
    else:
        reasons = [
            f"{best.name} has the highest mean, but is not above {chosen.name} by more than noise "
            f"({_text(gains[chosen.name])}), which trains {_models(chosen)} instead of {_models(best)}."
        ]
    distilled, plain = ([r for r in recipes if r.distilled == kind] for kind in (True, False))
    if distilled and plain:
        first, second = (max(group, key=lambda r: r.mean) for group in (distilled, plain))
        reasons.append(
            _compared(f"The best distilled student, {first.name},", first, f"{second.name}", second, bootstrap)
        )
    if references:
        reference = max(references, key=lambda r: r.mean)
        name = f"{reference.name}, which needs no training"
        reasons.append(_compared(chosen.name, chosen, name, reference, bootstrap))
    return Recommendation(chosen.name, tuple(reasons))


def _compared(name: str, ranker: Candidate, other_name: str, other: Candidate, bootstrap: PairedBootstrap) -> str:
    gain = bootstrap.relative_gain(ranker.values, other.values)
    if gain.low > 0.0:
        verdict = "is above"
    elif gain.high < 0.0:
        verdict = "is below"
    else:
        verdict = "cannot be told from"
    return f"{name} {verdict} {other_name} ({_text(gain)})."


def _models(candidate: Candidate) -> str:
    return f"{candidate.models} model{'s' if candidate.models > 1 else ''}"


def _text(gain: Interval) -> str:
    return f"{gain.value:+.1%} [{gain.low:+.1%}, {gain.high:+.1%}]"
