"""The backends by name. Each is imported when it is asked for: what it brings takes time and memory."""

from collections.abc import Callable

from features.errors import InputError
from serving.backend import Backend
from serving.model_store import VerifiedModel
from serving.settings import Settings


def _embedded(model: VerifiedModel, settings: Settings) -> Backend:
    from serving.embedded import EmbeddedBackend

    return EmbeddedBackend(model)


def _litert(model: VerifiedModel, settings: Settings) -> Backend:
    from serving.litert import LiteRtBackend

    return LiteRtBackend(model, settings.litert, settings.queue.threads)


def _tf_serving(model: VerifiedModel, settings: Settings) -> Backend:
    from serving.remote import connection_to
    from serving.tf_serving import TensorFlowServingBackend

    return TensorFlowServingBackend(model, connection_to(settings.tf_serving))


BACKENDS: dict[str, Callable[[VerifiedModel, Settings], Backend]] = {
    "embedded": _embedded,
    "litert": _litert,
    "tf-serving": _tf_serving,
}


def backend_of(model: VerifiedModel, settings: Settings) -> Backend:
    """Loads the model into the backend that the settings name. Errors: InputError."""
    if settings.backend not in BACKENDS:
        raise InputError(f"backend {settings.backend!r} is unknown, expected one of {', '.join(BACKENDS)}")
    backend = BACKENDS[settings.backend](model, settings)
    if not settings.batching.calls or backend.compiles_shapes:  # for which more groups would be more shapes
        return backend
    from serving.batching import BatchingBackend

    return BatchingBackend(backend, model.manifest.spec, settings.batching.calls, settings.batching.groups)
