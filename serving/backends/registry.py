"""The backends by name. Each is imported only when it is used, since its imports cost time and memory."""

import gc
from collections.abc import Callable
from functools import cache

from features.errors import InputError
from serving.backends.base import Backend
from serving.exports.store import VerifiedModel
from serving.settings import Settings

_Factory = Callable[[VerifiedModel, Settings], Backend]


def _embedded() -> _Factory:
    from serving.backends.embedded import EmbeddedBackend

    return lambda model, settings: EmbeddedBackend(model)


def _litert() -> _Factory:
    from serving.backends.litert import LiteRtBackend

    return lambda model, settings: LiteRtBackend(model, settings.litert, settings.queue.threads)


def _tf_serving() -> _Factory:
    from serving.backends.tf_serving import TensorFlowServingBackend
    from serving.backends.tf_serving_channel import connection_to

    return lambda model, settings: TensorFlowServingBackend(model, connection_to(settings.tf_serving))


BACKENDS: dict[str, Callable[[], _Factory]] = {
    "embedded": _embedded,
    "litert": _litert,
    "tf-serving": _tf_serving,
}


def create_backend(model: VerifiedModel, settings: Settings) -> Backend:
    """Loads the model into the backend that the settings name. Raises: InputError."""
    if settings.backend not in BACKENDS:
        raise InputError(f"backend {settings.backend!r} is unknown, expected one of {', '.join(BACKENDS)}")
    make = BACKENDS[settings.backend]()
    _freeze_imports()
    backend = make(model, settings)
    if not settings.batching.calls or backend.compiles_shapes:  # merged calls would compile more shapes
        return backend
    from serving.backends.batching import BatchingBackend

    return BatchingBackend(backend, model.manifest.spec, settings.batching.calls, settings.batching.groups)


@cache
def _freeze_imports() -> None:
    """Excludes the 300,000 objects of the imported modules from garbage collection. Runs once in a process.

    A full collection of them stops all requests for a sixth of a second, and new connections under overload trigger
    such collections. A model's own objects stay collectable, so that they are freed when another version replaces it.
    """
    gc.freeze()
