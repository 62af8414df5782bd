"""Values that are kept while there is room for them."""

from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class Kept(Generic[V]):
    """A mapping bounded in bytes: when it is full, what was not asked for since it was half full is forgotten.

    bytes_of: of a value; a key's own are added. Several threads may use it; two that miss the same key both put it.
    """

    def __init__(self, most_bytes: int, bytes_of: Callable[[V], int]) -> None:
        self._half, self._bytes_of = most_bytes // 2, bytes_of
        self._young: dict[bytes, V] = {}
        self._old: dict[bytes, V] = {}
        self._young_bytes = self._old_bytes = 0
        self.hits = self.misses = 0

    @property
    def nbytes(self) -> int:
        return self._young_bytes + self._old_bytes

    def get(self, key: bytes) -> V | None:
        """Counted as a hit or a miss."""
        value = self.again(key)
        if value is None:
            self.misses += 1
        else:
            self.hits += 1
        return value

    def again(self, key: bytes) -> V | None:
        """The same for who has asked already: not counted."""
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: bytes, value: V) -> None:
        size = len(key) + self._bytes_of(value)
        if size > self._half:
            return
        if self._young_bytes + size > self._half:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes = {}, 0
        if key not in self._young:
            self._young[key] = value
            self._young_bytes += size
