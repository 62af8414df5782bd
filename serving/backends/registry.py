"""The backends by name. Each is imported when it is asked for: what it brings takes time and memory."""

import gc
from collections.abc import Callable
from functools import cache

from features.errors import InputError
from serving.backend import Backend
from serving.model_store import VerifiedModel
from serving.settings import Settings

Maker = Callable[[VerifiedModel, Settings], Backend]


def _embedded() -> Maker:
    from serving.embedded import EmbeddedBackend

    return lambda model, settings: EmbeddedBackend(model)


def _litert() -> Maker:
    from serving.litert import LiteRtBackend

    return lambda model, settings: LiteRtBackend(model, settings.litert, settings.queue.threads)


def _tf_serving() -> Maker:
    from serving.remote import connection_to
    from serving.tf_serving import TensorFlowServingBackend

    return lambda model, settings: TensorFlowServingBackend(model, connection_to(settings.tf_serving))


BACKENDS: dict[str, Callable[[], Maker]] = {
    "embedded": _embedded,
    "litert": _litert,
    "tf-serving": _tf_serving,
}


def backend_of(model: VerifiedModel, settings: Settings) -> Backend:
    """Loads the model into the backend that the settings name. Errors: InputError."""
    if settings.backend not in BACKENDS:
        raise InputError(f"backend {settings.backend!r} is unknown, expected one of {', '.join(BACKENDS)}")
    make = BACKENDS[settings.backend]()
    _spare_imports()
    backend = make(model, settings)
    if not settings.batching.calls or backend.compiles_shapes:  # for which more groups would be more shapes
        return backend
    from serving.batching import BatchingBackend

    return BatchingBackend(backend, model.manifest.spec, settings.batching.calls, settings.batching.groups)


@cache
def _spare_imports() -> None:
    """Once: no collection of garbage goes through the 300,000 objects of the modules, which takes a sixth of a second.

    Everybody would wait for it, most of all under overload, whose new connections bring full collections about. What a
    model brings is not spared, or it would stay when another one has taken its place.
    """
    gc.freeze()
