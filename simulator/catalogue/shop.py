"""The built-in shop: candidates with grades from product attributes, not from titles."""

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from features.errors import InputError
from features.task import Section
from simulator.catalogue.grammar import Attribute, build_grammar
from simulator.catalogue.products import AttributeCodes, Catalogue, ProductsConfig, draw_catalogue
from simulator.catalogue.queries import QueriesConfig, QueryPopulation, draw_queries
from simulator.shop import BoolArray, Candidates, FloatArray, IntArray, SimulatedProduct, UtilityConfig

_SPARE_DRAWS = 0.75  # extra draws per slot, because draws may repeat an item
# columns through which an irrelevant product shares words with a query
_WORD_COLUMNS = (Attribute.BRAND, Attribute.COLOUR, Attribute.MATERIAL, Attribute.AUDIENCE)


class MixConfig(Section):
    """Probabilities of the sources that fill a slot of the candidate list; they sum to 1."""

    exact: float = Field(default=0.2, ge=0, le=1)  # the type and every stated attribute
    same_type: float = Field(default=0.3, ge=0, le=1)  # the type, random attributes
    related: float = Field(default=0.2, ge=0, le=1)  # the type's family, its accessories, its main type
    shared_word: float = Field(default=0.2, ge=0, le=1)  # any type, the stated brand, colour, material or audience
    any: float = Field(default=0.1, ge=0, le=1)  # any product


class CatalogueConfig(Section):
    """Options of the built-in catalogue."""

    products: ProductsConfig = ProductsConfig()
    queries: QueriesConfig = QueriesConfig()
    candidates: MixConfig = MixConfig()


@dataclass(frozen=True, slots=True)
class _Pools:
    """Concatenated lists of products; list i is items[first[i] : first[i] + size[i]]."""

    items: IntArray
    first: IntArray
    size: IntArray

    @classmethod
    def of(cls, lists: list[IntArray]) -> "_Pools":
        size = np.array([len(one) for one in lists], dtype=np.int64)
        items = np.concatenate([*lists, np.zeros(1, dtype=np.int64)])  # never empty, so that any index is valid
        return cls(items, np.concatenate([[0], np.cumsum(size)[:-1]]).astype(np.int64), size)

    def draw(self, which: IntArray, chance: FloatArray) -> IntArray:
        """Draws one product of list `which` ([requests]) for each chance in [0, 1) ([requests, n])."""
        place = self.first[which][:, None] + np.floor(chance * self.size[which][:, None]).astype(np.int64)
        drawn: IntArray = self.items[np.minimum(place, len(self.items) - 1)]
        return drawn


