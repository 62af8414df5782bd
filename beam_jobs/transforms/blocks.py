"""Lines on their way through a shuffle: thousands packed into one element, so that a runner moves few, and few bytes.

Lines that must come together have one key, and lines are shuffled by *shard*: the keys that share a remainder. Pure: no
Beam.
"""

import hashlib
from collections.abc import Iterable, Iterator

from isal import isal_zlib

BLOCK_BYTES = 256 * 1024  # of lines in a block, before they are packed
WAITING_BYTES = 64 * 1024 * 1024  # of lines that wait in all shards' unfinished blocks
KEY_BYTES = 24  # 96 bits, hexadecimal: so many keys that no two of a log are one

Block = bytes
"""Packed lines."""


class Packer:
    """Collects lines into blocks of `size` bytes, before they are packed."""

    def __init__(self, size: int = BLOCK_BYTES) -> None:
        self._size = size
        self._lines: list[bytes] = []
        self._bytes = 0

    def add(self, line: bytes) -> Block | None:
        """Returns the block when it is full."""
        self._lines.append(line)
        self._bytes += len(line)
        return None if self._bytes < self._size else self.rest()

    def rest(self) -> Block | None:
        """The lines that have waited for more, if there are any."""
        lines, self._lines, self._bytes = self._lines, [], 0
        return packed(lines) if lines else None


class Blocks:
    """Collects keyed lines into blocks, one for each shard at a time."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._size = min(BLOCK_BYTES, WAITING_BYTES // shards)
        self._packers: dict[int, Packer] = {}

    def add(self, key: str, line: bytes) -> tuple[int, Block] | None:
        """Returns (shard, its block) when that is full."""
        hashed = hashlib.blake2b(key.encode(), digest_size=KEY_BYTES // 2).hexdigest()
        shard = int(hashed[:8], 16) % self._shards
        if shard not in self._packers:
            self._packers[shard] = Packer(self._size)
        block = self._packers[shard].add(hashed.encode() + line)
        return None if block is None else (shard, block)

    def rest(self) -> Iterator[tuple[int, Block]]:
        """What has waited for more."""
        for shard, packer in self._packers.items():
            if block := packer.rest():
                yield shard, block


def packed(lines: Iterable[bytes]) -> Block:
    """Lines without line ends -> a block."""
    return bytes(isal_zlib.compress(b"\n".join(lines), 1))


def unpacked(block: Block) -> list[bytes]:
    """The lines of a block."""
    return bytes(isal_zlib.decompress(block)).split(b"\n")


def lines_by_key(blocks: Iterable[Block]) -> Iterator[list[bytes]]:
    """Each key's lines of a shard's blocks, keys in the order of their first lines."""
    keyed: dict[bytes, list[bytes]] = {}
    for block in blocks:
        for line in unpacked(block):
            keyed.setdefault(line[:KEY_BYTES], []).append(line[KEY_BYTES:])
    for key in list(keyed):
        yield keyed.pop(key)
