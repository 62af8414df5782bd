"""Finds the version to serve in an export directory, and verifies it before anything of it is loaded."""

import hashlib
import posixpath
import re
from dataclasses import dataclass

import tensorflow as tf

from features import manifest as manifests
from features.errors import InputError
from features.manifest import ModelManifest, parse_manifest
from serving.graph_check import check_graph

MANIFEST = f"assets.extra/{manifests.FILE_NAME}"
PIN = "serve_version"  # a file beside the versions that names the one to serve, instead of the highest
REMEDY = "Give --export-dir the `export` directory of a finished run"
_VERSION = re.compile(r"0|[1-9][0-9]{0,17}")
_CHUNK = 1 << 20  # bytes read at once for a hash


@dataclass(frozen=True, slots=True)
class VerifiedModel:
    """A version directory whose every file is what its manifest says, and whose graph may be loaded."""

    path: str
    version: int
    manifest: ModelManifest


def complete_versions(export_dir: str) -> list[int]:
    """The complete versions, ascending: directories with a number for a name, and a manifest, which is written last.

    Errors: InputError where there is none.
    """
    try:
        names = [name.rstrip("/") for name in tf.io.gfile.listdir(export_dir)]
    except tf.errors.OpError as error:
        raise InputError(f"cannot list export directory {export_dir}: {_reason(error)}. {REMEDY}") from None
    versions = sorted(int(name) for name in names if _VERSION.fullmatch(name))
    complete = [v for v in versions if tf.io.gfile.exists(posixpath.join(export_dir, str(v), MANIFEST))]
    if not complete:
        found = f"incomplete versions {versions}" if versions else f"{len(names)} other entries"
        raise InputError(f"{export_dir} holds no complete version (<number>/{MANIFEST}), only {found}. {REMEDY}")
    return complete


def find_version(export_dir: str) -> int:
    """The highest complete version. Errors: InputError."""
    return complete_versions(export_dir)[-1]


def pinned_version(export_dir: str) -> int | None:
    """The version that the file PIN names, or None where there is no such file. Errors: InputError."""
    path = posixpath.join(export_dir, PIN)
    if not tf.io.gfile.exists(path):
        return None
    content = read_file(path)[:100].decode(errors="replace").strip()
    if not _VERSION.fullmatch(content):
        raise InputError(f"{path} holds {content!r}, expected the number of a version. Correct or remove it")
    return int(content)


def verify(export_dir: str, version: int) -> VerifiedModel:
    """Errors: InputError when a file differs from the manifest, is missing or unlisted, or the graph is refused."""
    path = posixpath.join(export_dir, str(version))
    manifest = parse_manifest(read_file(posixpath.join(path, MANIFEST)), posixpath.join(path, MANIFEST), ModelManifest)
    if (found := manifest.spec.fingerprint) != manifest.fingerprint:
        told = f"fingerprint {manifest.fingerprint[:12]}, but its features have {found[:12]}"
        raise InputError(f"{path}/{MANIFEST} says {told}. Export the model again")
    _check_files(path, manifest)
    graph = posixpath.join(path, "saved_model.pb")
    check_graph(read_file(graph), manifest.spec, graph)
    return VerifiedModel(path, version, manifest)


def _check_files(path: str, manifest: ModelManifest) -> None:
    remedy = "The directory was changed after its export: copy it again whole, or export again"
    present = set(_files_below(path)) - {MANIFEST}
    if surplus := present - manifest.files.keys():
        raise InputError(f"{path} holds {sorted(surplus)[0]}, which its manifest does not list. {remedy}")
    if missing := manifest.files.keys() - present:
        raise InputError(f"{path} lacks {sorted(missing)[0]}, which its manifest lists. {remedy}")
    for name, expected in sorted(manifest.files.items()):
        found = _sha256(posixpath.join(path, name))
        if found != expected:
            raise InputError(f"{path}/{name} has SHA-256 {found[:12]}..., expected {expected[:12]}... . {remedy}")
    if "saved_model.pb" not in present:
        raise InputError(f"{path} holds no saved_model.pb. {remedy}")


def _files_below(path: str) -> list[str]:
    found = []
    for folder, _, names in tf.io.gfile.walk(path):
        found += [posixpath.relpath(posixpath.join(folder, name), path) for name in names]
    return found


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def read_file(path: str) -> bytes:
    """A file of a version. Errors: InputError."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return bytes(file.read())
    except tf.errors.OpError as error:
        raise InputError(f"cannot read {path}: {_reason(error)}. Export the model again") from None


def _reason(error: tf.errors.OpError) -> str:
    return error.message.split(";")[-1].strip() or type(error).__name__
