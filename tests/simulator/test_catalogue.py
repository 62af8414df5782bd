import math
import random
from collections import Counter

import numpy as np
import pytest

from features.errors import InputError
from simulator.catalogue.grammar import Attribute, build_grammar
from simulator.catalogue.product_types import product_types
from simulator.catalogue.products import ProductsConfig, draw_catalogue
from simulator.catalogue.queries import QueriesConfig, draw_queries, misspell
from simulator.catalogue.shop import CatalogueConfig, CatalogueShop, MixConfig, first_distinct, grade_pairs
from simulator.catalogue.words import AUDIENCES, MATERIAL_WORDS, MATERIALS, SIZES, TRAITS, plural
from simulator.shop import TokenOverlap, UtilityConfig, tokens

SMALL = CatalogueConfig(products=ProductsConfig(count=4000), queries=QueriesConfig(count=800))


@pytest.fixture(scope="module")
def shop() -> CatalogueShop:
    return CatalogueShop(SMALL, UtilityConfig(), seed=7)


@pytest.fixture(scope="module")
def large_shop() -> CatalogueShop:
    config = CatalogueConfig(products=ProductsConfig(count=52_000), queries=QueriesConfig(count=21_000))
    return CatalogueShop(config, UtilityConfig(), seed=7)


def test_grammar_makes_fifty_thousand_products_and_twenty_thousand_queries(large_shop):
    assert len({product.title for product in large_shop.products}) == 52_000
    assert len({product.item_id for product in large_shop.products}) == 52_000
    assert len(set(large_shop.queries)) == 21_000


def test_about_two_titles_in_five_never_state_the_type(large_shop):
    catalogue = large_shop.catalogue
    assert 0.35 < catalogue.typeless.mean() < 0.48
    for index in np.flatnonzero(catalogue.typeless)[:2000]:
        names = catalogue.grammar.types[catalogue.types[index]].names
        head = catalogue.products[index].title.split(",")[0].lower()
        assert not any(head.endswith(name) for name in names)


def test_every_series_stands_for_one_type_and_one_brand(shop):
    catalogue = shop.catalogue
    codes, types = catalogue.codes, catalogue.types
    for code, series in enumerate(catalogue.grammar.series):
        members = codes[:, Attribute.SERIES] == code
        assert set(types[members]) <= {series.type}
        assert set(codes[members, Attribute.BRAND]) <= {series.brand}


def test_invented_names_are_distinct_and_no_word_of_the_shop():
    grammar = build_grammar(seed=7, brands_per_department=8, series_per_type=4)
    names = [*grammar.brands, *(series.name for series in grammar.series)]
    assert len(set(names)) == len(names)
    assert not set(names) & {word for kind in grammar.types for name in kind.names for word in name.split()}


def test_table_of_types_names_only_words_that_exist():
    types = product_types()
    plain_names = [kind.names[0] for kind in types]
    assert len(types) >= 120
    assert len({name for kind in types for name in kind.names}) == sum(len(kind.names) for kind in types)
    for kind in types:
        assert kind.accessory_of is None or kind.accessory_of in plain_names
        assert set(kind.materials) <= set(MATERIALS) == set(MATERIAL_WORDS)
        assert kind.sizes is None or kind.sizes in SIZES
        assert set(kind.audiences) <= set(AUDIENCES)
        assert set(kind.traits) <= set(TRAITS)
        assert len(kind.traits) >= 2
        assert 0 < kind.price[0] < kind.price[1]


def test_sizes_that_are_equal_share_one_code():
    assert ("2 l", "2000 ml", "2 liter", "68 oz") in SIZES["volume"]
    assert ("6 ft", "72 in", "72 inch", "183 cm") in SIZES["length"]
    for notations in SIZES.values():
        written = [notation for size in notations for notation in size]
        assert len(set(written)) == len(written)


# ---- relevance ----

SOFA, CHAIR, DRILL = 0, 1, 2
RELATED = np.array([[False, True, False], [True, False, False], [False, False, False]])


def row(**codes: int) -> list[int]:
    return [codes.get(attribute.name.lower(), -1) for attribute in Attribute]


def graded(stated: list[int], items: list[tuple[int, list[int]]], second_trait: int = -1) -> tuple[list, list]:
    """Grades and shares of items (type, codes) for a query for a sofa."""
    grades, share = grade_pairs(
        query_types=np.array([SOFA], dtype=np.int16),
        stated=np.array([stated], dtype=np.int16),
        item_types=np.array([[kind for kind, _ in items]], dtype=np.int16),
        codes=np.array([[codes for _, codes in items]], dtype=np.int16),
        second_traits=np.full((1, len(items)), second_trait, dtype=np.int16),
        related=RELATED,
    )
    return grades[0].tolist(), share[0].tolist()


