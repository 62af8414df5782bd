"""What shoppers type: a type word, a synonym or a series, some attributes, plural forms and misspellings."""

import random
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from beam_jobs.catalogue import Catalogue, Codes
from beam_jobs.catalogue_grammar import Attribute, Grammar
from beam_jobs.catalogue_words import AUDIENCES, MATERIAL_WORDS, TRAITS, plural
from features.errors import InputError
from features.task import Section

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHORTEST_MISSPELT = 5  # letters; shorter words are typed right


class QueriesConfig(Section):
    """The population of distinct queries, drawn once. Shares are probabilities."""

    count: int = Field(default=12000, ge=10, le=1_000_000)  # distinct queries
    attributes: tuple[float, ...] = (
        0.25,
        0.35,
        0.25,
        0.15,
    )  # probability of stating 0, 1, 2, ... attributes; sums to 1
    series_alone: float = Field(
        default=0.12, ge=0, le=1
    )  # the series' name without a type word, where there is a series
    series_with_type: float = Field(default=0.10, ge=0, le=1)  # the series' name and a type word
    synonym_share: float = Field(default=0.4, ge=0, le=1)  # of the type words: a synonym, not the plain name
    plural_share: float = Field(default=0.25, ge=0, le=1)  # of the type words
    shade_share: float = Field(default=0.3, ge=0, le=1)  # of the stated colours: the shade, not the family
    substance_share: float = Field(default=0.6, ge=0, le=1)  # of the stated materials: 'oak', not 'wooden'
    typo_rate: float = Field(default=0.08, ge=0, le=1)  # of the words of 5 letters or more
    shuffled_share: float = Field(default=0.15, ge=0, le=1)  # of the queries: word groups in any order


@dataclass(frozen=True, slots=True)
class QueryPopulation:
    """What shoppers ask for.

    texts: distinct. types: int16 [queries]. stated: int16 [queries, attributes], -1 where nothing is stated.
    """

    texts: tuple[str, ...]
    types: Codes
    stated: Codes


# how readily shoppers state an attribute, relative to the others
READINESS = {
    Attribute.BRAND: 1.0, Attribute.COLOUR: 1.0, Attribute.MATERIAL: 0.7, Attribute.SIZE: 0.8,
    Attribute.AUDIENCE: 1.0, Attribute.TRAIT: 0.7, Attribute.FITS: 2.5,
}  # fmt: skip

# the order of word groups; -1 is the head (type word or series)
GROUP_ORDER = {
    Attribute.AUDIENCE: -6, Attribute.BRAND: -5, Attribute.TRAIT: -4, Attribute.COLOUR: -3, Attribute.MATERIAL: -2,
    Attribute.SIZE: 1, Attribute.FITS: 2,
}  # fmt: skip
HEAD_ORDER = -1


def draw_queries(catalogue: Catalogue, config: QueriesConfig, seed: int) -> QueryPopulation:
    """`config.count` distinct queries, each of which describes some product of the catalogue.

    Errors: InputError when the attributes' probabilities do not sum to 1, or the grammar cannot make that many.
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
    """A query for a product of type `kind` with the attributes `codes`: its text and what it states."""
    stated = [-1] * len(Attribute)
    groups = [(HEAD_ORDER, _head(kind, codes, stated, grammar, config, rng))]
    for attribute in _chosen(codes, stated, config, rng):
        groups.append((GROUP_ORDER[attribute], _state(attribute, codes, stated, grammar, config, rng)))
    groups.sort()
    if rng.random() < config.shuffled_share:
        rng.shuffle(groups)
    words = " ".join(text for _, text in groups).split()
    return " ".join(misspelt(word, rng) if _slips(word, config, rng) else word for word in words), stated


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


def _chosen(codes: list[int], stated: list[int], config: QueriesConfig, rng: random.Random) -> list[Attribute]:
    """Which attributes are stated: as many as `config.attributes` says, by readiness, without repetition."""
    count = rng.choices(range(len(config.attributes)), weights=config.attributes)[0]
    open_ones = [one for one in READINESS if codes[one] >= 0 and stated[one] < 0]
    open_ones.sort(key=lambda one: rng.random() ** (1 / READINESS[one]), reverse=True)  # weighted, without replacement
    return open_ones[:count]


def _state(
    attribute: Attribute,
    codes: list[int],
    stated: list[int],
    grammar: Grammar,
    config: QueriesConfig,
    rng: random.Random,
) -> str:
    """Writes what is stated into `stated` and returns its words. A shade states its family too, as a material does."""
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


def _slips(word: str, config: QueriesConfig, rng: random.Random) -> bool:
    return len(word) >= SHORTEST_MISSPELT and word.isalpha() and rng.random() < config.typo_rate


def misspelt(word: str, rng: random.Random) -> str:
    """One slip behind the first letter: a letter lost, doubled, swapped with the next, or another one."""
    place = rng.randrange(1, len(word) - 1)
    slip = rng.randrange(4)
    if slip == 0:
        return word[:place] + word[place + 1 :]
    if slip == 1:
        return word[: place + 1] + word[place:]
    if slip == 2:
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    return word[:place] + rng.choice(LETTERS) + word[place + 1 :]
