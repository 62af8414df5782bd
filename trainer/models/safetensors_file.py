"""Reads a safetensors file into float32 arrays, without torch."""

import numpy as np
import safetensors
import tensorflow as tf
from numpy.typing import NDArray

from features.errors import InputError
from trainer.storage.stages import read_file

MAX_BYTES = 4 << 30  # of one file
FLOAT_TYPES = ("F32", "F16", "BF16")
REMEDY = "give the model.safetensors of a BERT-family encoder"

Array = NDArray[np.float32]


def read_tensors(path: str) -> dict[str, Array]:
    """The floating-point tensors of a safetensors file, by name, as float32.

    Tensors of other types (position ids) are left out. The bytes are read through tf.io.gfile.
    Errors: InputError for a file that is missing, too large, cut short or not safetensors, or that holds float64 or
    8-bit floats.
    """
    _refuse_large(path)
    try:
        tensors = safetensors.deserialize(read_file(path, REMEDY))
    except safetensors.SafetensorError as error:
        raise InputError(f"{path} is not a complete safetensors file ({error}): {REMEDY}") from None
    found = {}
    for name, tensor in tensors:
        if tensor["dtype"] in FLOAT_TYPES:
            found[name] = _as_float32(tensor["dtype"], tensor["data"]).reshape(tensor["shape"])
        elif tensor["dtype"].startswith(("F", "BF")):
            raise InputError(
                f"{path}: tensor {name!r} has dtype {tensor['dtype']}, expected {', '.join(FLOAT_TYPES)}: convert it"
            )
    return found


def _refuse_large(path: str) -> None:
    try:
        size = tf.io.gfile.stat(path).length
    except tf.errors.OpError:
        return  # reading says why
    if size > MAX_BYTES:
        raise InputError(f"{path} has {size:,} bytes, expected at most {MAX_BYTES:,}: {REMEDY}")


def _as_float32(dtype: str, data: bytes) -> Array:
    if dtype == "BF16":  # the upper half of a float32; NumPy has no such type
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float32)
