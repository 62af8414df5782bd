"""BM25 against hand arithmetic: idf, saturation, length, stemming, and texts without words."""

import math

import numpy as np
import pytest

from trainer.evaluation.bm25 import GRID, Bm25, Bm25Settings

TITLES = ["red sofa", "red lamp with red shade", "oak table"]  # 2, 5 and 2 words
MEAN = 3.0


def idf(documents: int) -> float:
    return math.log(1 + (3 - documents + 0.5) / (documents + 0.5))


def weight(count: int, length: int, k1: float, b: float) -> float:
    """How much an occurrence counts; bm25s, like Lucene, leaves out the constant factor k1 + 1."""
    return count / (count + k1 * (1 - b + b * length / MEAN))


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.4, 0.0), (2.0, 1.0)])
def test_scores_equal_hand_arithmetic(k1: float, b: float) -> None:
    (found,) = Bm25(TITLES).scores(["red sofa"], [TITLES], Bm25Settings(k1, b))
    red, sofa = idf(2), idf(1)
    expected = [(red + sofa) * weight(1, 2, k1, b), red * weight(2, 5, k1, b), 0.0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_each_query_scores_the_titles_it_is_given_in_their_order() -> None:
    bm25 = Bm25(TITLES)
    first, second, again = bm25.scores(["oak", "sofa", "oak"], [TITLES[::-1], TITLES[:1], TITLES[:2]], Bm25Settings())
    assert (first > 0).tolist() == [True, False, False]
    assert second.shape == (1,)
    assert again.tolist() == [0.0, 0.0]


def test_words_match_by_their_stem_whatever_their_case() -> None:
    titles = ["Steel Brackets", "steel door"]
    (plain,) = Bm25(titles).scores(["bracket"], [titles], Bm25Settings())
    (stemmed,) = Bm25(titles, "english").scores(["bracket"], [titles], Bm25Settings())
    assert plain.tolist() == [0.0, 0.0]
    assert (stemmed > 0).tolist() == [True, False]


def test_texts_without_a_known_word_score_0() -> None:
    for titles in (["..."], ["", "-"], ["sofa"]):
        for query in ("", "!?", "zebra"):
            (found,) = Bm25(titles).scores([query], [titles], Bm25Settings())
            assert found.tolist() == [0.0] * len(titles)


def test_tuning_tries_as_many_settings_as_a_student_is_given() -> None:
    assert len(GRID) == len(set(GRID)) == 20
    assert Bm25Settings() in GRID
