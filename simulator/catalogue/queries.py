"""Simulated queries: a type word, synonym or series, some attributes, plural forms and misspellings."""

import random
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from features.errors import InputError
from features.task import Section
from simulator.catalogue.grammar import Attribute, Grammar
from simulator.catalogue.products import AttributeCodes, Catalogue
from simulator.catalogue.words import AUDIENCES, MATERIAL_WORDS, TRAITS, plural

_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_MIN_MISSPELT_LETTERS = 5  # shorter words are never misspelt


class QueriesConfig(Section):
    """The population of distinct queries, drawn once. Shares are probabilities."""

    count: int = Field(default=12000, ge=10, le=1_000_000)  # distinct queries
    # probability of stating 0, 1, 2, ... attributes; sums to 1
    attributes: tuple[float, ...] = (
        0.25,
        0.35,
        0.25,
        0.15,
    )
    # the series' name without a type word, where there is a series
    series_alone: float = Field(default=0.12, ge=0, le=1)
    series_with_type: float = Field(default=0.10, ge=0, le=1)  # the series' name and a type word
    synonym_share: float = Field(default=0.4, ge=0, le=1)  # share of type words that are synonyms
    plural_share: float = Field(default=0.25, ge=0, le=1)  # share of type words in the plural
    shade_share: float = Field(default=0.3, ge=0, le=1)  # share of stated colours given as the shade
    substance_share: float = Field(default=0.6, ge=0, le=1)  # share of stated materials given as 'oak', not 'wooden'
    typo_rate: float = Field(default=0.08, ge=0, le=1)  # share of misspelt words, of words of 5 letters or more
    shuffled_share: float = Field(default=0.15, ge=0, le=1)  # share of queries with word groups in random order


@dataclass(frozen=True, slots=True)
class QueryPopulation:
    """The distinct queries of the shop.

    texts: distinct. types: int16 [queries]. stated: int16 [queries, attributes], -1 where nothing is stated.
    """

    texts: tuple[str, ...]
    types: AttributeCodes
    stated: AttributeCodes


# relative probability that shoppers state an attribute
_ATTRIBUTE_WEIGHTS = {
    Attribute.BRAND: 1.0, Attribute.COLOUR: 1.0, Attribute.MATERIAL: 0.7, Attribute.SIZE: 0.8,
    Attribute.AUDIENCE: 1.0, Attribute.TRAIT: 0.7, Attribute.FITS: 2.5,
}  # fmt: skip

# the order of word groups; -1 is the head (type word or series)
_GROUP_ORDER = {
    Attribute.AUDIENCE: -6, Attribute.BRAND: -5, Attribute.TRAIT: -4, Attribute.COLOUR: -3, Attribute.MATERIAL: -2,
    Attribute.SIZE: 1, Attribute.FITS: 2,
}  # fmt: skip
_HEAD_ORDER = -1


def draw_queries(catalogue: Catalogue, config: QueriesConfig, seed: int) -> QueryPopulation:
    """Draws `config.count` distinct queries, each describing some product of the catalogue.

    Errors: InputError when the attributes' probabilities do not sum to 1, or the grammar allows fewer queries.
    """
    if abs(sum(config.attributes) - 1) > 1e-6 or min(config.attributes) < 0:
        raise InputError(
            f"simulator.catalogue.queries.attributes is {list(config.attributes)}, in sum "
            f"{sum(config.attributes):g}: expected probabilities that sum to 1"
        )
    rng = random.Random(f"{seed}/queries")
    drawn: dict[str, tuple[int, list[int]]] = {}
    for _ in range(4 * config.count):
        index = rng.randrange(len(catalogue.products))
        kind, codes = int(catalogue.types[index]), catalogue.codes[index].tolist()
        text, stated = _query(kind, codes, catalogue.grammar, config, rng)
        drawn.setdefault(text, (kind, stated))
        if len(drawn) == config.count:
            break
    else:
        raise InputError(
            f"simulator.catalogue.queries.count is {config.count}, but only {len(drawn)} distinct queries came of "
            "four times as many draws: lower the count, or raise simulator.catalogue.products.count"
        )
    return QueryPopulation(
        texts=tuple(drawn),
        types=np.array([kind for kind, _ in drawn.values()], dtype=np.int16),
        stated=np.array([stated for _, stated in drawn.values()], dtype=np.int16),
    )