def test_grades_by_type_and_stated_attributes():
    navy_sofa, rust_sofa = row(colour=0, shade=0, brand=4), row(colour=10, shade=44, brand=4)
    query = row(colour=0, brand=4)  # 'blue BRAND sofa'
    items = [(SOFA, navy_sofa), (SOFA, rust_sofa), (CHAIR, navy_sofa), (DRILL, navy_sofa), (DRILL, row())]
    assert graded(query, items) == ([3, 2, 1, 0, 0], [1.0, 0.5, 1.0, 1.0, 0.0])


def test_a_query_without_attributes_is_met_by_the_type_alone():
    assert graded(row(), [(SOFA, row(colour=3)), (CHAIR, row())]) == ([3, 1], [1.0, 1.0])


def test_another_shade_of_the_stated_one_matches_in_part():
    # 'navy sofa' states the family blue and the shade navy: a cobalt one has the first
    assert graded(row(colour=0, shade=0), [(SOFA, row(colour=0, shade=1))]) == ([2], [0.5])


def test_an_attribute_that_the_product_lacks_does_not_match_what_is_not_stated():
    assert graded(row(size=5), [(SOFA, row())]) == ([2], [0.0])


def test_either_of_two_traits_meets_a_stated_one():
    assert graded(row(trait=6), [(SOFA, row(trait=2))], second_trait=6) == ([3], [1.0])
    assert graded(row(trait=6), [(SOFA, row(trait=2))], second_trait=7) == ([2], [0.0])


def test_accessory_titles_hold_the_main_type_but_are_only_related(shop):
    catalogue = shop.catalogue
    plain_names = [kind.names[0] for kind in catalogue.grammar.types]
    phone, case = plain_names.index("phone"), plain_names.index("phone case")
    query = int(np.flatnonzero(shop.population.types == phone)[0])
    cases = np.flatnonzero(catalogue.types == case)
    named = [i for i in cases if any(name in catalogue.products[i].title.lower() for name in ("phone", "mobile"))]
    assert named
    grades, _ = shop.grade(np.array([query]), np.array([named]))
    assert set(grades[0]) == {1}


def test_every_query_describes_some_product(shop):
    sample = shop.candidates(np.arange(len(shop.queries)), 16, np.random.default_rng(0))
    assert (sample.grades == 3).any(axis=1).mean() > 0.9
    for query in range(0, len(shop.queries), 40):
        everything = np.arange(len(shop.products))[None]
        assert (shop.grade(np.array([query]), everything)[0] == 3).any()


def test_synonyms_ask_for_the_same_type(shop):
    heads: dict[int, set[str]] = {}
    for text, kind, stated in zip(shop.queries, shop.population.types, shop.population.stated, strict=True):
        if (stated < 0).all():
            heads.setdefault(int(kind), set()).add(text)
    assert any(len(texts) >= 3 for texts in heads.values())


# ---- candidates ----


def test_candidates_are_distinct_and_differ_between_requests(shop):
    drawn = shop.candidates(np.zeros(200, dtype=np.int64), 16, np.random.default_rng(1))
    assert all(len(set(items)) == 16 for items in drawn.items.tolist())
    assert len({tuple(sorted(items)) for items in drawn.items.tolist()}) > 190
    assert drawn.utilities.min() >= 0
    assert drawn.utilities.max() <= 1


def test_candidates_hold_all_four_grades(shop):
    queries = np.random.default_rng(2).integers(0, len(shop.queries), 3000)
    drawn = shop.candidates(queries, 16, np.random.default_rng(3))
    assert (np.bincount(drawn.grades.ravel(), minlength=4) / drawn.grades.size > 0.1).all()


def test_first_distinct_keeps_the_order_drawn():
    assert first_distinct(np.array([[5, 3, 5, 3, 8, 5, 1]]), 4, 10).tolist() == [[5, 3, 8, 1]]


def test_first_distinct_fills_up_round_the_catalogue():
    assert first_distinct(np.array([[8, 8, 0, 8]]), 4, 10).tolist() == [[8, 0, 9, 1]]


# ---- what lexical matching can and cannot do ----


def bm25_scores(query: list[str], titles: list[list[str]], frequency: Counter, count: int, mean: float) -> np.ndarray:
    """BM25 with k1 = 1.2, b = 0.75 over a catalogue of `count` titles of `mean` tokens."""
    scores = []
    for title in titles:
        found, score = Counter(title), 0.0
        for word in set(query):
            rarity = math.log(1 + (count - frequency[word] + 0.5) / (frequency[word] + 0.5))
            score += rarity * found[word] * 2.2 / (found[word] + 1.2 * (0.25 + 0.75 * len(title) / mean))
        scores.append(score)
    return np.array(scores)


def ndcg8(grades: np.ndarray, scores: np.ndarray) -> float:
    discounts = 1 / np.log2(np.arange(8) + 2)
    gains = 2.0 ** grades[np.argsort(-scores, kind="stable")[:8]] - 1
    ideal = 2.0 ** np.sort(grades)[::-1][:8] - 1
    return float((gains * discounts).sum() / (ideal * discounts).sum())


