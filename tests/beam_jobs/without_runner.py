"""The job's own steps on lines in memory, one after the other: what a runner does, without one, for quick tests."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import apache_beam as beam
import orjson
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.joins.dataset_options import DatasetOptions
from beam_jobs.joins.query_groups import BuiltGroup, GroupBuilder
from beam_jobs.sinks.dataset_manifest import event_counts
from beam_jobs.sinks.dead_letters import DeadLetters
from beam_jobs.sources.log_readers import READERS
from beam_jobs.sources.products import ProductRow, ProductTable
from beam_jobs.transforms.blocks import pack_lines
from beam_jobs.transforms.build_groups import BuildGroups
from beam_jobs.transforms.counts import DEAD_LETTERS
from beam_jobs.transforms.keyed_lines import KeyEvents
from features.manifest import EventCounts
from features.spec import spec_from_json
from tests.features.specs import DEMO


class Joined(NamedTuple):
    groups: list[BuiltGroup]
    tally: Counter[str]
    letters: list[dict[str, Any]]

    @property
    def events(self) -> dict[str, EventCounts]:
        """Raises where the counts of a type do not reconcile."""
        return event_counts(self.tally)

    def labels(self) -> dict[str, dict[str, tuple[int, bool, bool, bool]]]:
        """query -> item id -> (position, click, add_to_cart, purchase)."""
        return {
            str(built.group.context["query"]): {
                str(item["item_id"]): (item["position"], item["click"], item["add_to_cart"], item["purchase"])  # type: ignore[misc]
                for item in (built.group.item(place, built.group.items) for place in range(built.group.count))
            }
            for built in self.groups
        }

    def named(self, group: str) -> dict[str, int]:
        return {name.split("/", 1)[1]: n for name, n in self.tally.items() if name.startswith(f"{group}/") and n}


def join(
    lines: Iterable[bytes],
    products: ProductTable | None = None,
    features: dict[str, Any] | None = None,
    span_ms: tuple[int, int] | None = None,
    **options: Any,
) -> Joined:
    """Lines of a log -> groups, counts and dead letters. options: of `dataset:`, as a task file has them."""
    chosen = DatasetOptions.model_validate_json(orjson.dumps(options))
    reader = READERS[chosen.reader]
    spec = spec_from_json(features or DEMO)
    writer = DeadLetters(spec.features, key=b"0123456789abcdef")
    keying = KeyEvents(reader, span_ms, finds_bots=False, shards=1, letters=writer)
    building = BuildGroups(GroupBuilder(spec, chosen, seed=3), reader, spec, writer)
    keying.start_bundle()
    building.setup()
    building.start_bundle()
    letters, groups = [], []
    keyed = list(keying.process(("events.jsonl", 1, list(lines))))
    ended = [found.value for found in keying.finish_bundle() if isinstance(found, WindowedValue)]
    blocks = []
    for found in [*keyed, *ended]:
        if isinstance(found, beam.pvalue.TaggedOutput):
            letters.append(found)
        else:
            blocks.append(found[1])
    table = [pack_lines(map(_row, (products or {}).values()))] if products else []
    for found in building.process((0, blocks), table, {}):
        if isinstance(found, beam.pvalue.TaggedOutput):
            letters.append(found)
        else:
            groups += found
    assert all(letter.tag == DEAD_LETTERS for letter in letters)
    tally = Counter(keying.tally)
    tally.update(building.tally)
    return Joined(groups, tally, [orjson.loads(letter.value) for letter in letters])


def _row(product: ProductRow) -> bytes:
    return orjson.dumps({**product.features, "item_id": product.item_id, "timestamp_ms": product.timestamp_ms or None})
