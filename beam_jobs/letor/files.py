"""Splits LETOR files into parts of whole query groups, so that several processes can read one file."""

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

from beam_jobs.letor.lines import Document, LineReader, MalformedLineError
from beam_jobs.sources.native_log import MAX_LINE_BYTES
from features.errors import InputError

PART_BYTES = 64 * 2**20
_DECOMPRESSORS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda stored: gzip.GzipFile(fileobj=stored),
    ".xz": lzma.LZMAFile,
}


class FilePart(NamedTuple):
    """The lines of a file that start at byte offsets in [start, stop); stop None means the end of the file."""

    path: str
    start: int
    stop: int | None


def parts_of(file: FileMetadata, part_bytes: int = PART_BYTES) -> list[FilePart]:
    """The parts of a file, in order. A plain file gives parts of about `part_bytes`; a compressed file gives one part.

    Errors: InputError when the file cannot be read.
    """
    if Path(file.path).suffix in _DECOMPRESSORS:
        return [FilePart(file.path, 0, None)]
    with _open_decompressed(file.path) as content:
        offsets = [0, *_group_boundaries(content, file.size_in_bytes, part_bytes), file.size_in_bytes]
    return [FilePart(file.path, start, stop) for start, stop in pairwise(offsets)]


def _group_boundaries(content: Any, size: int, part_bytes: int) -> Iterator[int]:
    """Offsets near multiples of `part_bytes` where a line has another query than the line before it."""
    target = part_bytes
    while target < size:
        content.seek(target)
        content.readline(MAX_LINE_BYTES)  # the rest of a partial line
        query = b""
        while line := content.readline(MAX_LINE_BYTES):
            words = line.split(None, 2)
            if len(words) > 1:
                if query not in (b"", words[1]):
                    break
                query = words[1]
        else:
            return
        offset = content.tell() - len(line)
        yield offset
        target = max(target + part_bytes, offset)


def read_documents(part: FilePart, features: int) -> Iterator[Document]:
    """A part's documents. Errors: as `read_documents_with`."""
    return read_documents_with(LineReader(features), part)


def read_documents_with(reader: LineReader, part: FilePart) -> Iterator[Document]:
    """A part's documents.

    Errors: InputError for a damaged file, or a malformed line; it names file and line.
    """
    with _open_decompressed(part.path) as content:
        for number, line in enumerate(_lines_of(content, part), start=1):
            try:
                document = reader.read(line)
            except MalformedLineError as error:
                where = f"{part.path}, line {_count_lines_before(part) + number}"
                raise InputError(f"{where}: {error}. Correct the line, or remove it") from None
            if document is not None:
                yield document


def _lines_of(content: Any, part: FilePart) -> Iterator[bytes]:
    offset = content.seek(part.start)
    while (part.stop is None or offset < part.stop) and (line := content.readline(MAX_LINE_BYTES)):
        offset += len(line)
        yield line


def _count_lines_before(part: FilePart) -> int:
    """Number of the file's lines that start before the part."""
    with _open_decompressed(part.path) as content:
        return sum(1 for _ in _lines_of(content, FilePart(part.path, 0, part.start)))


@contextmanager
def _open_decompressed(path: str) -> Iterator[Any]:
    """Opens a file, decompressed by its suffix. Errors: InputError when the file is damaged or truncated."""
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as stored:
            decompressed = _DECOMPRESSORS.get(Path(path).suffix)
            yield decompressed(stored) if decompressed else stored
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"cannot read {path} to its end: {error}; give the whole, undamaged file") from None
