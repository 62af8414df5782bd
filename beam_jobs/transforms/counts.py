"""Counts as data: they come out of a pipeline with its results, since not every runner has metrics."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

TALLY, DEAD_LETTERS = "tally", "dead_letters"
LOG_NAMED = ("skipped", "locale")  # groups of counts whose names a log may choose: its own actions, its locales
MOST_NAMES = 1000  # of them all; what further ones count is counted together, however many a hostile log brings

Tally = Counter[str]
"""Counts by slash-separated name: 'read/click', 'used/click', 'refused/not_json', 'skipped/bulk_action', ..."""


class CountingDoFn(beam.DoFn):
    """A DoFn that counts in its data: one Counter a bundle, on the output TALLY."""

    def start_bundle(self) -> None:
        self.tally: Tally = Counter()

    def finish_bundle(self) -> Iterator[Any]:
        yield beam.pvalue.TaggedOutput(TALLY, of_bundle(self.tally))

    def refuse(self, reason: str, letter: bytes) -> Any:
        """Counts a dead letter and returns its output."""
        self.tally[f"refused/{reason}"] += 1
        return beam.pvalue.TaggedOutput(DEAD_LETTERS, letter)

    def count_named(self, group: str, name: str) -> None:
        """Counts 'group/name', a group of LOG_NAMED."""
        _add(self.tally, f"{group}/{name[:60]}", 1)


def of_bundle(value: Any) -> WindowedValue:
    """What a bundle gives when it ends, in the form that Beam wants it."""
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
    known = group not in LOG_NAMED or name in tally or len(tally) < MOST_NAMES
    tally[name if known else f"{group}/other"] += count
