"""Counts the words of a dataset's training split: the Beam part of `build_vocabulary`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import orjson
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.sources.reading import read_lines
from beam_jobs.storage.files import join_path, make_directory, match_files
from protos import elwc_pb2

_MAX_TEXTS_IN_MEMORY = 100_000  # distinct texts counted before they are emitted


class CountTexts(beam.DoFn):
    """Serving-view records -> (text of an item feature, number of groups with it)."""

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
        if len(self._counts) > _MAX_TEXTS_IN_MEMORY:
            yield from self._counts.items()
            self._counts = Counter()

    def finish_bundle(self) -> Iterator[Any]:
        window = GlobalWindow()
        for entry in self._counts.items():
            yield WindowedValue(entry, window.max_timestamp(), [window])


class CountWords(beam.DoFn):
    """Batches of (text, count) -> (word, count)."""

    def setup(self) -> None:
        # imported on the worker: the process that starts the job does not need TensorFlow
        from beam_jobs.vocabulary.wordpiece import WordSplitter

        self._splitter = WordSplitter()

    def process(self, batch: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
        counts: Counter[str] = Counter()
        for text, count in batch:
            counts[text] += count
        yield from self._splitter.count(counts).items()


def count_words(
    records: Sequence[str],
    features: Sequence[str],
    queries: Sequence[tuple[str, int]],
    staging: str,
    options: PipelineOptions,
) -> Counter[str]:
    """Word -> count over the training split.

    records: paths of its serving view's files; features: item-level text features; queries: (text, requests) to count
    as well; staging: a directory for the counts.
    """
    make_directory(staging)
    with beam.Pipeline(options=options) as pipeline:
        texts = (
            pipeline
            | "Files" >> beam.Create(list(records), reshuffle=True)
            | "Records" >> beam.io.ReadAllFromTFRecord()
            | "Texts" >> beam.ParDo(CountTexts(features)).with_output_types(tuple[str, int])
            | "SumTexts" >> beam.CombinePerKey(sum)
        )
        query_texts = pipeline | "Queries" >> beam.Create(list(queries)).with_output_types(tuple[str, int])
        lines = (
            (texts, query_texts)
            | "Both" >> beam.Flatten()
            | "Batch" >> beam.BatchElements(min_batch_size=1000, max_batch_size=20_000)
            | "Words" >> beam.ParDo(CountWords()).with_output_types(tuple[str, int])
            | "SumWords" >> beam.CombinePerKey(sum)
            | "Line" >> beam.Map(orjson.dumps)
        )
        lines | "Write" >> beam.io.WriteToText(join_path(staging, "counts"), coder=beam.coders.BytesCoder())
    counts: Counter[str] = Counter()
    for entry in match_files([join_path(staging, "counts-*")], "word counts"):
        counts.update(dict(map(orjson.loads, read_lines(entry.path))))
    return counts
