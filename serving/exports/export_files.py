"""Reads an export directory from any store that tf.io.gfile supports. Store failures raise StoreError."""

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from features.errors import InputError
from serving.exports.store_error import StoreError

_CHUNK_BYTES = 8 << 20
_PERMANENT_ERRORS = (
    tf.errors.FailedPreconditionError,  # not a directory
    tf.errors.InvalidArgumentError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnimplementedError,  # a scheme that TensorFlow does not know
)


@contextmanager
def store_errors(action: str, remedy: str) -> Iterator[None]:
    """Raises: InputError for a missing path, StoreError for any other failure of the store or the local disk."""
    try:
        yield
    except (tf.errors.NotFoundError, FileNotFoundError) as error:
        raise InputError(f"cannot {action}: {_message_of(error)}. {remedy}") from None
    except tf.errors.OpError as error:
        transient = not isinstance(error, _PERMANENT_ERRORS)
        raise StoreError(f"cannot {action}: {type(error).__name__}: {_message_of(error)}", transient) from None
    except OSError as error:
        raise StoreError(f"cannot {action}: {error}", transient=True) from None


def list_directory(path: str, remedy: str) -> list[str]:
    """Returns the names in a directory. Raises: InputError, StoreError."""
    with store_errors(f"list export directory {path}", remedy):
        return [name.rstrip("/") for name in tf.io.gfile.listdir(path)]


def exists(path: str) -> bool:
    """Returns whether a path exists. Raises: StoreError."""
    with store_errors(f"look for {path}", ""):
        return bool(tf.io.gfile.exists(path))


def sizes_below(path: str, remedy: str) -> dict[str, int]:
    """Returns the size in bytes of each file below a directory, by relative path. Raises: InputError, StoreError."""
    with store_errors(f"list {path}", remedy):
        walked = tf.io.gfile.walk(path, onerror=_raise)
        files = [posixpath.join(folder, name) for folder, _, names in walked for name in names]
        stats = {file: tf.io.gfile.stat(file) for file in files}
    for file, statistics in stats.items():
        if statistics.is_directory:  # `walk` lists a directory as a file if the store fails to answer
            raise StoreError(f"cannot list {file}: the store did not say that it is a directory", transient=True)
    return {posixpath.relpath(file, path): statistics.length for file, statistics in stats.items()}


def read_store_file(path: str, max_bytes: int, remedy: str) -> bytes:
    """Returns a file's content. Raises: InputError if it is missing or above max_bytes, StoreError."""
    with store_errors(f"read {path}", remedy), tf.io.gfile.GFile(path, "rb") as file:
        content: bytes = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise InputError(f"{path} has more than {max_bytes} bytes. {remedy}")
    return content


def copy_file(source: str, target: str, max_bytes: int, remedy: str) -> None:
    """Copies a file to a new local file. Raises: InputError if it is missing or above max_bytes, StoreError."""
    copied = 0
    with store_errors(f"copy {source}", remedy), tf.io.gfile.GFile(source, "rb") as read, open(target, "xb") as write:
        while chunk := read.read(_CHUNK_BYTES):
            copied += len(chunk)
            if copied > max_bytes:
                raise InputError(f"{source} has more than {max_bytes} bytes, as it had before the copy. {remedy}")
            write.write(chunk)


def _raise(error: tf.errors.OpError) -> None:
    """Makes `walk` raise for a directory that cannot be listed; by default it skips it."""
    raise error


def _message_of(error: Exception) -> str:
    message = getattr(error, "message", None) or str(error)
    return message.split(";")[-1].strip() or type(error).__name__
