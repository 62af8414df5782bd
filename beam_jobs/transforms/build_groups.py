"""Blocks of lines of one shard -> query groups: a thin Beam transform around the join."""

import gc
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_jobs.joins.attribution import SKIPPED, Attribution, LoggedEvent, reject_request
from beam_jobs.joins.log_names import LOCALE_NAME
from beam_jobs.joins.log_warnings import WITHOUT_POSITIONS
from beam_jobs.joins.query_groups import BuiltGroup, GroupBuilder, normalise_locale
from beam_jobs.sinks.dead_letters import DeadLetters
from beam_jobs.sources.log_reader import LogReader
from beam_jobs.sources.native_log import Event
from beam_jobs.sources.products import ProductTable, read_table
from beam_jobs.sources.reading import PROGRESS
from beam_jobs.transforms.blocks import LineBlock, lines_by_key, unpack_lines
from beam_jobs.transforms.counts import CountingDoFn
from features.spec import FeatureSpec

_PROGRESS_SECONDS = 5.0
_ITEMS_PER_ELEMENT = 4096  # of the groups in one element


class BuildGroups(CountingDoFn):
    """(shard, blocks), product table, bots -> query groups; refused events and items become dead letters.

    Emits lists of groups of one shard, because later steps are cheaper on batches. The product table is a side input of
    blocks; each worker decodes it once.
    """

    def __init__(self, builder: GroupBuilder, reader: LogReader, spec: FeatureSpec, letters: DeadLetters) -> None:
        self._builder = builder
        self._letters = letters
        self._reader = reader
        self._spec = spec

    def setup(self) -> None:
        self._products: ProductTable | None = None
        self._built = 0
        self._last_progress = time.monotonic()

    def process(
        self, keyed: tuple[int, Iterable[LineBlock]], products: Iterable[LineBlock], bots: Mapping[str, bool]
    ) -> Iterator[Any]:
        if self._products is None:
            rows = (row for block in products for row in unpack_lines(block))
            self._products = read_table(rows, self._spec)
            gc.freeze()  # the table lives as long as the worker: garbage collections skip it
        shard, blocks = keyed
        groups, items = list[BuiltGroup](), 0
        for lines in lines_by_key(blocks):
            for found in self._groups(lines, shard, self._products, bots):
                if isinstance(found, BuiltGroup):
                    groups.append(found)
                    items += found.group.count
                else:
                    yield found
            if items >= _ITEMS_PER_ELEMENT:
                yield groups
                groups, items = [], 0
        if groups:
            yield groups

    def _groups(
        self, lines: Sequence[bytes], shard: int, products: ProductTable, bots: Mapping[str, bool]
    ) -> Iterator[Any]:
        read = self._reader.read
        logged = [LoggedEvent(found, line) for line in lines for found in read(line) if isinstance(found, Event)]
        for request in self._reader.requests(logged):
            if request.notes:
                self.tally.update(request.notes)
            if bots and any(
                entry.event.type == "impression" and entry.event.user_id in bots for entry in request.logged
            ):
                group, attribution = None, reject_request(request, "capped", "bot")
            else:
                group, attribution = self._builder.build(request, products, shard)
            yield from self._account(attribution)
            if group is not None:
                self._log_progress()
                yield group

    def _account(self, attribution: Attribution) -> Iterator[Any]:
        for logged, fate, reason, detail in attribution.fates:
            if fate == SKIPPED:  # KeyEvents counted it as read
                self.tally[f"read/{logged.event.type}"] -= 1
                self.tally[f"skipped/{reason}"] += 1
                continue
            self.tally[f"{fate}/{logged.event.type}"] += 1
            if reason and detail:
                yield self.refuse(reason, self._letters.event_letter(fate, reason, detail, logged.event))
            elif reason:
                self.tally[f"refused/{reason}"] += 1
        if attribution.refused_items:
            events = [fate.logged.event for fate in attribution.fates]
            impression = next((event for event in events if event.type == "impression"), events[0])
        for item in attribution.refused_items:
            yield self.refuse(item.reason, self._letters.item_letter(item.reason, item.detail, impression, item.raw))
        if attribution.impression is not None:
            self.tally["noted/items"] += len(attribution.items.ids)
            self.tally["noted/items_acted_on"] += len(frozenset().union(*attribution.interacted.values()))
            self.tally[WITHOUT_POSITIONS] += attribution.without_positions
            if locale := attribution.impression.body.get("locale"):
                self.count_named("locale", normalise_locale(locale), LOCALE_NAME)

    def _log_progress(self) -> None:
        self._built += 1
        if time.monotonic() - self._last_progress > _PROGRESS_SECONDS:
            self._last_progress = time.monotonic()
            PROGRESS.info("  built %d query groups", self._built)
