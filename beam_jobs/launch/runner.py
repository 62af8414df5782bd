"""A pipeline that runs, and what its failures mean to a person."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.reading import UNREADABLE
from beam_jobs.storage import failed_write
from features.errors import InputError

FAILED_WRITE = re.compile(r"Error: (\[Errno \d+\] .+?) \[while running 'Write")  # in what a runner raises


@contextmanager
def running(options: PipelineOptions, output: str) -> Iterator[beam.Pipeline]:
    """A pipeline to declare, which has run when the block ends. Its steps that write are named Write...

    Errors: InputError when a log file is damaged, or `output` cannot be written; else what the runner raises.
    """
    try:
        with beam.Pipeline(options=options) as pipeline:
            yield pipeline
    except Exception as error:  # a runner wraps what a worker raised in a kind of its own
        message = str(error)
        if fault := FAILED_WRITE.search(message):
            raise failed_write(output, fault[1]) from None
        if UNREADABLE not in message:
            raise
        first = next(line for line in message.splitlines() if UNREADABLE in line)
        detail = first.split("UnreadableFileError:")[-1].split(" [while running")[0].strip()
        raise InputError(f"{detail}; the file is damaged or was cut short: give it whole, or leave it out") from None
