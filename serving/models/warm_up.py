"""Makes a loaded model fast before it is called ready: its first calls are its slowest."""

from typing import Any

from features.errors import InputError
from features.spec import Feature
from serving.problems import Problem
from serving.ranking import BUCKETS, Ranker
from serving.record import Record
from serving.schemas import RequestReader
from serving.trace_context import span_of


def warm_up(ranker: Ranker, reader: RequestReader, most_items: int) -> int:
    """Ranks the manifest's requests, then one of every bucket's size up to `most_items`. Returns how many.

    Errors: InputError when the model cannot answer one of them: it must not become ready.
    """
    requests = list(ranker.model.manifest.warm_up)
    requests += [synthetic_request(ranker, min(bucket, most_items)) for bucket in BUCKETS if bucket // 2 < most_items]
    for number, request in enumerate(requests):
        if (problem := _problem_with(request, ranker, reader)) is not None:
            place = f" at {problem.pointer}" if problem.pointer else ""
            told = f"{ranker.model.path} cannot answer its warm-up request {number}: {problem.detail}{place}"
            raise InputError(f"{told}. Export the model again")
    return len(requests)


def _problem_with(request: dict[str, Any], ranker: Ranker, reader: RequestReader) -> Problem | None:
    """Why it cannot be answered, or None."""
    record = Record("warm-up", span_of(""))
    try:
        [ranking] = ranker.rank([reader.check(request)], record)
    except Problem as problem:
        return problem
    return ranking if isinstance(ranking, Problem) else None


def synthetic_request(ranker: Ranker, items: int) -> dict[str, Any]:
    """A request of that many items: the manifest's own values repeated, or plain ones where it has none."""
    samples = ranker.model.manifest.warm_up
    context = {f.name: _plain(f) for f in ranker.spec.at("context", ranker.spec.regular)}
    item: Any = {f.name: _plain(f) for f in ranker.spec.at("item", ranker.spec.regular)}
    if samples:
        context |= {name: value for name, value in samples[0].items() if name in context}
        sampled = samples[0].get("items") or [item]
        item = sampled[0]
    if isinstance(item, dict):
        item = {name: value for name, value in item.items() if name != "id"}
    return context | {"items": [item] * items}


def _plain(feature: Feature) -> Any:
    if feature.length > 1:
        return [0.0] * feature.length
    return {"text": "warm up", "categorical": "warm up", "float": 0.0, "int": 0, "bool": False}[feature.type]
