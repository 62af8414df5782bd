"""Publishes a finished SavedModel as the next numbered version below export/, where TF Serving and the gateway look.

On a local disk, its directory is renamed to a free number. Object stores cannot rename a directory: there the files are
copied one by one, saved_model.pb and the manifest last, to a number that no other export has reserved. A number is
never used twice, and no version is ever replaced or removed.
"""

import errno
import os
from contextlib import suppress
from datetime import UTC, datetime

import tensorflow as tf
from pydantic import ValidationError

from features.errors import InputError
from features.local_store import is_local
from features.manifest import FILE_NAME, RelativePath
from features.publication import ABANDONED_AFTER, Store
from features.task import Section
from trainer.storage.gfile_store import store_of

EXTRA = "assets.extra"  # SavedModel's own place for files that TensorFlow does not read
MANIFEST_PATH = f"{EXTRA}/{FILE_NAME}"
_COPIED_LAST = ("saved_model.pb", MANIFEST_PATH)  # in this order
_MAX_ATTEMPTS = 100  # version numbers tried while other exports run
_TARGET_EXISTS = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}  # errors of renaming a directory to an existing path


class Reservation(Section):
    """`export/reserved-<version>-<run>.json`: a version being copied. files: deleted if the copy stays incomplete."""

    version: int
    created: datetime
    files: tuple[RelativePath, ...]


def versions(root: str) -> list[int]:
    """Version numbers below `root`, ascending, complete or not."""
    names = tf.io.gfile.listdir(root) if tf.io.gfile.exists(root) else []
    return sorted(int(name.rstrip("/")) for name in names if name.rstrip("/").isdigit())


def place_version(directory: str, root: str, run: str) -> str:
    """Moves or copies a finished model to the next version. Returns the version's directory.

    run: a name unique to this export. Errors: InputError when other exports take too many numbers in a row.
    """
    if is_local(root):
        return _rename(directory, root)
    store = store_of(root)
    files = tuple(
        sorted(
            store.files(directory), key=lambda name: (_COPIED_LAST.index(name) if name in _COPIED_LAST else -1, name)
        )
    )
    reservation, version = _reserve(store, root, run, files)
    target = f"{root}/{version}"
    try:
        for name in files:
            tf.io.gfile.makedirs(f"{target}/{name}".rpartition("/")[0])
            tf.io.gfile.copy(f"{directory}/{name}", f"{target}/{name}")
    finally:
        _release(store, root, reservation)
    return target


def remove_abandoned_copies(root: str) -> None:
    """Removes the copied files of killed exports whose version is incomplete."""
    if is_local(root):
        return
    store = store_of(root)
    for name in _reservations(root):
        found = _read_reservation(store, root, name)
        if found is not None and datetime.now(UTC) - found.created > ABANDONED_AFTER:
            _release(store, root, name)


def _rename(directory: str, root: str) -> str:
    for version in range(_next_version(root), _next_version(root) + _MAX_ATTEMPTS):
        try:
            os.rename(directory, f"{root}/{version}")
        except OSError as error:
            if error.errno not in _TARGET_EXISTS:
                raise
        else:
            return f"{root}/{version}"
    raise _no_free_version(root)


def _reserve(store: Store, root: str, run: str, files: tuple[str, ...]) -> tuple[str, int]:
    """Reserves a version number: writes a reservation, then looks for others of the same number.

    Of two runs, at least the later one finds the other's reservation; a run that finds another tries the next number.
    """
    version = _next_version(root)
    for _ in range(_MAX_ATTEMPTS):
        name = f"reserved-{version}-{run}.json"
        reservation = Reservation(version=version, created=datetime.now(UTC), files=files)
        store.write(f"{root}/{name}", reservation.model_dump_json().encode())
        same = [other for other in _reservations(root) if other.startswith(f"reserved-{version}-")]
        if same == [name] and not tf.io.gfile.exists(f"{root}/{version}"):
            return name, version
        store.delete(root, [name])
        version = max(_next_version(root), version + 1 + same.index(name))
    raise _no_free_version(root)


def _release(store: Store, root: str, name: str) -> None:
    """Removes a reservation; if its version is incomplete, first the files that it lists."""
    found = _read_reservation(store, root, name)
    if found is None:
        return
    if not tf.io.gfile.exists(f"{root}/{found.version}/{MANIFEST_PATH}"):
        store.delete(f"{root}/{found.version}", found.files)
    store.delete(root, [name])


def _reservations(root: str) -> list[str]:
    names = tf.io.gfile.listdir(root) if tf.io.gfile.exists(root) else []
    return sorted(name for name in names if name.startswith("reserved-") and name.endswith(".json"))


def _read_reservation(store: Store, root: str, name: str) -> Reservation | None:
    with suppress(ValidationError):
        return Reservation.model_validate_json(store.read(f"{root}/{name}") or b"")
    return None  # not a reservation


def _next_version(root: str) -> int:
    return max(versions(root), default=0) + 1


def _no_free_version(root: str) -> InputError:
    return InputError(
        f"{root}: {_MAX_ATTEMPTS} versions in a row were taken by other exports, expected a free one: run again"
    )
