"""LETOR files, cut into parts that hold whole query groups, so that several processes can share one file."""

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

from beam_jobs.letor import Document, LineReader, MalformedLineError
from beam_jobs.logs import MAX_LINE_BYTES
from features.errors import InputError

PART_BYTES = 64 * 2**20
DECOMPRESSED: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda stored: gzip.GzipFile(fileobj=stored),
    ".xz": lzma.LZMAFile,
}


class Part(NamedTuple):
    """The lines of a file that begin in [start, stop), in bytes; stop None: to the end."""

    path: str
    start: int
    stop: int | None


def parts_of(file: FileMetadata, part_bytes: int = PART_BYTES) -> list[Part]:
    """The parts of a file, in order: about `part_bytes` each where it is plain, one where it is compressed.

    Errors: InputError when the file cannot be read.
    """
    if Path(file.path).suffix in DECOMPRESSED:
        return [Part(file.path, 0, None)]
    with opened(file.path) as content:
        edges = [0, *cuts(content, file.size_in_bytes, part_bytes), file.size_in_bytes]
    return [Part(file.path, start, stop) for start, stop in pairwise(edges)]


def cuts(content: Any, size: int, part_bytes: int) -> Iterator[int]:
    """Places, each behind a multiple of `part_bytes`, where a line has another query than the line before."""
    near = part_bytes
    while near < size:
        content.seek(near)
        content.readline(MAX_LINE_BYTES)  # the rest of some line
        query = b""
        while line := content.readline(MAX_LINE_BYTES):
            words = line.split(None, 2)
            if len(words) > 1:
                if query not in (b"", words[1]):
                    break
                query = words[1]
        else:
            return
        place = content.tell() - len(line)
        yield place
        near = max(near + part_bytes, place)


def read_documents(part: Part, features: int) -> Iterator[Document]:
    """A part's documents. Errors: InputError naming file and line where one is no document, or the file is damaged."""
    reader = LineReader(features)
    with opened(part.path) as content:
        for number, line in enumerate(lines_of(content, part), start=1):
            try:
                document = reader.read(line)
            except MalformedLineError as error:
                where = f"{part.path}, line {lines_before(part) + number}"
                raise InputError(f"{where}: {error}. Correct the line, or remove it") from None
            if document is not None:
                yield document


def lines_of(content: Any, part: Part) -> Iterator[bytes]:
    place = content.seek(part.start)
    while (part.stop is None or place < part.stop) and (line := content.readline(MAX_LINE_BYTES)):
        place += len(line)
        yield line


def lines_before(part: Part) -> int:
    """The lines of the file that begin before the part."""
    with opened(part.path) as content:
        return sum(1 for _ in lines_of(content, Part(part.path, 0, part.start)))


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """A file's content, decompressed where its name says so. Errors: InputError when it is damaged or ends early."""
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as stored:
            decompressed = DECOMPRESSED.get(Path(path).suffix)
            yield decompressed(stored) if decompressed else stored
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"cannot read {path} to its end: {error}; give the whole, undamaged file") from None
