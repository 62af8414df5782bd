"""Reads, writes and globs files through Beam's filesystems."""

import os
from collections.abc import Sequence

from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

from beam_jobs.storage.beam_store import beam_store_for
from features.errors import InputError
from features.local_store import is_local
from features.manifest import FILE_NAME, ManifestT, parse_manifest, published_paths


def join_path(path: str, *names: str) -> str:
    return FileSystems.join(path, *names) if names else path


def read_bytes(path: str) -> bytes:
    """Errors: OSError (Beam raises its own kinds of it)."""
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        return bytes(file.read())


def write_bytes(path: str, content: bytes) -> None:
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(content)


def match_files(patterns: Sequence[str], what: str) -> list[FileMetadata]:
    """Returns the files that match the globs, sorted by path. A published directory is matched by its manifest.

    Errors: InputError when a pattern matches no file, or its filesystem cannot be read.
    """
    found: dict[str, FileMetadata] = {}
    for pattern in patterns:
        files = glob_files(pattern, what)
        if not files:
            raise InputError(f"{what} {pattern!r} matches no file: give paths or globs of existing files")
        found.update((entry.path, entry) for entry in files)
    return [found[path] for path in sorted(found)]


def glob_files(pattern: str, what: str) -> list[FileMetadata]:
    """Returns the files that match a glob, none if there are none. A published directory is matched by its manifest.

    what: the flag or setting that holds the pattern, for errors. Errors: InputError when it cannot be read.
    """
    try:
        folder, name = FileSystems.split(pattern)
        published = {}
        for manifest in _glob(join_path(folder, FILE_NAME)):
            parent = FileSystems.split(manifest.path)[0]
            names = published_paths(read_bytes(manifest.path), name)
            if names is not None:
                published[parent] = [join_path(parent, *stored.split("/")) for stored in names]
        found = [entry for entry in _glob(pattern) if FileSystems.split(entry.path)[0] not in published]
        for paths in published.values():
            found += [entry for path in paths for entry in _glob(path)]
    except Exception as error:  # Beam's filesystems raise many types; each means unreadable
        raise InputError(f"cannot list {what} {pattern!r}: {error}; give paths or globs of readable files") from None
    return found


def _glob(pattern: str) -> list[FileMetadata]:
    """Files that match a glob; no directories."""
    matched = FileSystems.match([pattern])[0].metadata_list
    return [entry for entry in matched if not (is_local(entry.path) and os.path.isdir(entry.path))]


def files_key(files: Sequence[FileMetadata]) -> list[tuple[str, int, float]]:
    """Identifies files for the stage key: path, size in bytes and modification time."""
    return [(entry.path, entry.size_in_bytes, entry.last_updated_in_seconds) for entry in files]


def existing_manifest(path: str, model: type[ManifestT]) -> ManifestT | None:
    """Reads the manifest of a directory; None where the directory is absent or incomplete.

    Errors: InputError when the manifest is of another kind, so that no job overwrites it.
    """
    manifest = f"{path.rstrip('/')}/{FILE_NAME}"
    content = beam_store_for(path).read(manifest)
    return None if content is None else parse_manifest(content, manifest, model)


def make_directory(path: str, mode: int = 0o777) -> None:
    """Creates a local directory; does nothing on an object store."""
    if is_local(path):
        os.makedirs(path, mode=mode, exist_ok=True)
