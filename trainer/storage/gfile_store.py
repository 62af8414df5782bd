"""A `features.publication.Store` on tf.io.gfile, for object stores; local disks use `LocalStore`."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import tensorflow as tf

from features.local_store import LocalStore, is_local
from features.publication import CLAIM_FILE, RUN_NAME, Store, finish_killed_runs


def store_of(path: str) -> Store:
    """The store of a path's filesystem."""
    return LocalStore() if is_local(path) else GfileStore()


@contextmanager
def writing_to(directory: str) -> Iterator[Store]:
    """Cleans up what killed runs left in a published directory, then yields its store for writing.

    Local runs hold a shared lock while they write, so a run that gets the exclusive lock knows that no other is alive.
    """
    store = store_of(directory)
    if not is_local(directory):
        finish_killed_runs(store, directory, alone=False)
        yield store
        return
    parent, name = os.path.split(directory)
    os.makedirs(parent or ".", exist_ok=True)
    with open(os.path.join(parent, f".{name}.lock"), "w") as lock:
        alone = True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            alone = False
        finish_killed_runs(store, directory, alone)
        with suppress(OSError):  # a filesystem without locks: no run ever gets the exclusive lock
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield store


class GfileStore:
    """Objects by full path. A written file appears when it is closed; directories are neither renamed nor removed."""

    def read(self, path: str) -> bytes | None:
        try:
            with tf.io.gfile.GFile(path, "rb") as file:
                content: bytes = file.read()
                return content
        except tf.errors.NotFoundError:
            return None

    def write(self, path: str, content: bytes) -> None:
        tf.io.gfile.makedirs(path.rpartition("/")[0])
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(content)

    def replace(self, path: str, content: bytes, former: bytes | None, draft: str) -> bool:
        """Compares, writes and reads again, because tf.io.gfile has no conditional write."""
        if self.read(path) != former:
            return False
        self.write(path, content)
        return self.read(path) == content

    def files(self, folder: str, most: int | None = None) -> list[str]:
        found: list[str] = []
        if tf.io.gfile.isdir(folder):
            for root, _, names in tf.io.gfile.walk(folder):
                below = root.rstrip("/").removeprefix(folder.rstrip("/")).strip("/")
                found += [f"{below}/{name}".lstrip("/") for name in names]
                if most is not None and len(found) >= most:
                    break
        return sorted(found[:most])

    def claims(self, directory: str) -> list[str]:
        if not tf.io.gfile.isdir(directory):
            return []
        names = [name.rstrip("/") for name in tf.io.gfile.listdir(directory)]
        return sorted(n for n in names if RUN_NAME.fullmatch(n) and tf.io.gfile.exists(f"{directory}/{n}/{CLAIM_FILE}"))

    def delete(self, folder: str, names: Sequence[str]) -> None:
        for name in names:
            with suppress(tf.errors.NotFoundError):
                tf.io.gfile.remove(f"{folder}/{name}")
