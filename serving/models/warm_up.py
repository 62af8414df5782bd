"""Warms a loaded model up before it becomes ready, since its first calls are the slowest."""

from typing import Any

import orjson

from features.errors import InputError
from features.spec import Feature
from serving.backends.item_buckets import ITEM_BUCKETS
from serving.observability.request_record import RequestRecord
from serving.observability.trace_context import span_of
from serving.problems import Problem
from serving.ranking.rank_request import RequestReader
from serving.ranking.ranker import RequestRanker


def warm_up(ranker: RequestRanker, reader: RequestReader, max_items: int) -> int:
    """Ranks the manifest's requests, then one for each item bucket up to max_items. Returns the number of requests.

    Raises: InputError if the model cannot answer one of them; it must then not become ready.
    """
    requests = list(ranker.model.manifest.warm_up)
    requests += [
        synthetic_request(ranker, min(bucket, max_items)) for bucket in ITEM_BUCKETS if bucket // 2 < max_items
    ]
    for number, request in enumerate(requests):
        if (problem := _problem_with(request, ranker, reader)) is not None:
            place = f" at {problem.pointer}" if problem.pointer else ""
            detail = f"{ranker.model.source} cannot answer its warm-up request {number}: {problem.detail}{place}"
            raise InputError(f"{detail}. Export the model again")
    return len(requests)


def _problem_with(request: dict[str, Any], ranker: RequestRanker, reader: RequestReader) -> Problem | None:
    """Returns why the model cannot answer the request, or None."""
    record = RequestRecord("warm-up", span_of(""))
    try:
        [ranking] = ranker.rank([reader.read(orjson.dumps(request))], record)
    except Problem as problem:
        return problem
    return ranking if isinstance(ranking, Problem) else None


def synthetic_request(ranker: RequestRanker, items: int) -> dict[str, Any]:
    """Returns a request of that many items, with values of the manifest's first warm-up request, or placeholders."""
    samples = ranker.model.manifest.warm_up
    context = {f.name: _placeholder(f) for f in ranker.spec.at("context", ranker.spec.regular)}
    item: Any = {f.name: _placeholder(f) for f in ranker.spec.at("item", ranker.spec.regular)}
    if samples:
        context |= {name: value for name, value in samples[0].items() if name in context}
        sampled = samples[0].get("items") or [item]
        item = sampled[0]
    if isinstance(item, dict):
        item = {name: value for name, value in item.items() if name != "id"}
    return context | {"items": [item] * items}


def _placeholder(feature: Feature) -> Any:
    if feature.length > 1:
        return [0.0] * feature.length
    return {"text": "warm up", "categorical": "warm up", "float": 0.0, "int": 0, "bool": False}[feature.type]
