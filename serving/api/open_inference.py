"""Health and metadata of the Open Inference Protocol (KServe v2). Ranking is served at /v1/rank only."""

from typing import Any

from features.spec import Feature
from serving.models.loaded_model import LoadedModel, Models
from serving.problems import Problem

SERVER = {"name": "privrank", "version": "1", "extensions": []}
_PLATFORM = "tensorflow_savedmodel"
_DATATYPES = {"text": "BYTES", "categorical": "BYTES", "float": "FP32", "int": "INT64", "bool": "BOOL"}


def find_model(models: Models, name: str, version: str | None) -> LoadedModel:
    """Returns the model of this name, and of this version if one is given. Errors: Problem model-not-served."""
    by_number = {str(number): served for number, served in models.resident.items()}
    model = models.current if version is None else by_number.get(version)
    if model is None or model.name != name:
        resident = ", ".join(f"{number} of {served.name}" for number, served in by_number.items())
        requested = name[:60] if version is None else f"version {version[:20]} of {name[:60]}"
        raise Problem("model-not-served", f"{requested!r} is not in memory, only {resident}")
    return model


def metadata(served: LoadedModel, models: Models) -> dict[str, Any]:
    """Returns the inputs and outputs of the model's signature `rank`. Dimensions that depend on the request are -1."""
    versions = sorted(version for version, model in models.resident.items() if model.name == served.name)
    count = {"name": "item_count", "datatype": "INT32", "shape": [-1]}
    return {
        "name": served.name,
        "versions": [str(version) for version in versions],
        "platform": _PLATFORM,
        "inputs": [*(_tensor(feature) for feature in served.spec.regular), count],
        "outputs": [{"name": "score", "datatype": "FP32", "shape": [-1, -1]}],
    }


def _tensor(feature: Feature) -> dict[str, Any]:
    groups_and_items = [-1] if feature.level == "context" else [-1, -1]
    vector = [feature.length] if feature.length > 1 else []
    return {"name": feature.name, "datatype": _DATATYPES[feature.type], "shape": groups_and_items + vector}
