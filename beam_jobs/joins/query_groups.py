"""One request's events and the product table -> a query group, as the feature spec wants it. Pure: no Beam."""

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from beam_jobs.assembly import fates_of_parts
from beam_jobs.attribution import (
    SKIPPED,
    Attribution,
    Refusal,
    Request,
    Rules,
    ShownItems,
    attribute,
    in_time,
    leave_out,
    refuse_request,
)
from beam_jobs.dates import start_of
from beam_jobs.logs import INTERACTIONS, Event
from beam_jobs.options import DatasetOptions
from beam_jobs.products import Product, Products
from features.elwc import GroupColumns
from features.errors import InputError
from features.spec import Feature, FeatureSpec
from features.values import Value

SPLITS = ("train", "valid", "test")
# What the log itself says, at the level where it says it; an item's or product's own value of that name is ignored.
CONTEXT_NAMES = ("request_id", "query")
ITEM_NAMES = ("item_id", "position", *INTERACTIONS)


class ItemValues(NamedTuple):
    """One item's features as far as they are known before attribution."""

    values: tuple[Value, ...]  # in the spec's order
    defaulted: tuple[str, ...] = ()  # features that took their default
    from_table: tuple[str, ...] = ()  # features that came from the product table
    written_ms: int = 0  # when the product's row was written


@dataclass(slots=True)
class BuiltGroup:
    """A query group on its way into a dataset.

    order_keys: 8 bytes a group item, ascending: hashes that say nothing of rank or behaviour.
    defaulted, stamped_later: a feature's name for every value that took its default, or that its product's row brought
        after the impression. used: the type of every event used.
    """

    split: str
    query: str  # normalised
    user_id: str
    group: GroupColumns
    order_keys: bytes
    group_key: int  # a 64-bit hash of the same kind for the whole group
    shard: int  # of the files that it goes to
    defaulted: Sequence[str] = ()
    stamped_later: Sequence[str] = ()
    positions_have_gaps: bool = False
    items_capped: int = 0
    used: Sequence[str] = ()


class BuiltRequest(NamedTuple):
    """One request's outcome. group is None when it makes none."""

    group: BuiltGroup | None
    attribution: Attribution


def normalise_query(query: str) -> str:
    """The form by which queries are the same: NFKC, case-folded, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", query).casefold().split())


class Hash64:
    """64-bit hashes of (parts, text), the same on every machine and in every run."""

    def __init__(self, *parts: object) -> None:
        self._started = hashlib.blake2b("".join([f"{part}\x1f" for part in parts]).encode(), digest_size=8)

    def of(self, text: str) -> int:
        return int.from_bytes(self.digests((text,))[0], "big")

    def digests(self, texts: Iterable[str]) -> list[bytes]:
        """The hashes of texts, 8 bytes each: in the order of `of`'s numbers."""
        start, found = self._started.copy, []
        for text in texts:
            hashed = start()
            hashed.update(text.encode())
            found.append(hashed.digest())
        return found


