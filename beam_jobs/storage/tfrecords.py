"""Writes (gzipped) and reads TFRecord files without TensorFlow."""

import hashlib
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import BinaryIO

import google_crc32c
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from isal import isal_zlib

from features.manifest import StoredFile

_COMPRESSION_LEVEL = 2  # ISA-L's level: many times as fast as gzip's level 6, for somewhat larger files
_GZIP_WBITS = 31  # zlib: gzip format, largest window
_HEADER_BYTES = 12  # of a record: its length, and the length's checksum


class GzipWriter:
    """Compresses bytes into an open file, deterministically. After `finish` it knows the file's size and SHA-256."""

    def __init__(self, stored: BinaryIO) -> None:
        self._stored, self._packer = stored, isal_zlib.compressobj(_COMPRESSION_LEVEL, wbits=_GZIP_WBITS)
        self._hash, self._size = hashlib.sha256(), 0

    def __call__(self, content: bytes) -> None:
        self._write(self._packer.compress(content))

    def finish(self) -> None:
        self._write(self._packer.flush())

    def stored_file(self) -> StoredFile:
        return StoredFile(bytes=self._size, sha256=self._hash.hexdigest())

    def _write(self, packed: bytes) -> None:
        self._hash.update(packed)
        self._size += len(packed)
        self._stored.write(packed)


@contextmanager
def gzip_writer(path: str) -> Iterator[GzipWriter]:
    """Opens a GzipWriter; the file is complete when the block ends."""
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as stored:
        writer = GzipWriter(stored)
        yield writer
        writer.finish()


@contextmanager
def record_writer(path: str) -> Iterator[Callable[[bytes], None]]:
    """As `gzip_writer`, but each write is one TFRecord."""
    with gzip_writer(path) as write:
        yield lambda record: write(frame_record(record))


def frame_record(record: bytes) -> bytes:
    return b"".join((_header(len(record)), record, masked_crc32c(record)))


@lru_cache(maxsize=1 << 14)
def _header(size: int) -> bytes:
    length = struct.pack("<Q", size)
    return length + masked_crc32c(length)


def masked_crc32c(content: bytes) -> bytes:
    """CRC-32C, rotated and offset as the TFRecord format requires."""
    crc = google_crc32c.value(content)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def read_records(file: BinaryIO) -> Iterator[bytes]:
    """Yields the records of an open, decompressed TFRecord file. Errors: ValueError when it is truncated or damaged."""
    while head := file.read(_HEADER_BYTES):
        length = _checked(head, _HEADER_BYTES - 4)
        (size,) = struct.unpack("<Q", length)
        yield _checked(file.read(size + 4), size)


def _checked(stored: bytes, size: int) -> bytes:
    content, crc = stored[:size], stored[size:]
    if len(crc) < 4:
        raise ValueError("the file ends within a record")
    if masked_crc32c(content) != crc:
        raise ValueError("a record's checksum is wrong")
    return content
