"""One request's events and the product table -> a query group, as the feature spec wants it. Pure: no Beam."""

import hashlib
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from beam_jobs.assembly import fates_of_parts
from beam_jobs.attribution import (
    SKIPPED,
    Attribution,
    Request,
    Rules,
    ShownItem,
    attribute,
    in_time,
    leave_out,
    refuse_request,
)
from beam_jobs.dates import start_of
from beam_jobs.logs import INTERACTIONS, Event
from beam_jobs.options import DatasetOptions
from beam_jobs.products import Products
from features.elwc import QueryGroup
from features.errors import InputError
from features.spec import Feature, FeatureSpec
from features.values import Value

SPLITS = ("train", "valid", "test")
# What the log itself says, at the level where it says it; an item's or product's own value of that name is ignored.
CONTEXT_NAMES = ("request_id", "query")
ITEM_NAMES = ("item_id", "position", *INTERACTIONS)


class ItemValues(NamedTuple):
    """One item's features as far as they are known before attribution."""

    values: dict[str, Value]
    defaulted: tuple[str, ...]  # features that took their default
    from_table: tuple[str, ...]  # features that came from the product table


ItemOrRefusal = tuple[ItemValues | None, str, str]
"""(values, "", ""), or (None, reason, detail)."""


@dataclass(frozen=True, slots=True)
class BuiltGroup:
    """A query group on its way into a dataset.

    order_keys: one a group item, ascending: 64-bit hashes that say nothing of rank or behaviour.
    """

    split: str
    query: str  # normalised
    user_id: str
    group: QueryGroup
    order_keys: tuple[int, ...]
    group_key: int  # the same kind of hash for the whole group
    shard: int  # of the files that it goes to
    defaulted: Counter[str] = field(default_factory=Counter)
    stamped_later: Counter[str] = field(default_factory=Counter)
    positions_have_gaps: bool = False
    items_capped: int = 0
    used: Counter[str] = field(default_factory=Counter)  # type of event -> events used


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
        self._started = hashlib.blake2b("".join(f"{part}\x1f" for part in parts).encode(), digest_size=8)

    def of(self, text: str) -> int:
        hashed = self._started.copy()
        hashed.update(text.encode())
        return int.from_bytes(hashed.digest(), "big")


