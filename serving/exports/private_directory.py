"""Temporary directories that only this user can read. If this process is killed, the next one removes them.

Each holds a file LOCK that its process keeps locked; the kernel unlocks it however the process ends.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "privrank-model-"
LOCK = "privrank.lock"


@contextmanager
def private_directory() -> Iterator[Path]:
    """Creates an empty directory (mode 0700) in the temporary directory; removes it at the end. Raises: OSError."""
    outer = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = -1
    try:
        lock = _locked(outer)
        inner = outer / "files"
        inner.mkdir(mode=0o700)
        yield inner
    finally:
        shutil.rmtree(outer, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def remove_stale_directories() -> list[str]:
    """Removes private directories of this user whose process has ended. Returns their paths."""
    removed: list[str] = []
    try:
        paths = sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    except OSError:  # no temporary directory: the first load reports it
        return removed
    for path in paths:
        with suppress(OSError):  # another process removes it at the same time
            if _is_ours(path) and _remove_unless_locked(path):
                removed.append(str(path))
    return removed


def _locked(directory: Path) -> int:
    """Creates LOCK, locked before it gets its name, so that no process takes the directory for stale."""
    new = directory / f"{LOCK}.new"
    descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    new.rename(directory / LOCK)
    return descriptor


def _is_ours(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700 and status.st_uid == os.geteuid()


def _remove_unless_locked(path: Path) -> bool:
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    finally:
        os.close(descriptor)
    return True
