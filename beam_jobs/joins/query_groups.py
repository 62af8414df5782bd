"""Builds a query group from one request's events and the product table, by the feature spec. Pure: no Beam."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from beam_jobs.joins.attribution import (
    SKIPPED,
    Attribution,
    AttributionRules,
    ItemRefusal,
    Request,
    ShownItems,
    attribute,
    refuse_request,
    reject_request,
    time_order,
)
from beam_jobs.joins.dataset_options import DatasetOptions
from beam_jobs.joins.log_features import CONTEXT_NAMES, ITEM_NAMES, check_log_features
from beam_jobs.joins.showings import fates_of_parts
from beam_jobs.joins.stable_hash import Hash64
from beam_jobs.sources.dates import start_of
from beam_jobs.sources.native_log import INTERACTIONS, Event
from beam_jobs.sources.products import ProductRow, ProductTable
from features.elwc import GroupColumns
from features.spec import Feature, FeatureSpec
from features.values import Value, describe_type

DATASET_SPLITS = ("train", "valid", "test")


class ItemValues(NamedTuple):
    """One item's features, without interactions and position."""

    values: tuple[Value, ...]  # in the spec's order
    defaulted: tuple[str, ...] = ()  # names of features filled by their default
    from_table: tuple[str, ...] = ()  # names of features read from the product table
    written_ms: int = 0  # when the product's row was written


@dataclass(slots=True)
class BuiltGroup:
    """A query group with what the dataset's statistics need.

    order_keys: 8 bytes per item, ascending: hashes that carry no information on rank or behaviour.
    defaulted: feature name of every value filled by its default. stamped_later: feature name of every value from a
        product row written after the impression. used: type of every used event.
    """

    split: str
    query: str  # normalised
    user_id: str
    group: GroupColumns
    order_keys: bytes
    group_key: int  # a 64-bit hash of the same kind for the whole group
    shard: int  # of its output files
    defaulted: Sequence[str] = ()
    stamped_later: Sequence[str] = ()
    positions_have_gaps: bool = False
    positions_vary: bool = True  # whether two items have different positions
    items_capped: int = 0
    used: Sequence[str] = ()


class BuiltRequest(NamedTuple):
    """The result for one request. group is None when it gives no query group."""

    group: BuiltGroup | None
    attribution: Attribution


