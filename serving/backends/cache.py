"""A cache bounded in bytes."""

from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class BoundedCache(Generic[V]):
    """A mapping bounded in bytes, with approximate LRU eviction in two generations.

    New and requested entries go to the recent generation. When it is half of the bound, it becomes the old generation,
    and the previous old generation is evicted.
    bytes_of: the size of a value; the size of its key is added. Thread-safe: two threads that miss the same key both
    put it.
    """

    def __init__(self, max_bytes: int, bytes_of: Callable[[V], int]) -> None:
        self._max_recent_bytes, self._bytes_of = max_bytes // 2, bytes_of
        self._recent: dict[bytes, V] = {}
        self._old: dict[bytes, V] = {}
        self._recent_bytes = self._old_bytes = 0
        self.hits = self.misses = 0

    @property
    def nbytes(self) -> int:
        return self._recent_bytes + self._old_bytes

    def get(self, key: bytes) -> V | None:
        """Returns the value or None, and counts a hit or a miss."""
        value = self.peek(key)
        if value is None:
            self.misses += 1
        else:
            self.hits += 1
        return value

    def peek(self, key: bytes) -> V | None:
        """Like `get`, for a repeated request: not counted."""
        value = self._recent.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: bytes, value: V) -> None:
        """Stores the value, unless it is larger than half of the bound."""
        size = len(key) + self._bytes_of(value)
        if size > self._max_recent_bytes:
            return
        if self._recent_bytes + size > self._max_recent_bytes:
            self._old, self._old_bytes = self._recent, self._recent_bytes
            self._recent, self._recent_bytes = {}, 0
        if key not in self._recent:
            self._recent[key] = value
            self._recent_bytes += size
