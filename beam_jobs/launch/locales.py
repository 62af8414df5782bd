"""Finds the locales in the logs, so that one command can build a dataset for each."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import orjson
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.joins.query_groups import normalise_locale
from beam_jobs.launch.runner import running_pipeline
from beam_jobs.sources.log_reader import LogReader
from beam_jobs.sources.native_log import Event
from beam_jobs.sources.reading import LineBatch, ReadLines
from beam_jobs.storage.files import join_path, read_bytes, write_bytes
from beam_jobs.transforms.keyed_lines import SEARCH_EVENT_TYPES
from features.errors import InputError

LOCALE_PLACEHOLDER = "{locale}"  # in --output: replaced by each locale, such as en-gb
_LOCALE_NAME = re.compile(r"[a-z]{2,3}(-[a-z0-9]{1,8}){0,4}")  # strict, because a locale becomes a directory name
MAX_LOCALES = 100


def find_locales(
    reader: LogReader, logs: Sequence[str], span_ms: tuple[int, int] | None, output: str, options: PipelineOptions
) -> list[str]:
    """Returns the sorted locales of the logs' impressions. Invalid names are ignored. Reads all logs.

    span_ms: of the events to use, as in KeyEvents. output: the path with LOCALE_PLACEHOLDER; the pipeline writes its
    result to a temporary file beside it.
    Errors: InputError when the logs name none, or more than MAX_LOCALES; whatever a runner raises.
    """
    answer = join_path(
        FileSystems.split(output.partition(LOCALE_PLACEHOLDER)[0])[0], f".locales-{os.urandom(4).hex()}.json"
    )
    with running_pipeline(options, output) as pipeline:
        _ = (
            pipeline
            | "Logs" >> beam.Create(list(logs), reshuffle=True)
            | "Read" >> beam.ParDo(ReadLines("log", len(logs))).with_output_types(LineBatch)
            | "Locales" >> beam.FlatMap(batch_locales, reader, span_ms)
            | "All" >> beam.CombineGlobally(merge_locales)
            | "WriteLocales" >> beam.Map(lambda found: write_bytes(answer, orjson.dumps(sorted(found))))
        )
    found: list[str] = orjson.loads(read_bytes(answer))
    FileSystems.delete([answer])
    if not found:
        raise InputError(
            f"--output asks for {LOCALE_PLACEHOLDER}, but the logs name no locale: leave it out; see docs/logs.md"
        )
    if len(found) > MAX_LOCALES:
        raise InputError(
            f"the logs name more than {MAX_LOCALES} locales, expected at most {MAX_LOCALES}: correct the logs, or make "
            "one locale's dataset with dataset.locale"
        )
    return found


def batch_locales(batch: LineBatch, reader: LogReader, span_ms: tuple[int, int] | None) -> Iterator[frozenset[str]]:
    """Yields one set: the locales of a batch of lines."""
    named = {
        found.body.get("locale")
        for line in batch[2]
        if line
        for found in reader.read(line)
        if isinstance(found, Event) and found.type in SEARCH_EVENT_TYPES
        if span_ms is None or span_ms[0] <= found.timestamp_ms < span_ms[1]
    }
    normalised = (normalise_locale(name) for name in named if name)
    yield frozenset(name for name in normalised if _LOCALE_NAME.fullmatch(name))


def merge_locales(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """Union of the sets, cut to MAX_LOCALES + 1 names: a hostile log cannot grow it further."""
    return frozenset(sorted(frozenset().union(*sets))[: MAX_LOCALES + 1])
