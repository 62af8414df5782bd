"""Counts as pipeline data, since not every runner has metrics."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.joins.log_names import LOG_NAME, OTHER_NAME, has_form

TALLY, DEAD_LETTERS = "tally", "dead_letters"
# Groups of counts whose names come from the log: custom actions, locales, ignored fields, bad timestamps.
_LOG_NAMED_GROUPS = ("skipped", "locale", "ignored", "timestamps")
MAX_LOG_NAMES = 1000  # per tally; further names are counted as OTHER_NAME, so that a hostile log cannot fill memory

Tally = Counter[str]
"""Counts by slash-separated name: 'read/click', 'used/click', 'refused/not_json', 'skipped/bulk_action', ..."""


class CountingDoFn(beam.DoFn):
    """A DoFn that emits one Counter per bundle on the output TALLY."""

    def start_bundle(self) -> None:
        self.tally: Tally = Counter()

    def finish_bundle(self) -> Iterator[Any]:
        yield beam.pvalue.TaggedOutput(TALLY, bundle_output(self.tally))

    def refuse(self, reason: str, letter: bytes) -> Any:
        """Counts a dead letter and tags it for the output DEAD_LETTERS."""
        self.tally[f"refused/{reason}"] += 1
        return beam.pvalue.TaggedOutput(DEAD_LETTERS, letter)

    def count_named(self, group: str, name: str, form: re.Pattern[str] = LOG_NAME) -> None:
        """Counts 'group/name'; a name that does not match `form` counts as 'group/other'."""
        _add(self.tally, f"{group}/{name if has_form(name, form) else OTHER_NAME}", 1)

    def count_ignored(self, where: str, name: str) -> None:
        """Counts a field that the job does not read, such as 'ignored/items.title'."""
        place = f"{where}.{name}" if where else name
        _add(self.tally, f"ignored/{place if has_form(name) else OTHER_NAME}", 1)

    def count_timestamp(self, kind: str, reason: str, detail: str) -> None:
        """Counts an event or row without a usable timestamp, by reason."""
        _add(self.tally, f"timestamps/{kind}/{reason}/{detail}", 1)


def bundle_output(value: Any) -> WindowedValue:
    """Wraps a value that finish_bundle emits, as Beam requires."""
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), [window])


class SumTallies(beam.CombineFn):
    """Counters -> their sum."""

    def create_accumulator(self) -> Tally:
        return Counter()

    def add_input(self, total: Tally, tally: Tally) -> Tally:
        return _added(total, tally)

    def merge_accumulators(self, tallies: Iterable[Tally]) -> Tally:
        total: Tally = Counter()
        for tally in tallies:
            _added(total, tally)
        return total

    def extract_output(self, total: Tally) -> Tally:
        return total


def _added(total: Tally, tally: Tally) -> Tally:
    for name, count in tally.items():
        _add(total, name, count)
    return total


def _add(tally: Tally, name: str, count: int) -> None:
    group = name.split("/", 1)[0]
    known = group not in _LOG_NAMED_GROUPS or name in tally or len(tally) < MAX_LOG_NAMES
    tally[name if known else f"{group}/{OTHER_NAME}"] += count
