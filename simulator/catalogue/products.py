"""The simulated shop's products: what each is, and the title that says it, more or less."""

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import Field

from beam_jobs.catalogue_grammar import Attribute, Grammar
from beam_jobs.catalogue_words import AUDIENCES, FILLERS, TRAITS
from beam_jobs.shop import Product
from features.errors import InputError
from features.task import Section

Share = Field(ge=0, le=1)
Codes = npt.NDArray[np.int16]


class ProductsConfig(Section):
    """How many products there are and what their titles tell. Shares are probabilities."""

    count: int = Field(default=30000, ge=100, le=2_000_000)  # products
    brands_per_department: int = Field(default=8, ge=1, le=200)  # brands
    series_per_type: int = Field(default=4, ge=1, le=50)  # product lines of each type that is no accessory
    type_exponent: float = Field(default=0.5, ge=0, le=3)  # Zipf exponent of how many products a type has
    series_share: float = Field(default=0.75, ge=0, le=1)  # of the main types' products: those that belong to a series
    type_word_omitted: float = Field(
        default=0.68, ge=0, le=1
    )  # of the titles that name a series: those without a type word
    synonym_share: float = Field(default=0.45, ge=0, le=1)  # of the type words in titles: a synonym, not the plain name
    brand_stated: float = Field(default=0.85, ge=0, le=1)  # of the titles
    attribute_stated: float = Field(default=0.85, ge=0, le=1)  # of the attributes that a product has
    filler_share: float = Field(default=0.5, ge=0, le=1)  # of the titles: a phrase that says nothing of the product


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What exists in the shop.

    products: the table's rows. types: int16 [products]. codes: int16 [products, attributes], columns as in Attribute.
    second_traits: int16 [products], a further trait, -1 for none.
    typeless: bool [products], True where no type word stands in the title.
    """

    grammar: Grammar
    products: tuple[Product, ...]
    types: Codes
    codes: Codes
    second_traits: Codes
    typeless: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Drawn:
    type: int
    codes: list[int]
    second_trait: int


def draw_catalogue(grammar: Grammar, config: ProductsConfig, seed: int) -> Catalogue:
    """`config.count` products with distinct titles. Errors: InputError when the grammar cannot make that many."""
    rng = random.Random(f"{seed}/products")
    popularity = [1 / (1 + rank) ** config.type_exponent for rank in range(len(grammar.types))]
    rng.shuffle(popularity)
    chosen = rng.choices(range(len(grammar.types)), weights=popularity, k=2 * config.count)
    drawn: list[_Drawn] = []
    titles: dict[str, bool] = {}
    for kind in chosen:
        one = _draw(kind, grammar, config, rng)
        title, typeless = _title(one, grammar, config, rng)
        if title not in titles:
            titles[title] = typeless
            drawn.append(one)
            if len(drawn) == config.count:
                break
    else:
        raise InputError(
            f"simulator.catalogue.products.count is {config.count}, but only {len(drawn)} distinct titles came of "
            "twice as many draws: lower the count, or raise brands_per_department and series_per_type"
        )
    width = len(str(config.count - 1))
    return Catalogue(
        grammar=grammar,
        products=tuple(
            Product(f"p{index:0{width}d}", title, _shown_attributes(one, grammar, rng))
            for index, (one, title) in enumerate(zip(drawn, titles, strict=True))
        ),
        types=np.array([one.type for one in drawn], dtype=np.int16),
        codes=np.array([one.codes for one in drawn], dtype=np.int16),
        second_traits=np.array([one.second_trait for one in drawn], dtype=np.int16),
        typeless=np.array(list(titles.values())),
    )


def _draw(kind: int, grammar: Grammar, config: ProductsConfig, rng: random.Random) -> _Drawn:
    product_type = grammar.types[kind]
    codes = [-1] * len(Attribute)
    lines = grammar.series_of_type[kind]
    if lines and rng.random() < config.series_share:
        codes[Attribute.SERIES] = rng.choice(lines)
        codes[Attribute.BRAND] = grammar.series[codes[Attribute.SERIES]].brand
    else:
        codes[Attribute.BRAND] = rng.choice(grammar.brands_of_type[kind])
    codes[Attribute.SHADE] = rng.randrange(len(grammar.shades))
    codes[Attribute.COLOUR] = grammar.shades[codes[Attribute.SHADE]][1]
    if product_type.materials:
        codes[Attribute.MATERIAL] = family = grammar.materials.index(rng.choice(product_type.materials))
        of_family = [code for code, (_, own) in enumerate(grammar.substances) if own == family]
        codes[Attribute.SUBSTANCE] = rng.choice(of_family)
    if grammar.sizes_of_type[kind]:
        codes[Attribute.SIZE] = rng.choice(grammar.sizes_of_type[kind])
    if product_type.audiences:
        codes[Attribute.AUDIENCE] = grammar.audiences.index(rng.choice(product_type.audiences))
    first, second = rng.sample(product_type.traits, 2)
    codes[Attribute.TRAIT] = grammar.traits.index(first)
    main = grammar.main_types[kind]
    if main >= 0:
        codes[Attribute.FITS] = rng.choice(grammar.series_of_type[main])
    return _Drawn(kind, codes, grammar.traits.index(second) if rng.random() < 0.5 else -1)


def _title(one: _Drawn, grammar: Grammar, config: ProductsConfig, rng: random.Random) -> tuple[str, bool]:
    """The title and whether it lacks a type word."""
    series = one.codes[Attribute.SERIES]
    typeless = series >= 0 and rng.random() < config.type_word_omitted
    head = [grammar.series[series].name] if series >= 0 else []
    if not typeless:
        names = grammar.types[one.type].names
        synonym = len(names) > 1 and rng.random() < config.synonym_share
        head.append(rng.choice(names[1:]) if synonym else names[0])
    if rng.random() < config.brand_stated:
        head.insert(0, grammar.brands[one.codes[Attribute.BRAND]])
    details = [words for words in _details(one, grammar, rng) if rng.random() < config.attribute_stated]
    rng.shuffle(details)
    if (fits := one.codes[Attribute.FITS]) >= 0:
        details.insert(0, _made_for(fits, grammar, rng))
    if rng.random() < config.filler_share:
        details.append(rng.choice(FILLERS))
    before = details.pop() if details and rng.random() < 0.3 else None  # some titles open with a detail
    title = " ".join([before, *head] if before else head).title()
    return ", ".join([title, *details]), typeless


def _details(one: _Drawn, grammar: Grammar, rng: random.Random) -> list[str]:
    codes = one.codes
    shade, family = grammar.shades[codes[Attribute.SHADE]]
    colour = grammar.colours[family]
    details = [rng.choice((shade, shade, f"{shade} {colour}", colour))]
    if codes[Attribute.SUBSTANCE] >= 0:
        details.append(grammar.substances[codes[Attribute.SUBSTANCE]][0])
    if codes[Attribute.SIZE] >= 0:
        details.append(rng.choice(grammar.sizes[codes[Attribute.SIZE]]))
    if codes[Attribute.AUDIENCE] >= 0:
        details.append(rng.choice(AUDIENCES[grammar.audiences[codes[Attribute.AUDIENCE]]]))
    for trait in (codes[Attribute.TRAIT], one.second_trait):
        if trait >= 0:
            details.append(rng.choice(TRAITS[grammar.traits[trait]]))
    return details


def _made_for(series_code: int, grammar: Grammar, rng: random.Random) -> str:
    """'for Velun phone': an accessory's title holds the main product's words."""
    series = grammar.series[series_code]
    main = rng.choice(grammar.types[series.type].names)
    return rng.choice((f"for {series.name} {main}", f"for {series.name}", f"compatible with {series.name} {main}"))


def _shown_attributes(one: _Drawn, grammar: Grammar, rng: random.Random) -> dict[str, str | float]:
    """Further columns of the product table. They do not touch simulated behaviour."""
    lowest, highest = grammar.types[one.type].price
    price = lowest * (highest / lowest) ** rng.betavariate(2, 3)  # between the two, on a log scale
    return {
        "brand": grammar.brands[one.codes[Attribute.BRAND]].title(),
        "price": round(price) - 0.01,
        "rating": round(1 + 4 * rng.betavariate(8, 2), 1),
    }
