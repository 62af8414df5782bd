"""Gzipped TFRecord files, written without TensorFlow."""

import gzip
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import google_crc32c
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

COMPRESSION = 6  # gzip's level


@contextmanager
def record_writer(path: str) -> Iterator[Callable[[bytes], None]]:
    """A function that writes one record; the file is complete when the block ends. The same records, the same bytes."""
    with (
        FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as stored,
        gzip.GzipFile("", "wb", COMPRESSION, stored, mtime=0) as file,
    ):

        def write(record: bytes) -> None:
            file.write(framed(record))

        yield write


def framed(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return b"".join((length, checksum(length), record, checksum(record)))


def checksum(content: bytes) -> bytes:
    """CRC-32C, rotated and shifted as TFRecords want it."""
    crc = google_crc32c.value(content)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)