class GroupBuilder:
    """Builds query groups of one spec.

    Errors: InputError when the spec has a name that logs fill, with a type or at a level that they cannot fill.
    """

    def __init__(self, spec: FeatureSpec, options: DatasetOptions, seed: int) -> None:
        refuse_unfillable(spec)
        self._seed = seed
        self._table_items: dict[str, ItemValues | Refusal] = {}  # as the product table alone gives them, read once
        windows = options.windows_hours.milliseconds()
        self._rules = Rules(windows, options.min_items, options.max_items)
        self._splits = options.splits
        self._edges = (options.splits.train, options.splits.train + options.splits.valid)
        self._valid_from = start_of(options.splits.valid_from) if options.splits.valid_from else 0
        self._test_from = start_of(options.splits.test_from) if options.splits.test_from else 0
        self._locale = normalise_locale(options.locale)
        context, items = spec.at("context", tuple(spec)), spec.at("item", tuple(spec))
        self._context = tuple(feature for feature in context if feature.name not in CONTEXT_NAMES)
        self._context_ids = tuple(feature for feature in context if feature.name in CONTEXT_NAMES)
        self._joined = tuple((feature.name, feature) for feature in items if feature.name not in ITEM_NAMES)
        self._joined_names = tuple(name for name, _ in self._joined)
        self._with_item_id = "item_id" in spec
        self._position = _number_type(spec, "position")
        self._behaviours = tuple((name, _number_type(spec, name)) for name in INTERACTIONS if name in spec)

    def split_of(self, query: str, timestamp_ms: int) -> str | None:
        """The split of a normalised query shown at a time; None where no split takes the two together."""
        if self._splits.by == "time":
            return SPLITS[(timestamp_ms >= self._valid_from) + (timestamp_ms >= self._test_from)]
        share = Hash64("split", self._seed).of(query) / 2**64
        split = SPLITS[(share >= self._edges[0]) + (share >= self._edges[1])]
        if self._splits.by == "query_and_time" and (split == "test") != (timestamp_ms >= self._test_from):
            return None
        return split

    def build(self, request: Request, products: Products, shard: int = 0) -> BuiltRequest:
        """The query group of one request's events, or None, and every event's fate. shard: the group's."""
        if (self._locale or self._splits.by != "query") and (unwanted := self._unwanted(request)):
            return BuiltRequest(None, leave_out(request, SKIPPED, unwanted))
        result = attribute(request.logged, self._rules, lambda ids, raw: self._items(ids, raw, products))
        if result.impression is None:
            return BuiltRequest(None, settle(result, request))
        context, defaulted, reason, detail = self._context_values(result.impression)
        if reason:
            return BuiltRequest(None, settle(refuse_request(result, reason, detail), request))
        settled = settle(result, request)
        return BuiltRequest(self._group(settled, result.impression, context, defaulted, shard), settled)

    def _unwanted(self, request: Request) -> str | None:
        """Why this dataset does not ask for a request: of another locale, or of no split. None where it does."""
        impressions = [entry for entry in request.logged if entry.event.type == "impression"]
        if not impressions:
            return None
        first = min(impressions, key=in_time).event
        if self._locale and normalise_locale(first.body.get("locale") or "") != self._locale:
            return "other_locale"
        query = normalise_query(first.body["query"])
        return None if self.split_of(query, first.timestamp_ms) else "outside_splits"

    def _group(
        self, result: Attribution, impression: Event, context: dict[str, Value], defaulted: list[str], shard: int
    ) -> BuiltGroup:
        query = normalise_query(impression.body["query"])
        split = self.split_of(query, impression.timestamp_ms)
        if split is None:
            raise ValueError(f"a group of no split, which _unwanted leaves out: {query!r:.60}")
        hashed = Hash64("order", self._seed, impression.request_id)
        ranked = sorted(zip(hashed.digests(result.items.ids), *result.items, strict=True), key=itemgetter(0))
        keys, *columns = zip(*ranked, strict=True)
        items = ShownItems(*columns)
        values, of_defaults, from_table, written_ms = zip(*items.contents, strict=True)
        shown_ms = impression.timestamp_ms
        return BuiltGroup(
            split=split,
            query=query,
            user_id=impression.user_id,
            group=GroupColumns(context, self._columns(items, values, result.acted), len(keys)),
            order_keys=b"".join(keys),
            group_key=hashed.of(""),
            shard=shard,
            defaulted=[*defaulted, *chain.from_iterable(of_defaults)],
            stamped_later=[
                name
                for names, written in zip(from_table, written_ms, strict=True)
                if written > shown_ms
                for name in names
            ],
            positions_have_gaps=not result.refused_items and has_gaps(result.items.positions),
            items_capped=result.items_capped,
            used=[each.logged.event.type for each in result.fates if each.fate == "used"],
        )

    def _columns(
        self, items: ShownItems, values: Sequence[Sequence[Value]], acted: Mapping[str, set[str]]
    ) -> dict[str, Sequence[Value]]:
        """The items by feature. values: of each item, the joined ones."""
        columns: dict[str, Sequence[Value]] = dict(zip(self._joined_names, zip(*values, strict=True), strict=True))
        if self._with_item_id:
            columns["item_id"] = items.ids
        if self._position:
            columns["position"] = items.positions if self._position is int else [*map(float, items.positions)]
        for name, number in self._behaviours:
            touched = acted[name]
            no, yes = number(False), number(True)
            columns[name] = [yes if key in touched else no for key in items.ids] if touched else [no] * len(items.ids)
        return columns

    def _items(
        self, ids: Sequence[str], raw_items: Sequence[dict[str, Any]], products: Products
    ) -> list[ItemValues | Refusal]:
        known: list[Any] = list(map(self._table_items.get, ids))
        own = [raw.get("features") for raw in raw_items]
        if None in known or any(own):
            return [self._item(*item, products) for item in zip(ids, own, strict=True)]
        return known

    def _item(self, item_id: str, own: Any, products: Products) -> ItemValues | Refusal:
        own = own or {}
        if not isinstance(own, dict):
            return Refusal("item_features_invalid", f"features is {type(own).__name__}, expected an object")
        product = products.get(item_id)
        if own or product is None:
            return self._joined_item(item_id, own, product)
        if item_id not in self._table_items:
            self._table_items[item_id] = self._joined_item(item_id, own, product)
        return self._table_items[item_id]

    def _joined_item(self, item_id: str, own: dict[str, Any], product: Product | None) -> ItemValues | Refusal:
        values: list[Value] = []
        defaulted: list[str] = []
        from_table: list[str] = []
        row = product.features if product else {}
        for name, feature in self._joined:
            found = own.get(name)
            absent = _is_absent(found, feature)
            if absent:
                found = row.get(name)
                absent = _is_absent(found, feature)
                (defaulted if absent else from_table).append(name)
            value, fault = feature.value_of(found)
            if value is None:
                return Refusal(f"{name}_{'missing' if absent else 'invalid'}", f"{name} {fault} (item {item_id!r:.60})")
            values.append(value)
        return ItemValues(tuple(values), tuple(defaulted), tuple(from_table), product.timestamp_ms if product else 0)

    def _context_values(self, impression: Event) -> tuple[dict[str, Value], list[str], str, str]:
        own = impression.body.get("features") or {}
        known = {"request_id": impression.request_id, "query": impression.body["query"]}
        defaulted: list[str] = []
        values: dict[str, Value] = {}
        for features, source in ((self._context_ids, known), (self._context, own)):
            for feature in features:
                found = source.get(feature.name)
                absent = _is_absent(found, feature)
                if absent:
                    defaulted.append(feature.name)
                value, fault = feature.value_of(found)
                if value is None:
                    reason = f"{feature.name}_{'missing' if absent else 'invalid'}"
                    return {}, [], reason, f"{feature.name} {fault}"
                values[feature.name] = value
        return values, defaulted, "", ""


