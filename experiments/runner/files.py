"""Writes the files of experiments."""

from pathlib import Path

from features.errors import InputError
from features.local_store import LocalStore


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file atomically and creates its directory. Errors: InputError."""
    try:
        LocalStore().write(str(path), content)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; name a writable place") from None
