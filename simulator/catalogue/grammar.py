"""What can exist in the simulated shop: types, invented brands and series, and the codes of every attribute value."""

import random
from dataclasses import dataclass
from enum import IntEnum

from beam_jobs.catalogue_words import AUDIENCES, CODAS, COLOURS, MATERIALS, ONSETS, SIZES, TRAITS, VOWELS
from beam_jobs.product_types import ProductType, product_types


class Attribute(IntEnum):
    """Columns of an attribute row. A product's row holds codes, -1 for what it lacks; a query's row what it states."""

    BRAND = 0
    SERIES = 1
    COLOUR = 2  # the family
    SHADE = 3
    MATERIAL = 4  # the family
    SUBSTANCE = 5  # the material itself
    SIZE = 6
    AUDIENCE = 7
    TRAIT = 8
    FITS = 9  # for accessories: the series of the main type that they are made for


@dataclass(frozen=True, slots=True)
class Series:
    """A product line: its name stands for one type of one brand."""

    name: str
    type: int
    brand: int


@dataclass(frozen=True, slots=True)
class Grammar:
    """Lists that give codes their meaning: the code is the index."""

    types: tuple[ProductType, ...]
    brands: tuple[str, ...]
    brands_of_type: tuple[tuple[int, ...], ...]
    series: tuple[Series, ...]
    series_of_type: tuple[tuple[int, ...], ...]  # empty for accessories
    main_types: tuple[int, ...]  # of each type: the type it is an accessory of, or -1
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
    """The same seed gives the same names. brands_per_department, series_per_type: 1 or more."""
    rng = random.Random(f"{seed}/grammar")
    types = product_types()
    names = _InventedNames(rng, taken=_words_in_use(types))
    departments = list(dict.fromkeys(kind.department for kind in types))
    brands_of = {
        department: tuple(range(place * brands_per_department, (place + 1) * brands_per_department))
        for place, department in enumerate(departments)
    }
    brands = tuple(names.next() for _ in range(len(departments) * brands_per_department))
    series: list[Series] = []
    series_of_type: list[tuple[int, ...]] = []
    for code, kind in enumerate(types):
        count = 0 if kind.accessory_of else series_per_type
        series_of_type.append(tuple(range(len(series), len(series) + count)))
        series += [Series(names.next(), code, rng.choice(brands_of[kind.department])) for _ in range(count)]
    plain_names = {kind.names[0]: code for code, kind in enumerate(types)}
    main_types = tuple(plain_names[kind.accessory_of] if kind.accessory_of else -1 for kind in types)
    schemes = _codes_by_scheme()
    return Grammar(
        types=types,
        brands=brands,
        brands_of_type=tuple(brands_of[kind.department] for kind in types),
        series=tuple(series),
        series_of_type=tuple(series_of_type),
        main_types=main_types,
        related_types=_related(types, main_types),
        colours=tuple(COLOURS),
        shades=tuple((shade, family) for family, shades in enumerate(COLOURS.values()) for shade in shades),
        materials=tuple(MATERIALS),
        substances=tuple((one, family) for family, ones in enumerate(MATERIALS.values()) for one in ones),
        sizes=tuple(size for sizes in SIZES.values() for size in sizes),
        sizes_of_type=tuple(schemes[kind.sizes] if kind.sizes else () for kind in types),
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
    for code, kind in enumerate(types):
        related.append(
            tuple(
                other
                for other, kind_of_other in enumerate(types)
                if other != code
                and (kind.family == kind_of_other.family or main_types[other] == code or main_types[code] == other)
            )
        )
    return tuple(related)


def _words_in_use(types: tuple[ProductType, ...]) -> set[str]:
    return {word for kind in types for name in kind.names for word in name.split()}


class _InventedNames:
    """Distinct names of two or three syllables that are no word of the shop."""

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
