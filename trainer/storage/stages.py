"""Stages: directories that are complete once they have a manifest, replaced atomically, and skipped when up to date."""

import glob
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import tensorflow as tf

from features.errors import InputError
from features.manifest import FILE_NAME, Manifest, ManifestT, PublishedManifest, parse_manifest, published_paths
from features.publication import Publication, check_ownership, unlisted_files_message
from trainer.storage.gfile_store import store_of, writing_to


class StageManifest(PublishedManifest):
    """Manifest of a directory inside a run: a trained model or a teacher's scores."""

    kind: str = "stage"


class RunManifest(Manifest):
    """Manifest of a run's directory."""

    kind: str = "run"


_OVERWRITTEN_FILES = ("config.yaml", "metrics.json", "metrics_per_group.npz", "report.html", "comparison.json")


def read_manifest(directory: str, model: type[ManifestT]) -> ManifestT:
    """Reads the manifest of a complete directory. Errors: InputError when it is missing or of another kind."""
    path = f"{directory}/{FILE_NAME}"
    content = read_file(path, f"{directory} is not complete, for it has no {FILE_NAME}: make it again")
    return parse_manifest(content, path, model)


def read_file(path: str, remedy: str) -> bytes:
    """Reads a file. Errors: InputError with `remedy` when it cannot be read."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content: bytes = file.read()
            return content
    except tf.errors.OpError as error:
        reason = "no such file" if isinstance(error, tf.errors.NotFoundError) else error.message
        raise InputError(f"cannot read {path} ({reason}): {remedy}") from None


def write_file(path: str, content: bytes) -> None:
    """Writes a file atomically and creates its parent directories. Errors: InputError."""
    staging = f"{path}.{os.urandom(4).hex()}.partial"
    try:
        tf.io.gfile.makedirs(path.rpartition("/")[0] or ".")
        with tf.io.gfile.GFile(staging, "wb") as file:
            file.write(content)
        tf.io.gfile.rename(staging, path, overwrite=True)
    except tf.errors.OpError as error:
        with suppress(tf.errors.OpError):
            tf.io.gfile.remove(staging)
        raise InputError(f"cannot write {path}: {error.message}; name a writable place") from None


def is_up_to_date(directory: str, key: str) -> bool:
    """Whether the directory holds a complete stage with this key."""
    if not tf.io.gfile.exists(f"{directory}/{FILE_NAME}"):
        return False
    try:
        found = read_manifest(directory, StageManifest)
    except InputError:  # older format or damaged: the stage is made again
        return False
    return found.stage_key == key and found.run is not None


def stage_folder(directory: str) -> str:
    """The folder of a complete stage's files. Errors: InputError when there is none."""
    run = read_manifest(directory, StageManifest).run
    if run is None:
        raise InputError(f"{directory} was made by an older version of this program: make it again")
    return f"{directory}/{run}"


def make_stage(directory: str, key: str, make: Callable[[str], dict[str, Any]]) -> bool:
    """Runs `make(folder to write to)` unless the stage is up to date; returns whether it ran.

    The manifest's options are what `make` returns. A stage that fails leaves the previous one in place.
    Errors: InputError when the directory is not a stage.
    """
    if is_up_to_date(directory, key):
        print(f"  up to date: {directory}", flush=True)
        return False
    check_ownership(store_of(directory), directory)
    with writing_to(directory) as store:
        version = Publication(store, directory)
        try:
            version.begin()
            tf.io.gfile.makedirs(version.folder)
            manifest = version.publish(StageManifest(stage_key=key, options=make(version.folder)))
        finally:
            version.abandon()
    if message := unlisted_files_message(store, directory, manifest):
        print(f"  {message}", flush=True)
    return True


def claim_workdir(workdir: str, name: str) -> None:
    """Marks a directory as a run's. Errors: InputError when it holds other files that a run would overwrite."""
    if tf.io.gfile.exists(f"{workdir}/{FILE_NAME}"):
        read_manifest(workdir, RunManifest)
        return
    for written in _OVERWRITTEN_FILES:
        if tf.io.gfile.exists(f"{workdir}/{written}"):
            raise InputError(
                f"{workdir} holds {written} but no {FILE_NAME} of a run, so it is not ours to write over: give another "
                "--workdir, or move the file"
            )
    write_file(f"{workdir}/{FILE_NAME}", RunManifest(stage_key=name).to_bytes())


def published_path(path: str) -> str:
    """The stored path of a file in a published directory, such as logs/relevance.tsv.gz; other paths unchanged."""
    folder, _, name = path.rpartition("/")
    for _ in range(2):  # a dataset's files are in one folder for each split
        content = store_of(path).read(f"{folder}/{FILE_NAME}") if folder else None
        if content is not None and (stored := published_paths(content, glob.escape(name))):
            return f"{folder}/{stored[0]}"
        folder, _, parent = folder.rpartition("/")
        name = f"{parent}/{name}"
    return path
