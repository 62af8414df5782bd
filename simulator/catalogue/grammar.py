"""Types, invented brands and series, and the codes of all attribute values of the simulated shop."""

import random
from dataclasses import dataclass
from enum import IntEnum

from simulator.catalogue.product_types import ProductType, product_types
from simulator.catalogue.words import AUDIENCES, CODAS, COLOUR_SHADES, MATERIALS, ONSETS, SIZES, TRAITS, VOWELS


class Attribute(IntEnum):
    """Columns of an attribute row: codes that a product has or a query states, -1 for none."""

    BRAND = 0
    SERIES = 1
    COLOUR = 2  # the family
    SHADE = 3
    MATERIAL = 4  # the family
    SUBSTANCE = 5  # the material itself
    SIZE = 6
    AUDIENCE = 7
    TRAIT = 8
    FITS = 9  # accessories only: series of the main type that they fit


@dataclass(frozen=True, slots=True)
class Series:
    """A product line of one type and one brand."""

    name: str
    type: int
    brand: int


@dataclass(frozen=True, slots=True)
class Grammar:
    """The values behind the codes: a code is an index into its list."""

    types: tuple[ProductType, ...]
    brands: tuple[str, ...]
    brands_of_type: tuple[tuple[int, ...], ...]
    series: tuple[Series, ...]
    series_of_type: tuple[tuple[int, ...], ...]  # empty for accessories
    main_types: tuple[int, ...]  # by type: the type that it is an accessory of, or -1
    related_types: tuple[tuple[int, ...], ...]  # the family, its accessories, an accessory's main type
    colours: tuple[str, ...]
    shades: tuple[tuple[str, int], ...]  # word and code of the family
    materials: tuple[str, ...]
    substances: tuple[tuple[str, int], ...]  # word and code of the family
    sizes: tuple[tuple[str, ...], ...]  # the notations of each size
    sizes_of_type: tuple[tuple[int, ...], ...]
    audiences: tuple[str, ...]
    traits: tuple[str, ...]


def build_grammar(seed: int, brands_per_department: int, series_per_type: int) -> Grammar:
    """Builds the grammar; names depend only on the arguments. brands_per_department, series_per_type: 1 or more."""
    rng = random.Random(f"{seed}/grammar")
    types = product_types()
    names = _InventedNames(rng, taken=_words_in_use(types))
    departments = list(dict.fromkeys(product_type.department for product_type in types))
    brands_of = {
        department: tuple(range(index * brands_per_department, (index + 1) * brands_per_department))
        for index, department in enumerate(departments)
    }
    brands = tuple(names.next() for _ in range(len(departments) * brands_per_department))
    series: list[Series] = []
    series_of_type: list[tuple[int, ...]] = []
    for code, product_type in enumerate(types):
        count = 0 if product_type.accessory_of else series_per_type
        series_of_type.append(tuple(range(len(series), len(series) + count)))
        series += [Series(names.next(), code, rng.choice(brands_of[product_type.department])) for _ in range(count)]
    plain_names = {product_type.names[0]: code for code, product_type in enumerate(types)}
    main_types = tuple(
        plain_names[product_type.accessory_of] if product_type.accessory_of else -1 for product_type in types
    )
    schemes = _codes_by_scheme()
    return Grammar(
        types=types,
        brands=brands,
        brands_of_type=tuple(brands_of[product_type.department] for product_type in types),
        series=tuple(series),
        series_of_type=tuple(series_of_type),
        main_types=main_types,
        related_types=_related(types, main_types),
        colours=tuple(COLOUR_SHADES),
        shades=tuple((shade, family) for family, shades in enumerate(COLOUR_SHADES.values()) for shade in shades),
        materials=tuple(MATERIALS),
        substances=tuple((one, family) for family, ones in enumerate(MATERIALS.values()) for one in ones),
        sizes=tuple(size for sizes in SIZES.values() for size in sizes),
        sizes_of_type=tuple(schemes[product_type.sizes] if product_type.sizes else () for product_type in types),
        audiences=tuple(AUDIENCES),
        traits=tuple(TRAITS),
    )


def _codes_by_scheme() -> dict[str, tuple[int, ...]]:
    codes, first = {}, 0
    for scheme, sizes in SIZES.items():
        codes[scheme] = tuple(range(first, first + len(sizes)))
        first += len(sizes)
    return codes


def _related(types: tuple[ProductType, ...], main_types: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    related = []
    for code, product_type in enumerate(types):
        related.append(
            tuple(
                other
                for other, other_type in enumerate(types)
                if other != code
                and (product_type.family == other_type.family or main_types[other] == code or main_types[code] == other)
            )
        )
    return tuple(related)


def _words_in_use(types: tuple[ProductType, ...]) -> set[str]:
    return {word for product_type in types for name in product_type.names for word in name.split()}


class _InventedNames:
    """Generates distinct names of two or three syllables that differ from the shop's words."""

    def __init__(self, rng: random.Random, taken: set[str]) -> None:
        self._rng = rng
        self._taken = taken

    def next(self) -> str:
        rng = self._rng
        while True:
            syllables = [rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.choice((2, 2, 3)))]
            name = "".join(syllables) + rng.choice(CODAS)
            if len(name) >= 5 and name not in self._taken:
                self._taken.add(name)
                return name
