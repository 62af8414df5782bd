"""Finds the versions in an export directory, and makes a verified private copy of one to load."""

import hashlib
import posixpath
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from features import manifest as manifests
from features.errors import InputError
from features.manifest import ModelManifest, parse_manifest
from serving.exports.export_files import copy_file, exists, list_directory, read_store_file, sizes_below, store_errors
from serving.exports.graph.check import check_graph
from serving.exports.private_directory import private_directory
from serving.settings import MAX_VERSION_BYTES

_MANIFEST = f"assets.extra/{manifests.FILE_NAME}"
PIN = "serve_version"  # a file beside the versions that names the version to serve instead of the highest
_REMEDY = "Give --export-dir the `export` directory of a finished run"
_EXPORT_AGAIN = "Export the model again"
_COPY_AGAIN = "The directory was changed after its export: copy it again whole, or export again"
_MAX_MANIFEST_BYTES = 16 << 20
_MAX_PIN_BYTES = 100
_VERSION = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class VerifiedModel:
    """A private copy of a version whose files match its manifest and whose graph passed `check_graph`.

    path: the local directory of the copy; it is removed after a backend has loaded it.
    source: the version's directory in the export directory, for messages.
    """

    path: str
    source: str
    version: int
    manifest: ModelManifest


def complete_versions(export_dir: str) -> list[int]:
    """Returns the complete versions, ascending: numbered directories with a manifest, which is written last.

    Raises: InputError if there is none, StoreError.
    """
    names = list_directory(export_dir, _REMEDY)
    versions = sorted(int(name) for name in names if _VERSION.fullmatch(name))
    complete = [v for v in versions if exists(posixpath.join(export_dir, str(v), _MANIFEST))]
    if not complete:
        found = f"incomplete versions {versions}" if versions else f"{len(names)} other entries"
        raise InputError(f"{export_dir} holds no complete version (<number>/{_MANIFEST}), only {found}. {_REMEDY}")
    return complete


def find_version(export_dir: str) -> int:
    """Returns the highest complete version. Raises: InputError, StoreError."""
    return complete_versions(export_dir)[-1]


def pinned_version(export_dir: str) -> int | None:
    """Returns the version that the file PIN names, or None without such a file. Raises: InputError, StoreError."""
    path = posixpath.join(export_dir, PIN)
    if not exists(path):
        return None
    remedy = "Correct or remove it"
    content = read_store_file(path, _MAX_PIN_BYTES, remedy).decode(errors="replace").strip()
    if not _VERSION.fullmatch(content):
        raise InputError(f"{path} holds {content!r}, expected the number of a version. {remedy}")
    return int(content)


@contextmanager
def verified_copy(export_dir: str, version: int, max_bytes: int = MAX_VERSION_BYTES) -> Iterator[VerifiedModel]:
    """Copies a version into a private directory, verifies the copy, and removes it at the end.

    Each file of the export directory is read once, so that the verified bytes are the loaded bytes.
    max_bytes: limit on the total size of the version's files.
    Raises: InputError when a file differs from the manifest, is missing or unlisted, or the graph is refused;
    StoreError.
    """
    source = posixpath.join(export_dir, str(version))
    manifest = _read_manifest(posixpath.join(source, _MANIFEST))
    sizes = _sizes_of(source, manifest, max_bytes)
    with ExitStack() as directories:
        with store_errors(f"copy {source} into the temporary directory", "Set TMPDIR to a directory that exists"):
            path = directories.enter_context(private_directory())
            _copy(source, sizes, path)
            _check_hashes(source, path, manifest)
            graph = (path / "saved_model.pb").read_bytes()
        check_graph(graph, manifest.spec, posixpath.join(source, "saved_model.pb"))
        yield VerifiedModel(str(path), source, version, manifest)


def _read_manifest(path: str) -> ModelManifest:
    manifest = parse_manifest(read_store_file(path, _MAX_MANIFEST_BYTES, _EXPORT_AGAIN), path, ModelManifest)
    if (found := manifest.spec.fingerprint) != manifest.fingerprint:
        detail = f"fingerprint {manifest.fingerprint[:12]}, but its features have {found[:12]}"
        raise InputError(f"{path} says {detail}. {_EXPORT_AGAIN}")
    return manifest


def _sizes_of(source: str, manifest: ModelManifest, max_bytes: int) -> dict[str, int]:
    """Returns the size of each file. Raises: InputError if the files are not exactly those that the manifest lists."""
    sizes = sizes_below(source, _COPY_AGAIN)
    present = sizes.keys() - {_MANIFEST}
    if surplus := present - manifest.files.keys():
        raise InputError(f"{source} holds {sorted(surplus)[0]}, which its manifest does not list. {_COPY_AGAIN}")
    if missing := manifest.files.keys() - present:
        raise InputError(f"{source} lacks {sorted(missing)[0]}, which its manifest lists. {_COPY_AGAIN}")
    if "saved_model.pb" not in present:
        raise InputError(f"{source} holds no saved_model.pb. {_COPY_AGAIN}")
    total = sum(sizes[name] for name in present)
    if total > max_bytes:
        remedy = "Raise `reloading.version_bytes` if the model is meant to be that large"
        raise InputError(f"{source} has {total} bytes, expected at most {max_bytes}. {remedy}")
    return {name: sizes[name] for name in present}


def _copy(source: str, sizes: Mapping[str, int], path: Path) -> None:
    needed, free = sum(sizes.values()), shutil.disk_usage(path).free
    if needed > free:
        remedy = "Set TMPDIR to a directory with more space"
        raise InputError(f"{source} has {needed} bytes, but the temporary directory has {free} free. {remedy}")
    for name, size in sorted(sizes.items()):
        target = path / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy_file(posixpath.join(source, name), str(target), size, _COPY_AGAIN)


def _check_hashes(source: str, path: Path, manifest: ModelManifest) -> None:
    for name, expected in sorted(manifest.files.items()):
        with (path / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected:
            message = f"{source}/{name} has SHA-256 {found[:12]}..., expected {expected[:12]}..."
            raise InputError(f"{message} . {_COPY_AGAIN}")
