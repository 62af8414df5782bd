"""Hashes that are the same on every machine and in every run. Pure: no Beam."""

import hashlib
from collections.abc import Iterable


class Hash64:
    """64-bit hashes of (parts, text), the same on every machine and in every run."""

    def __init__(self, *parts: object) -> None:
        self._started = hashlib.blake2b("".join([f"{part}\x1f" for part in parts]).encode(), digest_size=8)

    def of(self, text: str) -> int:
        return int.from_bytes(self.digests((text,))[0], "big")

    def digests(self, texts: Iterable[str]) -> list[bytes]:
        """Returns the hashes as 8 big-endian bytes each, which sort like the numbers of `of`."""
        start, found = self._started.copy, []
        for text in texts:
            hashed = start()
            hashed.update(text.encode())
            found.append(hashed.digest())
        return found
