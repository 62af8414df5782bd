"""Turns simulated behaviour into log lines, one shard at a time; the bytes do not depend on the process."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import chain
from operator import itemgetter
from typing import Literal

import numpy as np
import orjson
from isal import isal_zlib
from pydantic import Field

from features.task import Section
from simulator.catalogue.shop import CatalogueConfig
from simulator.click_model import Behaviour, BehaviourConfig, simulate_behaviour
from simulator.log_faults import DAY_MS, FaultsConfig, LogLine, inject_faults
from simulator.shop import NO_ITEM, FloatArray, IntArray, Shop, TokenOverlap, UtilityConfig

_COMPRESSION_LEVEL = 2  # ISA-L level: much faster than gzip, slightly larger files
_GZIP_WBITS = 31  # zlib: gzip format with the largest window
_BLOCK_REQUESTS = 4096  # requests simulated per block; bounds memory
_BUSIEST_HOUR = 20  # of the day, UTC
_GRADE_COUNT = 4


class SimulatorConfig(Section):
    """The task file's `simulator:`; docs/simulator.md explains each parameter and gives the formulas."""

    source: Literal["catalogue", "judged_pairs"] = "catalogue"  # of products, queries and relevance
    seed: int = Field(default=7, ge=0)  # of the simulation only; the task's seed may vary for training
    requests: int = Field(default=50000, ge=1, le=100_000_000)  # search requests
    shards: int = Field(default=16, ge=1, le=99999)  # event files; the output depends on it, but not on --workers
    items_per_request: int = Field(default=16, ge=2, le=1000)  # items shown; fewer if a query has fewer candidates
    query_exponent: float = Field(default=0.6, ge=0, le=3)  # Zipf exponent of the queries' popularity
    users: int = Field(default=20000, ge=1)  # distinct users, at most
    user_exponent: float = Field(default=0.4, ge=0, le=3)  # Zipf exponent of the users' activity
    start: date = date(2025, 3, 3)  # first day of the log, UTC
    days: float = Field(default=14.0, gt=0, le=3650)  # days of requests; purchases may follow later
    daily_swing: float = Field(default=0.6, ge=0, lt=1)  # share by which the busiest hour exceeds the mean rate
    features_in: Literal["product_table", "impression"] = (
        "product_table"  # where titles and other item features are written
    )
    utility: UtilityConfig = UtilityConfig()
    catalogue: CatalogueConfig = CatalogueConfig()  # read when the source is the catalogue
    behaviour: BehaviourConfig = BehaviourConfig()
    faults: FaultsConfig = FaultsConfig()


@dataclass
class Funnel:
    """Event counts before faults are added.

    events: by kind. requests_with: requests with at least one interaction, by kind.
    """

    events: Counter[str] = field(default_factory=Counter)
    requests_with: Counter[str] = field(default_factory=Counter)
    shown_at: Counter[int] = field(default_factory=Counter)  # position -> items
    clicked_at: Counter[int] = field(default_factory=Counter)
    shown_of_grade: Counter[int] = field(default_factory=Counter)  # true grade -> items
    purchased_of_grade: Counter[int] = field(default_factory=Counter)

    def add(self, other: "Funnel") -> None:
        self.events.update(other.events)
        self.requests_with.update(other.requests_with)
        self.shown_at.update(other.shown_at)
        self.clicked_at.update(other.clicked_at)
        self.shown_of_grade.update(other.shown_of_grade)
        self.purchased_of_grade.update(other.purchased_of_grade)


@dataclass(frozen=True, slots=True)
class LogShard:
    """One event file and its counts.

    content: the gzip file. pairs: sorted, distinct keys (query * products + item) * 4 + grade of the pairs shown.
    """

    index: int
    content: bytes
    pairs: IntArray
    funnel: Funnel
    faults: Counter[str]
    lines: int


