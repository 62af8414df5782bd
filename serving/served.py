"""Models that are ready: one is served, and those before it stay in memory for a while."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from features.errors import InputError
from features.spec import FeatureSpec
from features.values import shown
from serving.compatibility import breaking_change
from serving.problems import Problem
from serving.rerank import shape_for
from serving.schemas import RequestReader, whole_number
from serving.settings import Settings

if TYPE_CHECKING:  # its import brings TensorFlow, which `load` brings when it is time
    from serving.ranking import Ranker


class Served:
    """A model that is verified, loaded and warmed, with the reader of its requests. `load` is the only maker."""

    def __init__(self, ranker: "Ranker", reader: RequestReader, warmed: int) -> None:
        self.ranker, self.reader, self.warmed = ranker, reader, warmed
        self.manifest = ranker.model.manifest
        self.name: str = self.manifest.name
        self.version: int = ranker.model.version
        self.spec: FeatureSpec = ranker.spec
        self.samples: tuple[dict[str, Any], ...] = self.manifest.warm_up
        self.rerank = shape_for(reader)


def load(settings: Settings, version: int, before: FeatureSpec | None = None) -> Served:
    """Verifies, loads and warms a version of the export directory. Takes seconds.

    before: the features that clients know; the version must take whatever request was right for them.
    Errors: InputError.
    """
    # imported here, in the loading thread: TensorFlow takes seconds to import, and /livez answers meanwhile
    from serving import backends, model_store, ranking, warm_up

    model = model_store.verify(settings.export_dir, version)
    if before is not None and (change := breaking_change(before, model.manifest.spec)) is not None:
        told = "clients would have to change first. Then ask for it by its number, or start the gateway again"
        raise InputError(f"{model.path} {change}: {told}")
    ranker = ranking.Ranker(model, backends.backend_of(model, settings))
    reader = RequestReader(ranker.spec, settings.limits)
    return Served(ranker, reader, warm_up.warm_up(ranker, reader, settings.limits.items))


@dataclass(frozen=True, slots=True)
class Models:
    """What may answer at one moment. It never changes, it is replaced: a request keeps the one that it began with."""

    current: Served
    resident: Mapping[int, Served]  # version -> model; current among them
    shadow: Served | None = None  # answers nobody; see serving.shadow

    def asked_by(self, body: Any) -> Served:
        """The model that a parsed body of /rank names with `model_version`, else the current one. Errors: Problem."""
        asked = whole_number(body.get("model_version")) if isinstance(body, dict) else None
        if asked is None:  # what is no version, the reader refuses
            return self.current
        if asked not in self.resident:
            held = ", ".join(map(str, sorted(self.resident)))
            told = f"model_version is {shown(asked)}, expected one in memory: {held}"
            raise Problem("model-version-not-served", told, "#/model_version")
        return self.resident[asked]