def test_bm25_stays_well_below_the_oracle_and_above_random_order():
    demo = CatalogueShop(CatalogueConfig(products=ProductsConfig(count=10_000)), UtilityConfig(), seed=7)
    rng = np.random.default_rng(4)
    queries = rng.integers(0, len(demo.queries), 1500)
    drawn = demo.candidates(queries, 16, rng)
    titles = [tokens(product.title) for product in demo.products]
    frequency = Counter(word for title in titles for word in set(title))
    mean = sum(map(len, titles)) / len(titles)
    found: dict[str, list[float]] = {"random": [], "bm25": [], "oracle": []}
    for query, items, grades in zip(queries, drawn.items, drawn.grades, strict=True):
        if not grades.any():
            continue
        words = tokens(demo.queries[query])
        scores = bm25_scores(words, [titles[item] for item in items], frequency, len(titles), mean)
        found["bm25"].append(ndcg8(grades, scores))
        found["random"].append(ndcg8(grades, rng.random(16)))
        found["oracle"].append(ndcg8(grades, grades))
    means = {name: float(np.mean(values)) for name, values in found.items()}
    print("\nrelevance NDCG@8:", ", ".join(f"{name} {value:.3f}" for name, value in means.items()))
    assert means["oracle"] == pytest.approx(1.0)
    assert means["random"] + 0.15 < means["bm25"] < 0.85


def test_token_overlap_is_the_share_of_query_tokens_in_the_title():
    overlap = TokenOverlap(["blue velvet sofa", "lamp"], ["Velvet Sofa, navy", "Desk lamp"])
    assert overlap.share(np.array([0, 1]), np.array([[0, 1], [1, 0]])).tolist() == [[2 / 3, 0.0], [1.0, 0.0]]


# ---- words ----


def test_plurals_of_type_names():
    singular = ["sofa", "wine glass", "paintbrush", "bookshelf", "puppy", "jeans", "cutlery", "toy"]
    assert [plural(name) for name in singular] == [
        "sofas", "wine glasses", "paintbrushes", "bookshelves", "puppies", "jeans", "cutlery", "toys",
    ]  # fmt: skip


def test_a_misspelt_word_keeps_its_first_letter_and_nearly_its_length():
    rng = random.Random(0)
    misspellings = {misspell("leather", rng) for _ in range(500)}
    assert {"laether", "leathher", "lether"} <= misspellings
    assert all(slip[0] == "l" and abs(len(slip) - 7) <= 1 for slip in misspellings)


def test_without_typos_and_shuffles_the_words_of_a_query_are_known():
    plain = QueriesConfig(count=300, typo_rate=0.0, shuffled_share=0.0)
    catalogue = draw_catalogue(build_grammar(7, 8, 4), ProductsConfig(count=2000), seed=7)
    grammar = catalogue.grammar
    known = {word for words in (*AUDIENCES.values(), *TRAITS.values(), *MATERIAL_WORDS.values()) for word in words}
    known |= {*grammar.brands, *grammar.colours, "for", *(series.name for series in grammar.series)}
    known |= {word for word, _ in (*grammar.shades, *grammar.substances)} | {
        word for size in grammar.sizes for word in size
    }
    known |= {form for kind in grammar.types for name in kind.names for form in (name, plural(name))}
    words = {word for phrase in known for word in phrase.split()}
    assert {word for text in draw_queries(catalogue, plain, 7).texts for word in text.split()} <= words


# ---- seeds and refusals ----


def test_the_same_seed_gives_the_same_shop_and_another_seed_another():
    small = CatalogueConfig(products=ProductsConfig(count=300), queries=QueriesConfig(count=60))
    first, again, other = (CatalogueShop(small, UtilityConfig(), seed) for seed in (1, 1, 2))
    assert first.products == again.products
    assert first.queries == again.queries
    assert first.products != other.products
    assert first.queries != other.queries


def test_a_mix_that_does_not_sum_to_one_is_refused():
    with pytest.raises(InputError, match=r"simulator\.catalogue\.candidates sums to 1\.3, expected 1"):
        CatalogueShop(CatalogueConfig(candidates=MixConfig(exact=0.5)), UtilityConfig(), seed=1)


def test_attribute_probabilities_that_do_not_sum_to_one_are_refused():
    config = CatalogueConfig(products=ProductsConfig(count=300), queries=QueriesConfig(attributes=(0.5, 0.2)))
    with pytest.raises(InputError, match="expected probabilities that sum to 1"):
        CatalogueShop(config, UtilityConfig(), seed=1)


def test_more_queries_than_the_catalogue_can_give_are_refused():
    bare = QueriesConfig(count=5000, attributes=(1.0,), typo_rate=0.0, series_alone=0.0, series_with_type=0.0)
    config = CatalogueConfig(products=ProductsConfig(count=300), queries=bare)
    with pytest.raises(InputError, match=r"queries\.count is 5000, but only \d+ distinct queries"):
        CatalogueShop(config, UtilityConfig(), seed=1)


def test_more_items_a_request_than_products_are_refused(shop):
    with pytest.raises(InputError, match="items_per_request is 5000, but the catalogue has 4000 products"):
        shop.candidates(np.array([0]), 5000, np.random.default_rng(0))
