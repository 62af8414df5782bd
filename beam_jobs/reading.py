"""Lines of text files, plain or gzipped, as bytes: a damaged file stops the job, a damaged line never does."""

import gzip
import logging
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_jobs.logs import MAX_LINE_BYTES
from features.errors import InputError

PROGRESS = logging.getLogger("privrank")
UNREADABLE = "cannot read to its end: "  # how a driver recognises the failure below in what a runner raises


class UnreadableFileError(Exception):
    """A file that ends early or is damaged."""


def read_lines(path: str) -> Iterator[bytes]:
    """The lines of a file without their ends, blank ones left out; a longer line is cut to MAX_LINE_BYTES.

    Errors: UnreadableFileError.
    """
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as stored:
            yield from _lines(gzip.GzipFile(fileobj=stored) if path.endswith(".gz") else stored)  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableFileError(f"{path} {UNREADABLE}{error}") from None


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_BYTES):
        if len(line) >= MAX_LINE_BYTES:
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE_BYTES)
        stripped = line.rstrip(b"\r\n")
        if stripped.strip():
            yield stripped


def check_readable(paths: Iterable[str], what: str) -> None:
    """Errors: InputError when a file cannot be opened or does not begin as its name says."""
    for path in paths:
        try:
            next(read_lines(path), None)
        except UnreadableFileError as error:
            raise InputError(f"{what} {error}; give whole, readable files (JSON lines, plain or .gz)") from None


class ReadLines(beam.DoFn):
    """Paths -> their lines. One file is one unit of work, so large logs come in several files."""

    def __init__(self, what: str, files: int) -> None:
        self._what = what
        self._files = files

    def process(self, path: str) -> Iterator[bytes]:
        lines = 0
        for line in read_lines(path):
            lines += 1
            yield line
        PROGRESS.info("  read %s: %d lines (one of %d %s files)", path, lines, self._files, self._what)