class GroupBuilder:
    """Builds query groups of one spec.

    Errors: InputError when the spec has a name that logs fill, with a type or at a level that they cannot fill.
    """

    def __init__(self, spec: FeatureSpec, options: DatasetOptions, seed: int) -> None:
        refuse_unfillable(spec)
        self._seed = seed
        self._table_items: dict[str, ItemOrRefusal] = {}  # items as the product table alone gives them, read once
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
        self._with_item_id = "item_id" in spec
        self._position = _number_type(spec, "position")
        self._behaviours = tuple((name, _number_type(spec, name)) for name in INTERACTIONS if name in spec)
        self._untouched = {name: number(False) for name, number in self._behaviours}  # most items of most requests

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
        result = attribute(request.logged, self._rules, lambda key, raw: self._item(key, raw, products))
        if result.impression is None:
            return BuiltRequest(None, settle(result, request))
        context, defaulted, reason, detail = self._context_values(result.impression)
        if reason:
            return BuiltRequest(None, settle(refuse_request(result, reason, detail), request))
        for item in result.items:
            if item.content.defaulted:
                defaulted.update(item.content.defaulted)
        settled = settle(result, request)
        return BuiltRequest(self._group(settled, result.impression, context, defaulted, products, shard), settled)

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
        self,
        result: Attribution,
        impression: Event,
        context: dict[str, Value],
        defaulted: Counter[str],
        products: Products,
        shard: int,
    ) -> BuiltGroup:
        hashed = Hash64("order", self._seed, impression.request_id)
        keyed = sorted((hashed.of(item.item_id), item.item_id, item) for item in result.items)
        stamped: Counter[str] = Counter()
        for item in result.items:
            if item.content.from_table and products[item.item_id].timestamp_ms > impression.timestamp_ms:
                stamped.update(item.content.from_table)
        query = normalise_query(impression.body["query"])
        split = self.split_of(query, impression.timestamp_ms)
        if split is None:
            raise ValueError(f"a group of no split, which _unwanted leaves out: {query!r:.60}")
        return BuiltGroup(
            split=split,
            query=query,
            user_id=impression.user_id,
            group=QueryGroup(context, [self._completed(item, result) for _, _, item in keyed]),
            order_keys=tuple(key for key, _, _ in keyed),
            group_key=hashed.of(""),
            shard=shard,
            defaulted=defaulted,
            stamped_later=stamped,
            positions_have_gaps=not result.refused_items and has_gaps([item.position for item in result.items]),
            items_capped=result.items_capped,
            used=Counter([each.logged.event.type for each in result.fates if each.fate == "used"]),
        )

    def _completed(self, item: ShownItem, result: Attribution) -> dict[str, Value]:
        values: dict[str, Value] = {**item.content.values, **self._untouched}  # the table's are read once and shared
        if self._with_item_id:
            values["item_id"] = item.item_id
        if self._position:
            values["position"] = self._position(item.position)
        for name, number in self._behaviours:
            if item.item_id in result.acted[name]:
                values[name] = number(True)
        return values

    def _item(self, item_id: str, raw: dict[str, Any], products: Products) -> ItemOrRefusal:
        own = raw.get("features")
        product = products.get(item_id)
        if own:
            if not isinstance(own, dict):
                return None, "item_features_invalid", f"features is {type(own).__name__}, expected an object"
            return self._joined_item(item_id, own, product.features if product else {})
        if product is None:
            return self._joined_item(item_id, {}, {})
        known = self._table_items.get(item_id)
        if known is None:
            known = self._table_items[item_id] = self._joined_item(item_id, {}, product.features)
        return known

    def _joined_item(self, item_id: str, own: dict[str, Any], row: dict[str, Any]) -> ItemOrRefusal:
        values: dict[str, Value] = {}
        defaulted: list[str] = []
        from_table: list[str] = []
        for name, feature in self._joined:
            found = own.get(name)
            absent = _is_absent(found, feature)
            if absent:
                found = row.get(name)
                absent = _is_absent(found, feature)
                (defaulted if absent else from_table).append(name)
            value, fault = feature.value_of(found)
            if value is None:
                return None, f"{name}_{'missing' if absent else 'invalid'}", f"{name} {fault} (item {item_id!r:.60})"
            values[name] = value
        return ItemValues(values, tuple(defaulted), tuple(from_table)), "", ""

    def _context_values(self, impression: Event) -> tuple[dict[str, Value], Counter[str], str, str]:
        own = impression.body.get("features") or {}
        known = {"request_id": impression.request_id, "query": impression.body["query"]}
        defaulted: Counter[str] = Counter()
        values: dict[str, Value] = {}
        for features, source in ((self._context_ids, known), (self._context, own)):
            for feature in features:
                found = source.get(feature.name)
                absent = _is_absent(found, feature)
                defaulted[feature.name] += absent
                value, fault = feature.value_of(found)
                if value is None:
                    return (
                        {},
                        defaulted,
                        f"{feature.name}_{'missing' if absent else 'invalid'}",
                        f"{feature.name} {fault}",
                    )
                values[feature.name] = value
        return values, +defaulted, "", ""


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


def has_gaps(positions: list[int]) -> bool:
    """Whether ascending positions are not 0, 1, 2, ...: some are left out, repeated, or counted from another base."""
    return positions != list(range(len(positions)))


def _number_type(spec: FeatureSpec, name: str) -> Any:
    """bool, int or float, as the feature's type says; None where the spec has no such feature."""
    return {"bool": bool, "int": int, "float": float}[spec[name].type] if name in spec else None


def _is_absent(raw: Any, feature: Feature) -> bool:
    return raw is None or (isinstance(raw, str) and feature.is_text and not raw.strip())
