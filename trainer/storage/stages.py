"""A stage's directory: made beside its place, completed by its manifest, moved there, and skipped when up to date."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from features.errors import InputError
from features.manifest import FILE_NAME, Manifest, ManifestT, parse_manifest


class StageManifest(Manifest):
    """A directory inside a run: a trained model, a teacher's scores."""

    kind: str = "stage"


def read_manifest(directory: str, model: type[ManifestT]) -> ManifestT:
    """The manifest of a complete directory. Errors: InputError when there is none, or it is of another kind."""
    path = f"{directory}/{FILE_NAME}"
    content = read_file(path, f"{directory} is not complete, for it has no {FILE_NAME}: make it again")
    return parse_manifest(content, path, model)


def read_file(path: str, remedy: str) -> bytes:
    """A file's bytes. Errors: InputError with the remedy when it cannot be read."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content: bytes = file.read()
            return content
    except tf.errors.OpError as error:
        reason = "no such file" if isinstance(error, tf.errors.NotFoundError) else error.message
        raise InputError(f"cannot read {path} ({reason}): {remedy}") from None


def write_file(path: str, content: bytes) -> None:
    """Writes a file, whole or not at all, and before it the directories that it needs. Errors: InputError."""
    staging = f"{path}.partial"
    try:
        tf.io.gfile.makedirs(path.rpartition("/")[0] or ".")
        with tf.io.gfile.GFile(staging, "wb") as file:
            file.write(content)
        tf.io.gfile.rename(staging, path, overwrite=True)
    except tf.errors.OpError as error:
        raise InputError(f"cannot write {path}: {error.message}; name a writable place") from None


def is_up_to_date(directory: str, key: str) -> bool:
    """Whether a complete stage with this very key lies there."""
    if not tf.io.gfile.exists(f"{directory}/{FILE_NAME}"):
        return False
    try:
        return read_manifest(directory, StageManifest).stage_key == key
    except InputError:  # of an older format, or damaged: made again
        return False


def make_stage(directory: str, key: str, make: Callable[[str], dict[str, Any]]) -> bool:
    """Runs `make(staging directory)` unless the stage is up to date; returns whether it ran.

    What `make` returns goes into the manifest's options. A stage that fails leaves what was there before.
    """
    if is_up_to_date(directory, key):
        print(f"  up to date: {directory}", flush=True)
        return False
    staging = f"{directory}.partial"
    if tf.io.gfile.exists(staging):
        tf.io.gfile.rmtree(staging)
    tf.io.gfile.makedirs(staging)
    options = make(staging)
    write_file(f"{staging}/{FILE_NAME}", StageManifest(stage_key=key, options=options).to_bytes())
    replace_directory(staging, directory)
    return True


def replace_directory(staging: str, directory: str) -> None:
    """Moves a complete directory into its place, over the former one."""
    if tf.io.gfile.exists(directory):
        tf.io.gfile.rmtree(directory)
    tf.io.gfile.rename(staging, directory)