def settle(result: Attribution, request: Request) -> Attribution:
    """The result with the fates that the reader knew already, and each part's in the place of its impression's."""
    if not request.settled and not any(each.logged.parts for each in result.fates):
        return result
    fates = [*request.settled]
    for each in result.fates:
        if each.logged.parts:
            fates += fates_of_parts(each, result)
        else:
            fates.append(each)
    return result._replace(fates=fates)


def normalise_locale(locale: str) -> str:
    """The form by which locales are the same: en_GB is en-gb."""
    return locale.strip().replace("_", "-").casefold()


def refuse_unfillable(spec: FeatureSpec) -> None:
    """Errors: InputError when the spec wants from logs what they cannot give."""
    for feature in spec:
        name = feature.name
        level = "context" if name in CONTEXT_NAMES else "item" if name in ITEM_NAMES else feature.level
        if feature.level != level:
            raise InputError(
                f"features.{name}: level {feature.level}, but logs give it at level {level}: correct its level"
            )
        numeric = name in ITEM_NAMES and name != "item_id"
        if (numeric and (not feature.is_numeric or feature.length > 1)) or (
            (name in CONTEXT_NAMES or name == "item_id") and feature.type not in ("text", "categorical")
        ):
            expected = "int, float or bool" if numeric else "text or categorical"
            raise InputError(f"features.{name}: type {feature.type}, but logs give it as {expected}: correct its type")
    if "position" in spec and spec["position"].type == "bool":
        raise InputError("features.position: type bool, but logs give it as int: correct its type")


def has_gaps(positions: Sequence[int]) -> bool:
    """Whether ascending positions are not 0, 1, 2, ...: some are left out, repeated, or counted from another base."""
    return list(positions) != list(range(len(positions)))


def _number_type(spec: FeatureSpec, name: str) -> Any:
    """bool, int or float, as the feature's type says; None where the spec has no such feature."""
    return {"bool": bool, "int": int, "float": float}[spec[name].type] if name in spec else None


def _is_absent(raw: Any, feature: Feature) -> bool:
    return raw is None or (isinstance(raw, str) and feature.is_text and not raw.strip())
