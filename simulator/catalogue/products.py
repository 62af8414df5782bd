"""The simulated shop's products: their attributes, and titles that state some of them."""

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import Field

from features.errors import InputError
from features.task import Section
from simulator.catalogue.grammar import Attribute, Grammar
from simulator.catalogue.words import AUDIENCES, FILLERS, TRAITS
from simulator.shop import SimulatedProduct

Share = Field(ge=0, le=1)
AttributeCodes = npt.NDArray[np.int16]


class ProductsConfig(Section):
    """Number of products and content of their titles. Shares are probabilities."""

    count: int = Field(default=30000, ge=100, le=2_000_000)  # products
    brands_per_department: int = Field(default=8, ge=1, le=200)  # brands
    series_per_type: int = Field(default=4, ge=1, le=50)  # product lines per type, except accessories
    type_exponent: float = Field(default=0.5, ge=0, le=3)  # Zipf exponent of the number of products per type
    series_share: float = Field(default=0.75, ge=0, le=1)  # share of main types' products that belong to a series
    # share without a type word, of titles that name a series
    type_word_omitted: float = Field(default=0.68, ge=0, le=1)
    synonym_share: float = Field(default=0.45, ge=0, le=1)  # share of title type words that are synonyms
    brand_stated: float = Field(default=0.85, ge=0, le=1)  # share of titles that name the brand
    attribute_stated: float = Field(default=0.85, ge=0, le=1)  # share of a product's attributes that its title states
    filler_share: float = Field(default=0.5, ge=0, le=1)  # share of titles with an uninformative phrase


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All products of the shop.

    products: rows of the product table. types: int16 [products].
    codes: int16 [products, attributes], columns as in Attribute.
    second_traits: int16 [products], a further trait, -1 for none.
    typeless: bool [products], True if the title has no type word.
    """

    grammar: Grammar
    products: tuple[SimulatedProduct, ...]
    types: AttributeCodes
    codes: AttributeCodes
    second_traits: AttributeCodes
    typeless: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _DrawnProduct:
    type: int
    codes: list[int]
    second_trait: int


def draw_catalogue(grammar: Grammar, config: ProductsConfig, seed: int) -> Catalogue:
    """Draws `config.count` products with distinct titles. Errors: InputError when the grammar allows fewer."""
    rng = random.Random(f"{seed}/products")
    popularity = [1 / (1 + rank) ** config.type_exponent for rank in range(len(grammar.types))]
    rng.shuffle(popularity)
    chosen = rng.choices(range(len(grammar.types)), weights=popularity, k=2 * config.count)
    drawn: list[_DrawnProduct] = []
    titles: dict[str, bool] = {}
    for kind in chosen:
        product = _draw(kind, grammar, config, rng)
        title, typeless = _title(product, grammar, config, rng)
        if title not in titles:
            titles[title] = typeless
            drawn.append(product)
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
            SimulatedProduct(f"p{index:0{width}d}", title, _shown_attributes(product, grammar, rng))
            for index, (product, title) in enumerate(zip(drawn, titles, strict=True))
        ),
        types=np.array([product.type for product in drawn], dtype=np.int16),
        codes=np.array([product.codes for product in drawn], dtype=np.int16),
        second_traits=np.array([product.second_trait for product in drawn], dtype=np.int16),
        typeless=np.array(list(titles.values())),
    )


def _draw(kind: int, grammar: Grammar, config: ProductsConfig, rng: random.Random) -> _DrawnProduct:
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
        of_family = [code for code, (_, material_family) in enumerate(grammar.substances) if material_family == family]
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
    return _DrawnProduct(kind, codes, grammar.traits.index(second) if rng.random() < 0.5 else -1)


def _title(product: _DrawnProduct, grammar: Grammar, config: ProductsConfig, rng: random.Random) -> tuple[str, bool]:
    """The title, and whether it lacks a type word."""
    series = product.codes[Attribute.SERIES]
    typeless = series >= 0 and rng.random() < config.type_word_omitted
    head = [grammar.series[series].name] if series >= 0 else []
    if not typeless:
        names = grammar.types[product.type].names
        synonym = len(names) > 1 and rng.random() < config.synonym_share
        head.append(rng.choice(names[1:]) if synonym else names[0])
    if rng.random() < config.brand_stated:
        head.insert(0, grammar.brands[product.codes[Attribute.BRAND]])
    details = [words for words in _details(product, grammar, rng) if rng.random() < config.attribute_stated]
    rng.shuffle(details)
    if (fits := product.codes[Attribute.FITS]) >= 0:
        details.insert(0, _fits_phrase(fits, grammar, rng))
    if rng.random() < config.filler_share:
        details.append(rng.choice(FILLERS))
    first_detail = details.pop() if details and rng.random() < 0.3 else None  # some titles open with a detail
    title = " ".join([first_detail, *head] if first_detail else head).title()
    return ", ".join([title, *details]), typeless


def _details(product: _DrawnProduct, grammar: Grammar, rng: random.Random) -> list[str]:
    codes = product.codes
    shade, family = grammar.shades[codes[Attribute.SHADE]]
    colour = grammar.colours[family]
    details = [rng.choice((shade, shade, f"{shade} {colour}", colour))]
    if codes[Attribute.SUBSTANCE] >= 0:
        details.append(grammar.substances[codes[Attribute.SUBSTANCE]][0])
    if codes[Attribute.SIZE] >= 0:
        details.append(rng.choice(grammar.sizes[codes[Attribute.SIZE]]))
    if codes[Attribute.AUDIENCE] >= 0:
        details.append(rng.choice(AUDIENCES[grammar.audiences[codes[Attribute.AUDIENCE]]]))
    for trait in (codes[Attribute.TRAIT], product.second_trait):
        if trait >= 0:
            details.append(rng.choice(TRAITS[grammar.traits[trait]]))
    return details


def _fits_phrase(series_code: int, grammar: Grammar, rng: random.Random) -> str:
    """'for Velun phone': an accessory's title contains the main product's words."""
    series = grammar.series[series_code]
    main = rng.choice(grammar.types[series.type].names)
    return rng.choice((f"for {series.name} {main}", f"for {series.name}", f"compatible with {series.name} {main}"))


def _shown_attributes(product: _DrawnProduct, grammar: Grammar, rng: random.Random) -> dict[str, str | float]:
    """Additional columns of the product table, which do not affect behaviour."""
    lowest, highest = grammar.types[product.type].price
    price = lowest * (highest / lowest) ** rng.betavariate(2, 3)  # between the limits, on a log scale
    return {
        "brand": grammar.brands[product.codes[Attribute.BRAND]].title(),
        "price": round(price) - 0.01,
        "rating": round(1 + 4 * rng.betavariate(8, 2), 1),
    }
