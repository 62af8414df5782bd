"""Files of logs and product tables -> their records as JSON lines, on any filesystem that Beam has.

A file's name tells its format. A damaged file stops the job, a damaged record never does.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import apache_beam as beam
import pyarrow  # type: ignore[import-untyped]
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from isal import igzip, isal_zlib

from beam_jobs.logs import MAX_LINE_BYTES
from beam_jobs.record_files import read_csv, read_parquet, read_search_events
from features.errors import InputError

PROGRESS = logging.getLogger("privrank")
DAMAGED_GZIP: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # whose stub has an instance
BYTES_AT_ONCE = 256 * 1024  # of lines in one element, since a runner takes its time with each
UNREADABLE = "cannot read to its end: "  # how a driver recognises the failure below in what a runner raises


class UnreadableFileError(Exception):
    """A file that ends early or is damaged."""


def read_lines(path: str) -> Iterator[bytes]:
    """The records of a file as lines without their ends, blank ones left out.

    A line that is longer is cut to MAX_LINE_BYTES. Errors: UnreadableFileError.
    """
    stem = path.removesuffix(".gz")
    read = next((reader for pattern, reader in FORMATS if re.search(pattern, stem)), _text_lines)
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as stored:
            yield from read(igzip.open(stored) if path.endswith(".gz") else stored)  # type: ignore[no-untyped-call]
    except (OSError, EOFError, ValueError, DAMAGED_GZIP, pyarrow.ArrowException) as error:
        raise UnreadableFileError(f"{path} {UNREADABLE}{error}") from None


def _text_lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_BYTES):
        if len(line) >= MAX_LINE_BYTES:
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE_BYTES)
        stripped = line.rstrip(b"\r\n")
        if stripped.strip():
            yield stripped


FORMATS: tuple[tuple[str, Callable[[BinaryIO], Iterator[bytes]]], ...] = (
    (r"\.parquet$", read_parquet),
    (r"\.csv$", read_csv),
    (r"\.tfrecords?(-\d+-of-\d+)?$", read_search_events),
)
"""Endings of names, .gz aside -> their readers. Any other file holds JSON lines."""


def check_readable(paths: Iterable[str], what: str) -> None:
    """Errors: InputError when a file cannot be opened or does not begin as its name says."""
    for path in paths:
        try:
            next(read_lines(path), None)
        except UnreadableFileError as error:
            raise InputError(f"{what} {error}; give whole, readable files: see the formats in docs/logs.md") from None


class ReadLines(beam.DoFn):
    """Paths -> their lines, many at a time. One file is one unit of work, so large logs come in several files."""

    def __init__(self, what: str, files: int) -> None:
        self._what = what
        self._files = files

    def process(self, path: str) -> Iterator[list[bytes]]:
        count, lines, size = 0, list[bytes](), 0
        for line in read_lines(path):
            lines.append(line)
            size += len(line)
            if size >= BYTES_AT_ONCE:
                yield lines
                count, lines, size = count + len(lines), [], 0
        if lines:
            yield lines
        count += len(lines)
        PROGRESS.info("  read %s: %d lines (one of %d %s files)", path, count, self._files, self._what)
