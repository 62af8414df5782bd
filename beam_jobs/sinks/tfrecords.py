"""TFRecord files, written (gzipped) and read without TensorFlow."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import BinaryIO

import google_crc32c
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from isal import isal_zlib

COMPRESSION = 2  # ISA-L's level: many times as fast as gzip's level 6, for somewhat larger files
GZIP = 31  # zlib's number for gzip's format and the widest window
HEAD_BYTES = 12  # of a record: its length, and the length's checksum


@contextmanager
def gzip_writer(path: str) -> Iterator[Callable[[bytes], None]]:
    """A function that writes bytes; the file is complete when the block ends. The same bytes make the same file."""
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as stored:
        packer = isal_zlib.compressobj(COMPRESSION, wbits=GZIP)

        def write(content: bytes) -> None:
            stored.write(packer.compress(content))

        yield write
        stored.write(packer.flush())


@contextmanager
def record_writer(path: str) -> Iterator[Callable[[bytes], None]]:
    """As `gzip_writer`, of records."""
    with gzip_writer(path) as write:
        yield lambda record: write(framed(record))


def framed(record: bytes) -> bytes:
    return b"".join((_head(len(record)), record, checksum(record)))


@lru_cache(maxsize=1 << 14)
def _head(size: int) -> bytes:
    length = struct.pack("<Q", size)
    return length + checksum(length)


def checksum(content: bytes) -> bytes:
    """CRC-32C, rotated and shifted as TFRecords want it."""
    crc = google_crc32c.value(content)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def read_records(file: BinaryIO) -> Iterator[bytes]:
    """The records of an open TFRecord file, decompressed. Errors: ValueError where it is cut short or damaged."""
    while head := file.read(HEAD_BYTES):
        length = _checked(head, HEAD_BYTES - 4)
        (size,) = struct.unpack("<Q", length)
        yield _checked(file.read(size + 4), size)


def _checked(stored: bytes, size: int) -> bytes:
    content, crc = stored[:size], stored[size:]
    if len(crc) < 4:
        raise ValueError("the file ends within a record")
    if checksum(content) != crc:
        raise ValueError("a record's checksum is wrong")
    return content
