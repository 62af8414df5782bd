"""Runs a pipeline and turns its known failures into InputErrors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.sinks.output_directory import write_error
from beam_jobs.sources.reading import UNREADABLE_MESSAGE
from features.errors import InputError

_WRITE_ERROR = re.compile(r"Error: (\[Errno \d+\] .+?) \[while running 'Write")  # in a runner's error message


@contextmanager
def running_pipeline(options: PipelineOptions, output: str) -> Iterator[beam.Pipeline]:
    """Yields a pipeline to declare; it runs when the block ends. Names of steps that write must begin with Write.

    Errors: InputError when a log file is damaged or `output` cannot be written; else what the runner raises.
    """
    try:
        with beam.Pipeline(options=options) as pipeline:
            yield pipeline
    except Exception as error:  # runners wrap a worker's exception in their own type
        message = str(error)
        if fault := _WRITE_ERROR.search(message):
            raise write_error(output, fault[1]) from None
        if UNREADABLE_MESSAGE not in message:
            raise
        first = next(line for line in message.splitlines() if UNREADABLE_MESSAGE in line)
        detail = first.split("UnreadableFileError:")[-1].split(" [while running")[0].strip()
        raise InputError(f"{detail}; the file is damaged or was cut short: give it whole, or leave it out") from None
