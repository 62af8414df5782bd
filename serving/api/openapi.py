"""The OpenAPI document of the gateway, built for the loaded model."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from features.spec import FeatureSpec
from serving.api.json_schemas import (
    BATCH_RESPONSE,
    PROBLEM,
    RERANK_RESPONSE,
    RESPONSE,
    Json,
    batch_schema,
    request_schema,
    rerank_schema,
)
from serving.models.loaded_model import LoadedModel
from serving.problems import MEDIA_TYPE
from serving.ranking.request_queue import MAX_TIMEOUT_MS
from serving.ranking.rerank import RerankShape
from serving.settings import Settings


def example_request(samples: tuple[Json, ...], spec: FeatureSpec) -> Json:
    """Returns an example request: the model's first warm-up request, or placeholder values."""
    if samples:
        return samples[0]
    plain: Json = {"text": "blue sofa", "categorical": "navy", "float": 0.5, "int": 1, "bool": False}

    def values(level: Any) -> Json:
        features = sorted(spec.at(level, spec.regular), key=lambda feature: not feature.is_text)
        return {f.name: [0.5] * f.length if f.length > 1 else plain[f.type] for f in features}

    return values("context") | {"items": [{"id": "p1"} | values("item"), {"id": "p2"} | values("item")]}


def rerank_example(example: Json, shape: RerankShape) -> Json:
    """Converts an example of /rank to /v1/rerank."""
    context = {name: value for name, value in example.items() if name in shape.names - {shape.query}}
    documents = [_document(item, shape) for item in example["items"]]
    return {"query": example[shape.query], **context, "documents": documents, "top_n": 2}


def _document(item: Any, shape: RerankShape) -> Any:
    if isinstance(item, str):
        return item
    values = {"text" if name == shape.text else name: value for name, value in item.items() if name != "id"}
    return values["text"] if set(values) == {"text"} else values


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A ranking endpoint, as described by the reference page and the OpenAPI document."""

    path: str
    summary: str
    request: Json
    response: Json
    example: Json


def endpoints_of(served: LoadedModel, settings: Settings) -> list[Endpoint]:
    """Describes the ranking endpoints of a model. If keys are set, the examples contain no data of the model."""
    limits = settings.limits
    rank_schema = request_schema(served.spec, served.reader.bare, limits)
    example = example_request(() if settings.api_keys else served.samples, served.spec)
    endpoints = [
        Endpoint("/v1/rank", "Rank items for one query", rank_schema, RESPONSE, example),
        Endpoint(
            "/v1/rank/batch",
            "Rank items for several queries, each with its own ranking or problem",
            batch_schema(rank_schema, limits),
            BATCH_RESPONSE,
            {"queries": [example, example]},
        ),
    ]
    if (shape := served.rerank) is not None:
        schema, rerank_body = rerank_schema(rank_schema, shape), rerank_example(example, shape)
        endpoints.append(
            Endpoint("/v1/rerank", "Rank documents, in the common rerank shape", schema, RERANK_RESPONSE, rerank_body)
        )
    return endpoints


def openapi_of(served: LoadedModel, settings: Settings) -> Json:
    """Returns the OpenAPI 3.1 document."""
    posts = {endpoint.path: {"post": _post(endpoint)} for endpoint in endpoints_of(served, settings)}
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": "PrivRank gateway", "version": "1"},
        "paths": {**posts, "/rank": posts["/v1/rank"], **deepcopy(_READS)},
    }
    if settings.api_keys:
        document["components"] = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        for path in (*posts, "/rank", *_READS_WITH_KEY):
            for operation in document["paths"][path].values():
                operation["security"] = [{"key": []}]
    return document


def _post(endpoint: Endpoint) -> Json:
    body = {"schema": endpoint.request, "example": endpoint.example}
    return {
        "summary": endpoint.summary,
        "parameters": _REQUEST_HEADERS,
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": {
            "200": _answer("The ranking", endpoint.response) | {"headers": _RESPONSE_HEADERS},
            "default": _problem(),
        },
    }


def _header(name: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


def _answer(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _problem() -> Json:
    return {"description": "An error (RFC 9457 problem details)", "content": {MEDIA_TYPE: {"schema": PROBLEM}}}


def _get(summary: str, schema: Json, *parameters: str) -> Json:
    read: Json = {"summary": summary, "responses": {"200": _answer(summary, schema), "default": _problem()}}
    if parameters:
        text = {"type": "string"}
        read["parameters"] = [{"name": p, "in": "path", "required": True, "schema": text} for p in parameters]
    return {"get": read}


_REQUEST_HEADERS = [
    _header("X-Request-ID", {"type": "string"}, "returned in the response, and logged"),
    _header(
        "X-Request-Timeout-Ms",
        {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
        "time limit in milliseconds; after it, 504",
    ),
    _header("traceparent", {"type": "string"}, "W3C trace context; the response's header has the gateway's span"),
]
_RESPONSE_HEADERS = {
    name: {"schema": {"type": "string"}} for name in ("X-Request-ID", "X-Model-Version", "Server-Timing", "traceparent")
}
_STATUS: Json = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}
_READINESS: Json = {
    "type": "object",
    "required": ["status", "model"],
    "properties": {"status": {"type": "string"}, "model": {"type": "object"}, "warning": {"type": "string"}},
}
_READY: Json = {"type": "object", "required": ["ready"], "properties": {"ready": {"type": "boolean"}}}
_LIVE: Json = {"type": "object", "required": ["live"], "properties": {"live": {"type": "boolean"}}}
_MODEL: Json = {"type": "object", "required": ["name", "versions", "platform", "inputs", "outputs"]}
_READS_WITH_KEY: Json = {
    "/v2/models/{name}": _get("The model's inputs and outputs", _MODEL, "name"),
    "/v2/models/{name}/versions/{version}": _get("A version's inputs and outputs", _MODEL, "name", "version"),
    "/v2/models/{name}/ready": _get("The model can rank", _READY, "name"),
    "/v2/models/{name}/versions/{version}/ready": _get("The version is in memory", _READY, "name", "version"),
}
_READS: Json = {
    "/livez": _get("The process runs", _STATUS),
    "/readyz": _get("A model is loaded and warmed, and the gateway is not shutting down", _READINESS),
    "/v2/health/live": _get("The process runs", _LIVE),
    "/v2/health/ready": _get("As /readyz", _READY),
    **_READS_WITH_KEY,
}
