"""Which recipe is recommended, and the reason, on values that can be checked by hand."""

import numpy as np
import pytest

from trainer.evaluation.metrics import PairedBootstrap
from trainer.evaluation.recommendation import Candidate, recommend

GROUPS = 400
BOOTSTRAP = PairedBootstrap(GROUPS, 500, 0.95, seed=1)


def candidate(name: str, mean: float, models: int, distilled: bool = False, noise: float = 0.0) -> Candidate:
    """Values with this mean; noise: deviation of what differs from other candidates by chance."""
    around = np.random.default_rng(len(name)).normal(0.0, noise, GROUPS) if noise else np.zeros(GROUPS)
    return Candidate(name, mean + around - around.mean(), models, distilled)


def test_the_best_recipe_is_recommended_if_it_is_surely_above_the_cheaper_ones():
    found = recommend([candidate("plain", 0.50, 1), candidate("student", 0.55, 4, distilled=True)], [], BOOTSTRAP)
    assert found.recipe == "student"
    # 0.55 / 0.50 is 1.1, in every resample
    assert found.reasons == (
        "student has the highest mean, and no recipe of fewer models is level with it.",
        "The best distilled student, student, is above plain (+10.0% [+10.0%, +10.0%]).",
    )


def test_the_cheapest_of_those_that_noise_cannot_tell_from_the_best_is_recommended():
    recipes = [
        candidate("plain", 0.40, 1),
        candidate("pretrained", 0.500, 1, noise=0.1),
        candidate("student", 0.501, 4, distilled=True, noise=0.1),
    ]
    found = recommend(recipes, [], BOOTSTRAP)
    assert found.recipe == "pretrained"
    assert found.reasons[0].startswith(
        "student has the highest mean, but is not above pretrained by more than noise (+0.2% ["
    )
    assert found.reasons[0].endswith("which trains 1 model instead of 4 models.")
    assert found.reasons[1].startswith("The best distilled student, student, cannot be told from pretrained (+0.2%")


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (0.4, "plain is above bm25, which needs no training (+25.0% [+25.0%, +25.0%])."),
        (0.8, "plain is below bm25, which needs no training (-37.5% [-37.5%, -37.5%])."),
    ],
)
def test_the_recommended_recipe_is_compared_with_the_best_reference(reference: float, reason: str):
    references = [candidate("cosine", 0.3, 0), candidate("bm25", reference, 0)]
    assert recommend([candidate("plain", 0.5, 1)], references, BOOTSTRAP).reasons[-1] == reason


def test_of_two_recipes_of_one_model_the_higher_mean_is_recommended():
    recipes = [candidate("one", 0.500, 1, noise=0.1), candidate("three", 0.501, 1, noise=0.1)]
    assert recommend(recipes, [], BOOTSTRAP).recipe == "three"
