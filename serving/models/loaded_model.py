"""Loaded models: the current version, the previous ones that stay in memory, and the shadow version."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from features.errors import InputError
from features.spec import FeatureSpec
from features.values import truncated_repr
from serving.models.compatibility import breaking_change
from serving.observability.request_record import RequestRecord
from serving.problems import Problem
from serving.ranking.rank_request import BatchReader, RequestReader, whole_number
from serving.ranking.rerank import shape_for
from serving.settings import Settings

if TYPE_CHECKING:  # imports TensorFlow, which `load` imports later
    from serving.ranking.ranker import RequestRanker


class LoadedModel:
    """A model that is verified, loaded and warmed up, with the reader of its requests. Created by `load` only."""

    def __init__(self, ranker: "RequestRanker", reader: RequestReader, warmed: int) -> None:
        self.ranker, self.reader, self.warmed = ranker, reader, warmed
        self.manifest = ranker.model.manifest
        self.name: str = self.manifest.name
        self.version: int = ranker.model.version
        self.spec: FeatureSpec = ranker.spec
        self.samples: tuple[dict[str, Any], ...] = self.manifest.warm_up
        self.rerank = shape_for(reader)
        self.batch = BatchReader(reader)


def load(settings: Settings, version: int, before: FeatureSpec | None = None) -> LoadedModel:
    """Copies, verifies, loads and warms up a version of the export directory. Takes seconds.

    before: the features of the version that clients know. This version must accept every request valid for it.
    Raises: InputError, StoreError.
    """
    # imported here, in the loading thread: TensorFlow takes seconds to import, and /livez answers meanwhile
    from serving.backends import registry as backends
    from serving.exports import store as model_store
    from serving.models import warm_up
    from serving.ranking import ranker as ranking

    with model_store.verified_copy(settings.export_dir, version, settings.reloading.version_bytes) as model:
        if before is not None and (change := breaking_change(before, model.manifest.spec)) is not None:
            remedy = "clients would have to change first. Then ask for it by its number, or start the gateway again"
            raise InputError(f"{model.source} {change}: {remedy}")
        ranker = ranking.RequestRanker(model, backends.create_backend(model, settings))
    # the private copy is removed here: a backend reads all its files while it is created
    reader = RequestReader(ranker.spec, settings.limits)
    return LoadedModel(ranker, reader, warm_up.warm_up(ranker, reader, settings.limits.items))


@dataclass(frozen=True, slots=True)
class Models:
    """The models that may answer at one moment. Immutable: a request uses the same Models from start to end."""

    current: LoadedModel
    resident: Mapping[int, LoadedModel]  # version -> model, includes current
    shadow: LoadedModel | None = None  # answers no request; see serving.models.shadow

    def requested(self, version: Any) -> LoadedModel:
        """Returns the model of a body's `model_version`; the current one if that is not a number. Raises: Problem."""
        number = whole_number(version)
        if number is None:  # absent, or invalid: then the reader refuses it
            return self.current
        if number not in self.resident:
            versions = ", ".join(map(str, sorted(self.resident)))
            detail = f"model_version is {truncated_repr(version)}, expected one in memory: {versions}"
            raise Problem("model-version-not-served", detail, "#/model_version")
        return self.resident[number]


Handler = Callable[[bytes, Models, RequestRecord], dict[str, Any]]
"""Maps a request body to the members of the response. Errors: Problem."""
