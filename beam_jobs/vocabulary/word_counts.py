"""A dataset's training split -> how often each word occurs in its text: the Beam part of `build_vocabulary`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import orjson
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.reading import read_lines
from beam_jobs.storage import join, make_directory, match_files
from protos import elwc_pb2

_TEXTS_HELD = 100_000  # distinct texts that a worker counts before it passes them on


class CountTexts(beam.DoFn):
    """Serving-view records -> (text of an item feature, groups that show it)."""

    def __init__(self, features: Sequence[str]) -> None:
        self._features = tuple(features)

    def start_bundle(self) -> None:
        self._counts: Counter[str] = Counter()

    def process(self, record: bytes) -> Iterator[tuple[str, int]]:
        message = elwc_pb2.ExampleListWithContext.FromString(record)
        texts = {
            example.features.feature[name].bytes_list.value[0].decode()
            for example in message.examples
            for name in self._features
        }
        self._counts.update(texts)
        if len(self._counts) > _TEXTS_HELD:
            yield from self._counts.items()
            self._counts = Counter()

    def finish_bundle(self) -> Iterator[Any]:
        window = GlobalWindow()
        for entry in self._counts.items():
            yield WindowedValue(entry, window.max_timestamp(), [window])


class CountWords(beam.DoFn):
    """Batches of (text, count) -> (word, count)."""

    def setup(self) -> None:
        from beam_jobs.wordpiece import (
            WordSplitter,
        )  # TensorFlow is imported where words are split, not where jobs start

        self._splitter = WordSplitter()

    def process(self, batch: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
        counts: Counter[str] = Counter()
        for text, count in batch:
            counts[text] += count
        yield from self._splitter.count(counts).items()


def count_words(
    dataset: str, features: Sequence[str], queries: Sequence[tuple[str, int]], staging: str, options: PipelineOptions
) -> Counter[str]:
    """Word -> count over the training split.

    features: item-level text features; queries: (text, requests) to count beside them; staging: a place for the counts.
    """
    records = match_files([join(dataset, "train", "serving_elwc-*.tfrecord.gz")], "training records")
    make_directory(staging)
    with beam.Pipeline(options=options) as pipeline:
        texts = (
            pipeline
            | "Files" >> beam.Create([entry.path for entry in records], reshuffle=True)
            | "Records" >> beam.io.ReadAllFromTFRecord()
            | "Texts" >> beam.ParDo(CountTexts(features)).with_output_types(tuple[str, int])
            | "SumTexts" >> beam.CombinePerKey(sum)
        )
        asked = pipeline | "Queries" >> beam.Create(list(queries)).with_output_types(tuple[str, int])
        lines = (
            (texts, asked)
            | "Both" >> beam.Flatten()
            | "Batch" >> beam.BatchElements(min_batch_size=1000, max_batch_size=20_000)
            | "Words" >> beam.ParDo(CountWords()).with_output_types(tuple[str, int])
            | "SumWords" >> beam.CombinePerKey(sum)
            | "Line" >> beam.Map(orjson.dumps)
        )
        lines | "Write" >> beam.io.WriteToText(join(staging, "counts"), coder=beam.coders.BytesCoder())
    counts: Counter[str] = Counter()
    for entry in match_files([join(staging, "counts-*")], "word counts"):
        counts.update(dict(map(orjson.loads, read_lines(entry.path))))
    return counts
