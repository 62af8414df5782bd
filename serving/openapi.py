"""What the gateway serves, as an OpenAPI document of the loaded model: its features are the request's fields."""

from typing import Any

from features.spec import Feature, FeatureSpec
from serving.problems import MEDIA_TYPE, PROBLEM_TYPES
from serving.settings import RequestLimits

Json = dict[str, Any]

_TYPES: dict[str, Json] = {
    "text": {"type": "string"},
    "categorical": {"type": ["string", "integer"]},
    "float": {"type": "number", "minimum": -3.4028234e38, "maximum": 3.4028234e38},
    "int": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    "bool": {"type": ["boolean", "integer"], "enum": [True, False, 0, 1]},
}

RESPONSE: Json = {
    "type": "object",
    "required": ["request_id", "model", "results", "usage"],
    "properties": {
        "request_id": {"type": "string", "description": "X-Request-ID, as given or made here"},
        "model": {
            "type": "object",
            "required": ["name", "version"],
            "properties": {"name": {"type": "string"}, "version": {"type": "integer"}},
        },
        "results": {
            "type": "array",
            "description": "sorted by score, ties in the request's order",
            "items": {
                "type": "object",
                "required": ["id", "index", "score"],
                "properties": {
                    "id": {"type": "string"},
                    "index": {"type": "integer", "description": "place in the request's items"},
                    "score": {"type": "number", "minimum": 0, "maximum": 1, "description": "sigma(logit)"},
                },
            },
        },
        "usage": {
            "type": "object",
            "required": ["pairs", "tokens", "truncated", "clipped"],
            "properties": {
                "pairs": {"type": "integer", "description": "items scored"},
                "tokens": {"type": "integer", "description": "the query's once and every item's, before truncation"},
                "truncated": {"type": "integer", "description": "items whose text the model did not read to its end"},
                "clipped": {"type": "integer", "description": "numbers outside the range seen in training"},
            },
        },
    },
}

PROBLEM: Json = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "request_id"],
    "properties": {
        "type": {"type": "string", "enum": [problem.uri for problem in PROBLEM_TYPES.values()]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what was found, what is expected, what to do"},
        "pointer": {"type": "string", "description": "JSON pointer to the value at fault"},
        "request_id": {"type": "string"},
    },
}


def request_schema(spec: FeatureSpec, bare: Feature | None, limits: RequestLimits) -> Json:
    """The JSON schema of a /rank body. Two rules it cannot say: ids are unique, and text is not blank."""
    context, item = spec.at("context", spec.regular), spec.at("item", spec.regular)
    item_object = _object_of(item, limits.item_characters)
    item_object["properties"]["id"] = {
        "type": ["string", "null"],
        "minLength": 1,
        "maxLength": limits.id_characters,
        "description": "unique in the request; the index as a string where absent",
    }
    bare_item = {"type": "string", "minLength": 1, "maxLength": limits.item_characters}
    bare_item["description"] = f"the item's {bare.name} alone" if bare else ""
    schema = _object_of(context, limits.context_characters)
    schema["required"].append("items")
    schema["properties"] |= {
        "items": {
            "type": "array",
            "minItems": 1,
            "maxItems": limits.items,
            "items": {"oneOf": [item_object, bare_item]} if bare else item_object,
        },
        "top_n": {"type": ["integer", "null"], "minimum": 1, "description": "answer the best so many; all by default"},
        "return_titles": {"type": ["boolean", "null"], "description": "repeat each item's text in its result"},
        "model_version": {"type": ["integer", "null"], "minimum": 0, "description": "refuse any other version"},
        "debug": {"type": ["boolean", "null"], "description": "add each result's logit and tokens"},
    }
    return schema


def _object_of(features: tuple[Feature, ...], characters: int) -> Json:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [feature.name for feature in features if feature.default is None],
        "properties": {feature.name: _schema_of(feature, characters) for feature in features},
    }


def _schema_of(feature: Feature, characters: int) -> Json:
    schema = dict(_TYPES[feature.type])
    if feature.type in ("text", "categorical"):
        schema["maxLength"] = characters
    if feature.is_text:
        schema["minLength"] = 0 if feature.default is not None else 1
    if feature.length > 1:
        schema = {"type": "array", "minItems": feature.length, "maxItems": feature.length, "items": schema}
    if feature.default is not None:
        return {"oneOf": [schema, {"type": "null"}], "default": feature.default}
    return schema


def example_request(samples: tuple[Json, ...], spec: FeatureSpec) -> Json:
    """A request to try: the model's first warm-up request, or plain values."""
    if samples:
        return samples[0]
    plain: Json = {"text": "blue sofa", "categorical": "navy", "float": 0.5, "int": 1, "bool": False}

    def values(level: Any) -> Json:
        features = sorted(spec.at(level, spec.regular), key=lambda feature: not feature.is_text)
        return {f.name: [0.5] * f.length if f.length > 1 else plain[f.type] for f in features}

    return values("context") | {"items": [{"id": "p1"} | values("item"), {"id": "p2"} | values("item")]}


def openapi_of(spec: FeatureSpec, bare: Feature | None, limits: RequestLimits, example: Json) -> Json:
    """The OpenAPI 3.1 document."""
    rank = {
        "summary": "Rank items for one query",
        "parameters": [{"name": "X-Request-ID", "in": "header", "required": False, "schema": {"type": "string"}}],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": request_schema(spec, bare, limits), "example": example}},
        },
        "responses": {"200": _answer("The ranking", RESPONSE), "default": _problem()},
    }
    status: Json = {"type": "object", "properties": {"status": {"type": "string"}}}
    live = {"summary": "The process runs", "responses": {"200": _answer("Alive", status)}}
    ready = {
        "summary": "A model is loaded, warmed, and the gateway is not shutting down",
        "responses": {"200": _answer("Ready", status), "503": _problem()},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "PrivRank gateway", "version": "1"},
        "paths": {
            "/v1/rank": {"post": rank},
            "/rank": {"post": rank},
            "/livez": {"get": live},
            "/readyz": {"get": ready},
        },
    }


def _answer(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _problem() -> Json:
    return {"description": "An error, as RFC 9457 has it", "content": {MEDIA_TYPE: {"schema": PROBLEM}}}