def normalise_query(query: str) -> str:
    """Normalises a query: NFKC, case-folded, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", query).casefold().split())


class GroupBuilder:
    """Builds query groups of one spec.

    Errors: InputError when a feature that logs fill has a wrong type or level.
    """

    def __init__(self, spec: FeatureSpec, options: DatasetOptions, seed: int) -> None:
        check_log_features(spec)
        self._seed = seed
        # cache of items with features from the product table only
        self._table_items: dict[str, ItemValues | ItemRefusal] = {}
        windows = options.windows_hours.milliseconds()
        self._rules = AttributionRules(windows, options.min_items, options.max_items)
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
        """Returns the split for a normalised query and impression time; None if they are in no split."""
        if self._splits.by == "time":
            return DATASET_SPLITS[(timestamp_ms >= self._valid_from) + (timestamp_ms >= self._test_from)]
        share = Hash64("split", self._seed).of(query) / 2**64
        split = DATASET_SPLITS[(share >= self._edges[0]) + (share >= self._edges[1])]
        if self._splits.by == "query_and_time" and (split == "test") != (timestamp_ms >= self._test_from):
            return None
        return split

    def build(self, request: Request, products: ProductTable, shard: int = 0) -> BuiltRequest:
        """Builds the query group of one request, or None, with every event's fate. shard: the group's."""
        if (self._locale or self._splits.by != "query") and (unwanted := self._unwanted(request)):
            return BuiltRequest(None, reject_request(request, SKIPPED, unwanted))
        result = attribute(request.logged, self._rules, lambda ids, raw: self._items(ids, raw, products))
        if result.impression is None:
            return BuiltRequest(None, add_reader_fates(result, request))
        context, defaulted, reason, detail = self._context_values(result.impression)
        if reason:
            return BuiltRequest(None, add_reader_fates(refuse_request(result, reason, detail), request))
        settled = add_reader_fates(result, request)
        return BuiltRequest(self._group(settled, result.impression, context, defaulted, shard), settled)

    def _unwanted(self, request: Request) -> str | None:
        """Returns why the dataset does not use a request (locale or split), or None."""
        impressions = [entry for entry in request.logged if entry.event.type == "impression"]
        if not impressions:
            return None
        first = min(impressions, key=time_order).event
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
            raise ValueError("a group of no split, which _unwanted leaves out")
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
            group=GroupColumns(context, self._columns(items, values, result.interacted), len(keys)),
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
            positions_vary=result.items.positions[0] != result.items.positions[-1],
            items_capped=result.items_capped,
            used=[each.logged.event.type for each in result.fates if each.fate == "used"],
        )

    def _columns(
        self, items: ShownItems, values: Sequence[Sequence[Value]], acted: Mapping[str, set[str]]
    ) -> dict[str, Sequence[Value]]:
        """Returns the item features as columns. values: each item's joined values."""
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
        self, ids: Sequence[str], raw_items: Sequence[dict[str, Any]], products: ProductTable
    ) -> list[ItemValues | ItemRefusal]:
        known: list[Any] = list(map(self._table_items.get, ids))
        own = [raw.get("features") for raw in raw_items]
        if None in known or any(own):
            return [self._item(*item, products) for item in zip(ids, own, strict=True)]
        return known

    def _item(self, item_id: str, own: Any, products: ProductTable) -> ItemValues | ItemRefusal:
        own = own or {}
        if not isinstance(own, dict):
            return ItemRefusal("item_features_invalid", f"features is {describe_type(own)}, expected an object")
        product = products.get(item_id)
        if own or product is None:
            return self._joined_item(own, product)
        if item_id not in self._table_items:
            self._table_items[item_id] = self._joined_item(own, product)
        return self._table_items[item_id]

    def _joined_item(self, own: dict[str, Any], product: ProductRow | None) -> ItemValues | ItemRefusal:
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
            value, fault = feature.value_of(found, describe_type)
            if value is None:
                return ItemRefusal(f"{name}_{'missing' if absent else 'invalid'}", f"{name} {fault}")
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
                value, fault = feature.value_of(found, describe_type)
                if value is None:
                    reason = f"{feature.name}_{'missing' if absent else 'invalid'}"
                    return {}, [], reason, f"{feature.name} {fault}"
                values[feature.name] = value
        return values, defaulted, "", ""


def add_reader_fates(result: Attribution, request: Request) -> Attribution:
    """Adds the reader's fates, and replaces an assembled impression's fate by the fates of its parts."""
    if not request.reader_fates and not any(each.logged.parts for each in result.fates):
        return result
    fates = [*request.reader_fates]
    for each in result.fates:
        if each.logged.parts:
            fates += fates_of_parts(each, result)
        else:
            fates.append(each)
    return result._replace(fates=fates)


def normalise_locale(locale: str) -> str:
    """Normalises a locale: en_GB becomes en-gb."""
    return locale.strip().replace("_", "-").casefold()


def has_gaps(positions: Sequence[int]) -> bool:
    """Whether ascending positions differ from 0, 1, 2, ...: gaps, repeats or another base."""
    return list(positions) != list(range(len(positions)))


def _number_type(spec: FeatureSpec, name: str) -> Any:
    """Returns the Python type of a numeric feature; None where the spec lacks it."""
    return {"bool": bool, "int": int, "float": float}[spec[name].type] if name in spec else None


def _is_absent(raw: Any, feature: Feature) -> bool:
    return raw is None or (isinstance(raw, str) and feature.is_text and not raw.strip())
