"""Compresses thousands of lines into one element, so that a shuffle moves few elements and bytes. Pure: no Beam.

Lines that must come together share a key. Lines are shuffled by *shard*: the hash of the key modulo the shard count.
"""

import hashlib
from collections.abc import Iterable, Iterator

from isal import isal_zlib

BLOCK_BYTES = 256 * 1024  # of lines in a block, uncompressed
WAITING_BYTES = 64 * 1024 * 1024  # of lines in all shards' unfinished blocks, uncompressed
KEY_BYTES = 24  # 96 bits, hexadecimal: no collisions within a log

LineBlock = bytes
"""Compressed lines."""


class Packer:
    """Collects lines into blocks of `size` uncompressed bytes."""

    def __init__(self, size: int = BLOCK_BYTES) -> None:
        self._size = size
        self._lines: list[bytes] = []
        self._bytes = 0

    def add(self, line: bytes) -> LineBlock | None:
        """Returns the block when it is full."""
        self._lines.append(line)
        self._bytes += len(line)
        return None if self._bytes < self._size else self.flush()

    def flush(self) -> LineBlock | None:
        """Returns the unfinished block, if it has lines."""
        lines, self._lines, self._bytes = self._lines, [], 0
        return pack_lines(lines) if lines else None


class Blocks:
    """Collects keyed lines into one block per shard at a time."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._size = min(BLOCK_BYTES, WAITING_BYTES // shards)
        self._packers: dict[int, Packer] = {}

    def add(self, key: str, line: bytes) -> tuple[int, LineBlock] | None:
        """Returns (shard, block) when the shard's block is full."""
        hashed = hashlib.blake2b(key.encode(), digest_size=KEY_BYTES // 2).hexdigest()
        shard = int(hashed[:8], 16) % self._shards
        if shard not in self._packers:
            self._packers[shard] = Packer(self._size)
        block = self._packers[shard].add(hashed.encode() + line)
        return None if block is None else (shard, block)

    def flush(self) -> Iterator[tuple[int, LineBlock]]:
        """Yields the unfinished blocks."""
        for shard, packer in self._packers.items():
            if block := packer.flush():
                yield shard, block


def pack_lines(lines: Iterable[bytes]) -> LineBlock:
    """Compresses lines (without line ends) into a block."""
    return bytes(isal_zlib.compress(b"\n".join(lines), 1))


def unpack_lines(block: LineBlock) -> list[bytes]:
    """The lines of a block."""
    return bytes(isal_zlib.decompress(block)).split(b"\n")


def lines_by_key(blocks: Iterable[LineBlock]) -> Iterator[list[bytes]]:
    """Yields the lines of each key in a shard's blocks, keys in order of first appearance."""
    keyed: dict[bytes, list[bytes]] = {}
    for block in blocks:
        for line in unpack_lines(block):
            keyed.setdefault(line[:KEY_BYTES], []).append(line[KEY_BYTES:])
    for key in list(keyed):
        yield keyed.pop(key)