def _query(
    kind: int, codes: list[int], grammar: Grammar, config: QueriesConfig, rng: random.Random
) -> tuple[str, list[int]]:
    """Text and stated attributes of a query for a product of type `kind` with the attributes `codes`."""
    stated = [-1] * len(Attribute)
    groups = [(_HEAD_ORDER, _head(kind, codes, stated, grammar, config, rng))]
    for attribute in _draw_attributes(codes, stated, config, rng):
        groups.append((_GROUP_ORDER[attribute], _state(attribute, codes, stated, grammar, config, rng)))
    groups.sort()
    if rng.random() < config.shuffled_share:
        rng.shuffle(groups)
    words = " ".join(text for _, text in groups).split()
    return " ".join(misspell(word, rng) if _is_misspelt(word, config, rng) else word for word in words), stated


def _head(
    kind: int, codes: list[int], stated: list[int], grammar: Grammar, config: QueriesConfig, rng: random.Random
) -> str:
    names = grammar.types[kind].names
    name = rng.choice(names[1:]) if len(names) > 1 and rng.random() < config.synonym_share else names[0]
    if rng.random() < config.plural_share:
        name = plural(name)
    series = codes[Attribute.SERIES]
    form = rng.random()
    if series < 0 or form >= config.series_alone + config.series_with_type:
        return name
    stated[Attribute.SERIES] = series
    stated[Attribute.BRAND] = codes[Attribute.BRAND]
    line = grammar.series[series].name
    return line if form < config.series_alone else f"{line} {name}"


def _draw_attributes(codes: list[int], stated: list[int], config: QueriesConfig, rng: random.Random) -> list[Attribute]:
    """Draws the stated attributes: their number by `config.attributes`, then by weight without replacement."""
    count = rng.choices(range(len(config.attributes)), weights=config.attributes)[0]
    available = [attribute for attribute in _ATTRIBUTE_WEIGHTS if codes[attribute] >= 0 and stated[attribute] < 0]
    # weighted, without replacement
    available.sort(key=lambda attribute: rng.random() ** (1 / _ATTRIBUTE_WEIGHTS[attribute]), reverse=True)
    return available[:count]


def _state(
    attribute: Attribute,
    codes: list[int],
    stated: list[int],
    grammar: Grammar,
    config: QueriesConfig,
    rng: random.Random,
) -> str:
    """Records an attribute in `stated` and returns its words. A shade or substance also states its family."""
    code = codes[attribute]
    stated[attribute] = code
    if attribute is Attribute.BRAND:
        return grammar.brands[code]
    if attribute is Attribute.COLOUR:
        if rng.random() >= config.shade_share:
            return grammar.colours[code]
        stated[Attribute.SHADE] = codes[Attribute.SHADE]
        return grammar.shades[codes[Attribute.SHADE]][0]
    if attribute is Attribute.MATERIAL:
        if rng.random() >= config.substance_share:
            return rng.choice(MATERIAL_WORDS[grammar.materials[code]])
        stated[Attribute.SUBSTANCE] = codes[Attribute.SUBSTANCE]
        return grammar.substances[codes[Attribute.SUBSTANCE]][0]
    if attribute is Attribute.SIZE:
        return rng.choice(grammar.sizes[code])
    if attribute is Attribute.AUDIENCE:
        return rng.choice(AUDIENCES[grammar.audiences[code]])
    if attribute is Attribute.TRAIT:
        return rng.choice(TRAITS[grammar.traits[code]])
    return f"for {grammar.series[code].name}"


def _is_misspelt(word: str, config: QueriesConfig, rng: random.Random) -> bool:
    return len(word) >= _MIN_MISSPELT_LETTERS and word.isalpha() and rng.random() < config.typo_rate


def misspell(word: str, rng: random.Random) -> str:
    """One error after the first letter: a letter dropped, doubled, swapped with the next or replaced."""
    index = rng.randrange(1, len(word) - 1)
    error = rng.randrange(4)
    if error == 0:
        return word[:index] + word[index + 1 :]
    if error == 1:
        return word[: index + 1] + word[index:]
    if error == 2:
        return word[:index] + word[index + 1] + word[index] + word[index + 2 :]
    return word[:index] + rng.choice(_ALPHABET) + word[index + 1 :]
