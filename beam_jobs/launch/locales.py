"""The locales that logs name, so that one command can make a dataset of each."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import orjson
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.log_reader import LogReader
from beam_jobs.logs import Event
from beam_jobs.pipeline import SEARCHED
from beam_jobs.query_groups import normalise_locale
from beam_jobs.reading import ReadLines
from beam_jobs.running import running
from beam_jobs.storage import join, read_bytes, write_bytes
from features.errors import InputError

PLACE = "{locale}"  # in the output: each locale, as en-gb
NAME = re.compile(r"[a-z]{2,3}(-[a-z0-9]{1,8}){0,4}")  # a locale names a directory: nothing else may
MOST = 100  # which a log may name


def find_locales(
    reader: LogReader, logs: Sequence[str], span_ms: tuple[int, int] | None, output: str, options: PipelineOptions
) -> list[str]:
    """The locales of the logs' impressions, by name; what is no locale's name is none. Reads all the logs.

    span_ms: of the events to use, as in KeyEvents. output: the path that has PLACE; the pipeline's answer lies beside
    it for a moment.
    Errors: InputError when the logs name none, or more than MOST; whatever a runner raises.
    """
    answer = join(FileSystems.split(output.partition(PLACE)[0])[0], f".locales-{os.urandom(4).hex()}.json")
    with running(options, output) as pipeline:
        _ = (
            pipeline
            | "Logs" >> beam.Create(list(logs), reshuffle=True)
            | "Read" >> beam.ParDo(ReadLines("log", len(logs))).with_output_types(list[bytes])
            | "Locales" >> beam.FlatMap(locales_of, reader, span_ms)
            | "All" >> beam.CombineGlobally(union)
            | "WriteLocales" >> beam.Map(lambda found: write_bytes(answer, orjson.dumps(sorted(found))))
        )
    found: list[str] = orjson.loads(read_bytes(answer))
    FileSystems.delete([answer])
    if not found:
        raise InputError(f"--output asks for {PLACE}, but the logs name no locale: leave it out; see docs/logs.md")
    if len(found) > MOST:
        named = ", ".join(found[:5])
        raise InputError(
            f"the logs name more than {MOST} locales ({named}, ...), expected at most {MOST}: correct the logs, or "
            "make one locale's dataset with dataset.locale"
        )
    return found


def locales_of(lines: Iterable[bytes], reader: LogReader, span_ms: tuple[int, int] | None) -> Iterator[frozenset[str]]:
    """The locales of some lines, in one set."""
    named = {
        found.body.get("locale")
        for line in lines
        for found in reader.read(line)
        if isinstance(found, Event) and found.type in SEARCHED
        if span_ms is None or span_ms[0] <= found.timestamp_ms < span_ms[1]
    }
    normalised = (normalise_locale(name) for name in named if name)
    yield frozenset(name for name in normalised if NAME.fullmatch(name))


def union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """Their names; of more than MOST, MOST + 1, however many a hostile log brings."""
    return frozenset(sorted(frozenset().union(*sets))[: MOST + 1])