class CatalogueShop:
    """Products and queries of the built-in grammar; docs/simulator.md gives the formulas."""

    def __init__(self, config: CatalogueConfig, utility: UtilityConfig, seed: int) -> None:
        mix = config.candidates
        self._shares = np.array([mix.exact, mix.same_type, mix.related, mix.shared_word, mix.any])
        if abs(self._shares.sum() - 1) > 1e-6:
            raise InputError(
                f"simulator.catalogue.candidates sums to {self._shares.sum():g}, expected 1: correct the shares"
            )
        sizes = config.products
        grammar = build_grammar(seed, sizes.brands_per_department, sizes.series_per_type)
        self.catalogue: Catalogue = draw_catalogue(grammar, sizes, seed)
        self.population: QueryPopulation = draw_queries(self.catalogue, config.queries, seed)
        self._utility = utility
        self._related = np.zeros((len(grammar.types), len(grammar.types)), dtype=bool)
        for kind, others in enumerate(grammar.related_types):
            self._related[kind, list(others)] = True
        self._make_pools()

    @property
    def products(self) -> tuple[SimulatedProduct, ...]:
        return self.catalogue.products

    @property
    def queries(self) -> tuple[str, ...]:
        return self.population.texts

    def grade(self, queries: IntArray, items: IntArray) -> tuple[IntArray, FloatArray]:
        """True relevance of pairs, from product attributes.

        queries: [requests]; items: [requests, n].
        Returns grades [requests, n] in 0..3 and the share of stated attributes that match; see `grade_pairs`.
        """
        return grade_pairs(
            self.population.types[queries],
            self.population.stated[queries],
            self.catalogue.types[items],
            self.catalogue.codes[items],
            self.catalogue.second_traits[items],
            self._related,
        )

    def candidates(self, queries: IntArray, count: int, rng: np.random.Generator) -> Candidates:
        """`count` distinct products for each request, drawn from the mix of sources."""
        if count > len(self.products):
            raise InputError(
                f"simulator.items_per_request is {count}, but the catalogue has {len(self.products)} products: lower it"
            )
        columns = count + int(np.ceil(count * _SPARE_DRAWS))
        source = np.searchsorted(np.cumsum(self._shares)[:-1], rng.random((len(queries), columns)), side="right")
        chance = rng.random((len(queries), columns))
        types = self.population.types[queries].astype(np.int64)
        drawn = np.choose(
            source,
            [
                self._exact.draw(queries, chance),
                self._of_type.draw(types, chance),
                self._related_pools.draw(types, chance),
                self._word_pools.draw(self._word_pool_of(queries, rng), chance),
                np.floor(chance * len(self.products)).astype(np.int64),
            ],
        )
        items = first_distinct(drawn, count, len(self.products))
        grades, share = self.grade(queries, items)
        return Candidates(items, grades, self._utility.utilities(grades, share))

    def _make_pools(self) -> None:
        types, codes = self.catalogue.types, self.catalogue.codes
        everything = np.arange(len(types))
        by_type = [np.flatnonzero(types == kind) for kind in range(len(self._related))]
        self._of_type = _Pools.of([pool if len(pool) else everything for pool in by_type])
        related = [np.flatnonzero(np.isin(types, np.flatnonzero(row))) for row in self._related]
        self._related_pools = _Pools.of([pool if len(pool) else everything for pool in related])
        exact: list[IntArray] = [everything] * len(self.queries)
        for kind, pool in enumerate(by_type):
            of_kind = np.flatnonzero(self.population.types == kind)
            if len(of_kind):
                grades, _ = self.grade(of_kind, np.broadcast_to(pool, (len(of_kind), len(pool))))
                for query, row in zip(of_kind, grades, strict=True):
                    exact[query] = pool[row == 3]
        self._exact = _Pools.of(exact)
        words, self._first_word_pool = [everything], {}
        for column in _WORD_COLUMNS:
            self._first_word_pool[column] = len(words)
            words += [np.flatnonzero(codes[:, column] == code) for code in range(int(codes[:, column].max()) + 1)]
        self._word_pools = _Pools.of([pool if len(pool) else everything for pool in words])

    def _word_pool_of(self, queries: IntArray, rng: np.random.Generator) -> IntArray:
        """A random pool of each request's stated words; pool 0 (any product) if none is stated."""
        stated = self.population.stated[queries][:, list(_WORD_COLUMNS)].astype(np.int64)
        key = np.where(stated >= 0, rng.random(stated.shape), -1.0)
        column = key.argmax(axis=1)
        code = stated[np.arange(len(queries)), column]
        first = np.array([self._first_word_pool[one] for one in _WORD_COLUMNS])
        return np.where(code >= 0, first[column] + code, 0)


def grade_pairs(
    query_types: AttributeCodes,
    stated: AttributeCodes,
    item_types: AttributeCodes,
    codes: AttributeCodes,
    second_traits: AttributeCodes,
    related: BoolArray,
) -> tuple[IntArray, FloatArray]:
    """True relevance: 3 the type and every stated attribute, 2 the type, 1 a related type, 0 none of these.

    query_types: [requests]. stated: [requests, attributes], -1 if nothing is stated.
    item_types, second_traits: [requests, n]. codes: [requests, n, attributes]. related: [types, types].
    Returns grades [requests, n] and the share of stated attributes that match, in [0, 1]; 1 where none is stated.
    """
    stated_codes = stated[:, None, :]
    matches = stated_codes == codes
    matches[:, :, Attribute.TRAIT] |= stated_codes[:, :, Attribute.TRAIT] == second_traits
    is_stated = stated_codes >= 0
    stated_counts = is_stated.sum(axis=2)
    matched = (matches & is_stated).sum(axis=2)
    share = np.where(stated_counts > 0, matched / np.maximum(stated_counts, 1), 1.0)
    types = query_types[:, None]
    related_grade = related[types, item_types].astype(np.int64)
    grades = np.where(types == item_types, np.where(matched == stated_counts, 3, 2), related_grade)
    return grades, share


def first_distinct(drawn: IntArray, count: int, products: int) -> IntArray:
    """The first `count` distinct items of each row, in the order drawn.

    drawn: [requests, columns], items below `products`. A row with fewer distinct items is filled with the items that
    follow its first one, wrapping at the end of the catalogue.
    """
    order = np.argsort(drawn, axis=1, kind="stable")
    ordered = np.take_along_axis(drawn, order, axis=1)
    repeated = np.zeros(drawn.shape, dtype=bool)
    np.put_along_axis(repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    kept = np.argsort(repeated, axis=1, kind="stable")[:, :count]
    items = np.take_along_axis(drawn, kept, axis=1)
    for row in np.flatnonzero(_too_few_distinct(repeated, count)):
        items[row] = _fill_distinct(list(dict.fromkeys(drawn[row].tolist())), count, products)
    return items


def _too_few_distinct(repeated: BoolArray, count: int) -> BoolArray:
    lacking: BoolArray = (~repeated).sum(axis=1) < count
    return lacking


def _fill_distinct(items: list[int], count: int, products: int) -> list[int]:
    taken, following = set(items), items[0]
    while len(items) < count:
        following = (following + 1) % products
        if following not in taken:
            taken.add(following)
            items.append(following)
    return items[:count]
