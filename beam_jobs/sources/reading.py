"""Reads log and product files as JSON lines, from any filesystem that Beam supports.

The file name gives the format. A damaged file stops the job; a damaged record does not.
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

from beam_jobs.sources.native_log import MAX_LINE_BYTES
from beam_jobs.sources.record_files import read_csv, read_parquet, read_search_events
from features.errors import InputError

PROGRESS = logging.getLogger("privrank")
_GZIP_ERROR: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # whose stub has an instance
_BATCH_BYTES = 256 * 1024  # of lines per element, to amortise the runner's cost per element
UNREADABLE_MESSAGE = "cannot read to its end: "  # the driver looks for it in the runner's error message


class UnreadableFileError(Exception):
    """A truncated or damaged file."""


LineBatch = tuple[str, int, list[bytes]]
"""Consecutive lines of a file: path, number of the first line (from 1), lines including blank ones."""


def read_lines(path: str) -> Iterator[bytes]:
    """Yields the non-blank records of a file as lines without line ends.

    Longer lines are cut to MAX_LINE_BYTES. Errors: UnreadableFileError.
    """
    return (line for line in _all_lines(path) if line)


def _all_lines(path: str) -> Iterator[bytes]:
    """As `read_lines`, but yields blank lines as b"", so that lines can be numbered."""
    stem = path.removesuffix(".gz")
    read = next((reader for pattern, reader in _FORMATS if re.search(pattern, stem)), _text_lines)
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as stored:
            yield from read(igzip.open(stored) if path.endswith(".gz") else stored)  # type: ignore[no-untyped-call]
    except (OSError, EOFError, ValueError, _GZIP_ERROR, pyarrow.ArrowException) as error:
        raise UnreadableFileError(f"{path} {UNREADABLE_MESSAGE}{error}") from None


def _text_lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_BYTES):
        if len(line) >= MAX_LINE_BYTES:
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE_BYTES)
        stripped = line.rstrip(b"\r\n")
        yield stripped if stripped.strip() else b""


_FORMATS: tuple[tuple[str, Callable[[BinaryIO], Iterator[bytes]]], ...] = (
    (r"\.parquet$", read_parquet),
    (r"\.csv$", read_csv),
    (r"\.tfrecords?(-\d+-of-\d+)?$", read_search_events),
)
"""Patterns of file names without .gz -> readers. All other files hold JSON lines."""


def check_readable(paths: Iterable[str], what: str) -> None:
    """Errors: InputError when a file cannot be opened, or its start does not match the format of its name."""
    for path in paths:
        try:
            next(read_lines(path), None)
        except UnreadableFileError as error:
            raise InputError(f"{what} {error}; give whole, readable files: see docs/log-fields.md") from None


class ReadLines(beam.DoFn):
    """Paths -> LineBatches. A file is not split, so large logs should come in several files."""

    def __init__(self, what: str, files: int) -> None:
        self._what = what
        self._files = files

    def process(self, path: str) -> Iterator[LineBatch]:
        count, lines, size = 0, list[bytes](), 0
        for line in _all_lines(path):
            lines.append(line)
            size += len(line) + 1
            if size >= _BATCH_BYTES:
                yield path, count + 1, lines
                count, lines, size = count + len(lines), [], 0
        if lines:
            yield path, count + 1, lines
        count += len(lines)
        PROGRESS.info("  read %s: %d lines (one of %d %s files)", path, count, self._files, self._what)
