"""Health and metadata as the Open Inference Protocol (KServe's v2) has them. Ranking stays at /v1/rank."""

from typing import Any

from features.spec import Feature
from serving.problems import Problem
from serving.served import Models, Served

SERVER = {"name": "privrank", "version": "1", "extensions": []}
PLATFORM = "tensorflow_savedmodel"
DATATYPES = {"text": "BYTES", "categorical": "BYTES", "float": "FP32", "int": "INT64", "bool": "BOOL"}


def model_of(models: Models, name: str, version: str | None) -> Served:
    """The model of this name, and of this version where one is named. Errors: Problem model-not-served."""
    by_number = {str(number): served for number, served in models.resident.items()}
    model = models.current if version is None else by_number.get(version)
    if model is None or model.name != name:
        held = ", ".join(f"{number} of {served.name}" for number, served in by_number.items())
        asked = name[:60] if version is None else f"version {version[:20]} of {name[:60]}"
        raise Problem("model-not-served", f"{asked!r} is not in memory, only {held}")
    return model


def metadata(served: Served, models: Models) -> dict[str, Any]:
    """The model's inputs and outputs, those of its signature `rank`. Sizes that a request decides are -1."""
    versions = sorted(version for version, model in models.resident.items() if model.name == served.name)
    count = {"name": "item_count", "datatype": "INT32", "shape": [-1]}
    return {
        "name": served.name,
        "versions": [str(version) for version in versions],
        "platform": PLATFORM,
        "inputs": [*(_tensor(feature) for feature in served.spec.regular), count],
        "outputs": [{"name": "score", "datatype": "FP32", "shape": [-1, -1]}],
    }


def _tensor(feature: Feature) -> dict[str, Any]:
    groups_and_items = [-1] if feature.level == "context" else [-1, -1]
    vector = [feature.length] if feature.length > 1 else []
    return {"name": feature.name, "datatype": DATATYPES[feature.type], "shape": groups_and_items + vector}