class Simulation:
    """State shared by all shards; `shard(i)` depends only on it and i."""

    def __init__(self, config: SimulatorConfig, shop: Shop) -> None:
        self.config = config
        self.shop = shop
        self.shards = min(config.shards, config.requests)
        self._overlap = TokenOverlap(shop.queries, [product.title for product in shop.products])
        self._query_chances = _zipf(len(shop.queries), config.query_exponent)
        self._user_chances = _zipf(config.users, config.user_exponent)
        self._queries = [orjson.dumps(query) for query in shop.queries]
        self._item_ids = [orjson.dumps(product.item_id) for product in shop.products]
        self._item_heads = [b',{"item_id":%b,"position":' % item_id for item_id in self._item_ids]
        self._item_tails = [self._item_tail(index) for index in range(len(shop.products))]
        self._positions = [b"%d" % position for position in range(config.items_per_request)]

    def _item_tail(self, index: int) -> bytes:
        if self.config.features_in == "product_table":
            return b"}"
        features = self.shop.products[index].to_json()
        features.pop("item_id")
        return b',"features":%b}' % orjson.dumps(features)

    def shard(self, index: int) -> LogShard:
        """Event file `index` of `self.shards`: an equal share of the requests in consecutive time order."""
        total = self.config.requests
        first, last = index * total // self.shards, (index + 1) * total // self.shards
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(self.config.seed, spawn_key=(index,))))
        lines: list[LogLine] = []
        pairs: list[IntArray] = []
        funnel = Funnel()
        for start in range(first, last, _BLOCK_REQUESTS):
            requests = np.arange(start, min(start + _BLOCK_REQUESTS, last))
            queries = np.searchsorted(self._query_chances, rng.random(len(requests)), side="right")
            users = np.searchsorted(self._user_chances, rng.random(len(requests)), side="right")
            stamps = self._timestamps(requests, rng)
            candidates = self.shop.candidates(queries, self.config.items_per_request, rng)
            overlap = self._overlap.share(queries, candidates.items)
            behaviour = simulate_behaviour(candidates, overlap, self.config.behaviour, rng)
            lines.extend(self._lines(requests, queries, users, stamps, behaviour))
            pairs.append(self._shown_pairs(queries, behaviour))
            funnel.add(_funnel(behaviour))
        written, faults = inject_faults(lines, self.config.faults, f"f{index}", rng)
        written.sort(key=itemgetter(0))
        content = b"\n".join([*map(itemgetter(1), written), b""])
        return LogShard(index, gzipped(content), np.unique(np.concatenate(pairs)), funnel, faults, len(written))

    def _timestamps(self, requests: IntArray, rng: np.random.Generator) -> IntArray:
        """Unix milliseconds, ascending by request."""
        chances = np.sort(rng.random(len(requests)))
        low, high = requests[0] / self.config.requests, (requests[-1] + 1) / self.config.requests
        days = _at_share_of_traffic(low + (high - low) * chances, self.config.days, self.config.daily_swing)
        start = datetime.combine(self.config.start, datetime.min.time(), tzinfo=UTC).timestamp() * 1000
        return (start + days * DAY_MS).astype(np.int64)

    def _lines(
        self, requests: IntArray, queries: IntArray, users: IntArray, stamps: IntArray, behaviour: Behaviour
    ) -> Iterator[LogLine]:
        wide_request, wide_user = len(str(self.config.requests - 1)), len(str(self.config.users - 1))
        interactions = _events_by_row(behaviour)
        shown, lengths = behaviour.items.tolist(), (behaviour.items != NO_ITEM).sum(axis=1).tolist()
        heads, tails = self._item_heads.__getitem__, self._item_tails.__getitem__
        for row, (request, query, user, stamp) in enumerate(
            zip(requests.tolist(), queries.tolist(), users.tolist(), stamps.tolist(), strict=True)
        ):
            request_id = b"r%0*d" % (wide_request, request)
            request_fields = b',"request_id":"%b","user_id":"u%0*d","' % (request_id, wide_user, user)
            listed = shown[row][: lengths[row]]  # NO_ITEM follows the last
            parts = zip(map(heads, listed), self._positions, map(tails, listed), strict=False)
            items = b"".join(chain.from_iterable(parts))
            body = b'%bimpression":{"query":%b,"items":[%b]}}' % (request_fields, self._queries[query], items[1:])
            yield LogLine(stamp, "impression", b'{"event_id":"%b.0","timestamp_ms":' % request_id, body)
            for number, (kind, position, delay) in enumerate(interactions.get(row, ()), start=1):
                item_id = self._item_ids[shown[row][position]]
                head = b'{"event_id":"%b.%d","timestamp_ms":' % (request_id, number)
                tail = b'%b%b":{"item_id":%b}}' % (request_fields, kind.encode(), item_id)
                yield LogLine(stamp + delay, kind, head, tail, item_id)

    def _shown_pairs(self, queries: IntArray, behaviour: Behaviour) -> IntArray:
        keys = (queries[:, None] * len(self.shop.products) + behaviour.items) * _GRADE_COUNT + behaviour.grades
        pairs: IntArray = np.unique(keys[behaviour.items != NO_ITEM])
        return pairs

    def pair(self, key: int) -> tuple[str, str, int]:
        """Query, item id and grade of a key in `Shard.pairs`."""
        query, item = divmod(key // _GRADE_COUNT, len(self.shop.products))
        return self.shop.queries[query], self.shop.products[item].item_id, key % _GRADE_COUNT


def gzipped(content: bytes) -> bytes:
    """A gzip file without a timestamp: equal content gives equal bytes."""
    return bytes(isal_zlib.compress(content, _COMPRESSION_LEVEL, wbits=_GZIP_WBITS))


def _events_by_row(behaviour: Behaviour) -> dict[int, list[tuple[str, int, int]]]:
    """Row -> (kind, position, milliseconds after the impression) of its interactions."""
    interactions: dict[int, list[tuple[str, int, int]]] = {}
    for kind, events, delays in (
        ("click", behaviour.click, behaviour.click_ms),
        ("add_to_cart", behaviour.add_to_cart, behaviour.add_ms),
        ("purchase", behaviour.purchase, behaviour.purchase_ms),
    ):
        rows, positions = np.nonzero(events)
        for row, position, delay in zip(rows.tolist(), positions.tolist(), delays[events].tolist(), strict=True):
            interactions.setdefault(row, []).append((kind, position, delay))
    return interactions


def _funnel(behaviour: Behaviour) -> Funnel:
    """The funnel of one block of requests."""
    shown = behaviour.items != NO_ITEM
    interactions = {"click": behaviour.click, "add_to_cart": behaviour.add_to_cart, "purchase": behaviour.purchase}
    return Funnel(
        events=Counter({"impression": len(shown)} | {kind: int(events.sum()) for kind, events in interactions.items()}),
        requests_with=Counter({kind: int(events.any(axis=1).sum()) for kind, events in interactions.items()}),
        shown_at=_to_counter(shown.sum(axis=0)),
        clicked_at=_to_counter(behaviour.click.sum(axis=0)),
        shown_of_grade=_to_counter(np.bincount(behaviour.grades[shown], minlength=_GRADE_COUNT)),
        purchased_of_grade=_to_counter(np.bincount(behaviour.grades[behaviour.purchase], minlength=_GRADE_COUNT)),
    )


def _to_counter(counts: IntArray) -> Counter[int]:
    return Counter(dict(enumerate(counts.tolist())))


def _zipf(count: int, exponent: float) -> FloatArray:
    """[count]: cumulative probabilities of ranks 1.. by popularity 1 / rank ** exponent; the last is 1."""
    cumulative = np.cumsum(np.arange(1, count + 1) ** -exponent)
    chances: FloatArray = cumulative / cumulative[-1]
    return chances


def _at_share_of_traffic(share: FloatArray, days: float, swing: float) -> FloatArray:
    """Time in days by which a share of all traffic has passed.

    The rate of traffic is 1 + swing * cos(2 pi (hour - busiest) / 24).
    """
    grid = np.linspace(0, days, max(int(np.ceil(days * 96)), 2))  # quarters of an hour
    phase = _BUSIEST_HOUR / 24
    passed = grid + swing / (2 * np.pi) * (np.sin(2 * np.pi * (grid - phase)) + np.sin(2 * np.pi * phase))
    times: FloatArray = np.interp(share * passed[-1], passed, grid)
    return times
