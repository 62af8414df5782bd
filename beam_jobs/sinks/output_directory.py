"""A job's output directory: ownership check, lock, publication."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from beam_jobs.storage.beam_store import beam_store_for
from features.errors import InputError
from features.local_store import is_local
from features.manifest import PublishedManifest
from features.publication import Publication, check_ownership, finish_killed_runs, unlisted_files_message

# Errors of a disk or mount during a job; any other OSError is a bug.
_STORAGE_ERRNOS = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EROFS", "EBUSY", "EIO", "EACCES", "EPERM")}


def check_output_directory(output: str) -> None:
    """Errors: InputError when `output` is a file, or holds files but no manifest of ours."""
    if is_local(output) and os.path.lexists(output) and not os.path.isdir(output):
        raise InputError(f"--output {output} is a file, expected a directory to write: give another path")
    check_ownership(beam_store_for(output), output)


@contextmanager
def new_output_version(output: str) -> Iterator[Publication]:
    """Begins a new version of `output`; the block writes and publishes it.

    Unpublished files are removed when the block ends. The former version stays until a new one is published.
    Errors: InputError when another job is writing the same local output, or `output` cannot be written.
    """
    output = output.rstrip("/")
    with output_lock(output), _storage_errors(output):
        store = beam_store_for(output)
        finish_killed_runs(store, output, alone=is_local(output))
        version = Publication(store, output)
        try:
            version.begin()
            yield version
        finally:
            version.abandon()


def finish_killed_output(output: str) -> None:
    """Cleans up after killed runs in an up-to-date output, unless another job is writing it."""
    try:
        with output_lock(output):
            finish_killed_runs(beam_store_for(output), output, alone=is_local(output))
    except InputError:
        return


def print_unlisted_files(output: str, manifest: PublishedManifest) -> None:
    """Prints a message about files in `output` that the manifest does not list."""
    if message := unlisted_files_message(beam_store_for(output), output, manifest):
        print(message, flush=True)


@contextmanager
def output_lock(output: str) -> Iterator[None]:
    """Locks a local output against other jobs on this machine. Object stores need no lock."""
    if not is_local(output):
        yield
        return
    parent, name = os.path.split(output)
    try:
        os.makedirs(parent or ".", exist_ok=True)
        lock = open(os.path.join(parent, f".{name}.lock"), "w")  # noqa: SIM115 - held until the block ends
    except OSError as error:
        raise InputError(f"cannot write --output {output}: {error.strerror}; give a path that can be written") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another job is writing {output}: wait for it, or give another --output") from None
        yield


@contextmanager
def _storage_errors(output: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_local(output) or error.errno not in _STORAGE_ERRNOS:
            raise
        raise write_error(output, str(error)) from None


def write_error(output: str, fault: str) -> InputError:
    """Makes the error for a full disk or a failing mount."""
    return InputError(
        f"--output {output} could not be written: {fault}; what was there before stays as it was. Make room or mend "
        "the place, or give another --output, and run the command again"
    )
