"""Directories that appear whole or not at all, on local disks and object stores, through Beam's filesystems.

A directory is complete when its manifest.json is there. A job writes into a hidden sibling and publishes it:

- locally by renaming, so that the former directory stays until the new one is whole;
- on an object store, which renames no directory, by deleting the old manifest, moving file by file, the manifest last.
"""

import errno
import fcntl
import glob
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

from beam_jobs.dates import PLACE, Days
from features.errors import InputError
from features.manifest import FILE_NAME, ManifestT, parse_manifest

# What a disk or its mounts do to a job that has begun; other errors are our own.
FAULTS_OF_A_PLACE = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EROFS", "EBUSY", "EIO", "EACCES", "EPERM")}


def is_local(path: str) -> bool:
    return "://" not in path


def join(path: str, *names: str) -> str:
    return FileSystems.join(path, *names) if names else path


def read_bytes(path: str) -> bytes:
    """Errors: OSError (Beam raises its own kinds of it)."""
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        return bytes(file.read())


def write_bytes(path: str, content: bytes) -> None:
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(content)


def match_files(patterns: Sequence[str], what: str) -> list[FileMetadata]:
    """The files that the patterns (globs) match, by path.

    Errors: InputError when a pattern matches none, or its filesystem is not there.
    """
    found: dict[str, FileMetadata] = {}
    for pattern in patterns:
        files = _matching(pattern, what)
        if not files:
            raise InputError(f"{what} {pattern!r} matches no file: give paths or globs of existing files")
        found.update((entry.path, entry) for entry in files)
    return [found[path] for path in sorted(found)]


def match_daily_files(patterns: Sequence[str], days: Days | None, what: str) -> tuple[list[FileMetadata], list[str]]:
    """The files of all the days, by path, and the paths of days before the last one that match no file.

    Errors: InputError when the last day's match none, or a pattern asks for days and there are none.
    """
    if days is None:
        if dated := [pattern for pattern in patterns if PLACE in pattern]:
            raise InputError(f"{what} {dated[0]!r} asks for days: give --date too")
        return match_files(patterns, what), []
    daily = [days.paths(pattern) for pattern in patterns]
    files = {entry.path: entry for entry in match_files([paths[0] for paths in daily], what)}
    missing = []
    for path in (path for paths in daily for path in paths[1:]):
        matched = _matching(path, what)
        files.update((entry.path, entry) for entry in matched)
        missing += [] if matched else [path]
    return [files[path] for path in sorted(files)], sorted(missing)


def _matching(pattern: str, what: str) -> list[FileMetadata]:
    try:
        matched = FileSystems.match([pattern])[0].metadata_list
    except Exception as error:  # Beam's filesystems raise many kinds; each means that nothing can be read
        raise InputError(f"cannot list {what} {pattern!r}: {error}; give paths or globs of readable files") from None
    return [entry for entry in matched if not (is_local(entry.path) and os.path.isdir(entry.path))]


def files_key(files: Sequence[FileMetadata]) -> list[tuple[str, int, float]]:
    """What decides that files are the same as at the last run: path, bytes and time of change."""
    return [(entry.path, entry.size_in_bytes, entry.last_updated_in_seconds) for entry in files]


def existing_manifest(path: str, model: type[ManifestT]) -> ManifestT | None:
    """The manifest of a complete directory; None where the directory is not there or not complete.

    Errors: InputError when the directory holds a manifest of something else, so that no job overwrites it.
    """
    manifest = join(path, FILE_NAME)
    if not FileSystems.exists(manifest):
        return None
    return parse_manifest(read_bytes(manifest), manifest, model)


def refuse_foreign(output: str, ours: str = FILE_NAME) -> None:
    """Errors: InputError when `output` is a file, or a local directory without `ours`, a file that our jobs write."""
    if not is_local(output) or not os.path.lexists(output):
        return
    if not os.path.isdir(output):
        raise InputError(f"--output {output} is a file, expected a directory to write: give another path")
    if os.listdir(output) and not os.path.exists(join(output, ours)):
        raise InputError(
            f"--output {output} holds files but no {ours}, so it is not ours to replace: give another path"
        )


@contextmanager
def building(output: str) -> Iterator[str]:
    """A directory to write what shall become `output`: published when the block ends, removed when it fails.

    Errors: InputError when another job is writing the same output, or the place cannot be written, or no longer can.
    """
    output = output.rstrip("/")
    if is_local(output):
        with _building_locally(Path(output)) as staging:
            yield staging
        return
    staging = staging_beside(output)
    try:
        yield staging
        publish_files(staging, output)
    finally:
        remove_tree(staging)


def staging_beside(output: str) -> str:
    """A path of this run alone: workers of an earlier one, whose command was killed, may still write into theirs."""
    parent, name = FileSystems.split(output)
    return join(parent, f".{name}.building-{os.urandom(4).hex()}")


@contextmanager
def _building_locally(output: Path) -> Iterator[str]:
    staging = Path(staging_beside(str(output)))
    former = output.parent / f".{output.name}.former"
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        lock = open(output.parent / f".{output.name}.lock", "w")  # noqa: SIM115 - held to the end of the block
    except OSError as error:
        raise InputError(f"cannot write --output {output}: {error.strerror}; give a path that can be written") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another job is writing {output}: wait for it, or give another --output") from None
        if former.exists() and not output.exists():
            former.rename(output)  # a run was killed between its two renames
        for left in output.parent.glob(f".{glob.escape(output.name)}.building-????????"):
            shutil.rmtree(left, ignore_errors=True)
        staging.mkdir()
        try:
            yield str(staging)
            shutil.rmtree(former, ignore_errors=True)
            if output.exists():
                output.rename(former)
            staging.rename(output)
            shutil.rmtree(former, ignore_errors=True)
        except OSError as error:
            if error.errno not in FAULTS_OF_A_PLACE:
                raise
            raise failed_write(str(output), str(error)) from None
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def failed_write(output: str, fault: str) -> InputError:
    """What a full disk or a failing rename becomes, wherever it strikes."""
    return InputError(
        f"--output {output} could not be written: {fault}; what was there before stays as it was. Make room or mend "
        "the place, or give another --output, and run the command again"
    )


def publish_files(staging: str, output: str) -> None:
    """Moves a finished directory where no directory can be renamed. Without its manifest `output` is not complete."""
    clear(output)
    prefix = staging.rstrip("/") + "/"
    names = sorted(path.removeprefix(prefix) for path in _files_under(staging))
    names.sort(key=lambda name: name == FILE_NAME)  # the manifest last
    for name in names:
        target = join(output, *name.split("/"))
        make_directory(FileSystems.split(target)[0])
        FileSystems.rename([join(staging, *name.split("/"))], [target])


def clear(output: str) -> None:
    """Removes a former directory, its manifest first: without it, it is not complete."""
    manifest = join(output, FILE_NAME)
    if FileSystems.exists(manifest):
        FileSystems.delete([manifest])
    remove_tree(output)


def make_directory(path: str, mode: int = 0o777) -> None:
    """Makes a directory where there are any; object stores have none."""
    if is_local(path):
        os.makedirs(path, mode=mode, exist_ok=True)


def remove_tree(path: str) -> None:
    """Removes all files under `path`, if any."""
    if is_local(path):
        shutil.rmtree(path, ignore_errors=True)
    elif found := _files_under(path):
        FileSystems.delete(found)


def _files_under(path: str) -> list[str]:
    if is_local(path):
        return [str(entry) for entry in Path(path).rglob("*") if entry.is_file()]
    return [entry.path for entry in FileSystems.match([path.rstrip("/") + "/**"])[0].metadata_list]
