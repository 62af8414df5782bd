"""JSON schemas of requests and responses. The loaded model's features are the request's fields."""

from typing import Any

from features.spec import Feature, FeatureSpec
from serving.problems import PROBLEM_TYPES
from serving.ranking.rerank import RerankShape
from serving.settings import RequestLimits

Json = dict[str, Any]

_WITHOUT_NUL = r"^[^\u0000]*$"
_NOT_BLANK = r"^[^\u0000]*[^\u0000\s\u001c-\u001f\u0085][^\u0000]*$"  # str.strip() removes more than JSON Schema's \s

_TYPES: dict[str, Json] = {
    "text": {"type": "string"},
    "categorical": {"type": ["string", "integer"], "pattern": _WITHOUT_NUL},
    "float": {"type": "number", "minimum": -3.4028234e38, "maximum": 3.4028234e38},
    "int": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    "bool": {"type": ["boolean", "integer"], "enum": [True, False, 0, 1]},
}

_USAGE: Json = {
    "type": "object",
    "required": ["pairs", "tokens", "truncated", "clipped"],
    "properties": {
        "pairs": {"type": "integer", "description": "items scored"},
        "tokens": {"type": "integer", "description": "tokens of the query, once, and of all items, before truncation"},
        "truncated": {"type": "integer", "description": "items whose text was truncated"},
        "clipped": {"type": "integer", "description": "numbers outside the range seen in training"},
    },
}

_WORD: Json = {
    "type": "object",
    "required": ["text", "tokens", "read", "matched"],
    "properties": {
        "text": {"type": "string"},
        "tokens": {"type": "integer"},
        "read": {"type": "integer", "description": "number of its tokens that the model reads"},
        "matched": {
            "type": "integer",
            "description": "number of those that also occur in the other text",
        },
    },
}

_RESULT: Json = {
    "type": "object",
    "required": ["id", "index", "score"],
    "properties": {
        "id": {"type": "string"},
        "index": {"type": "integer", "description": "index in the request's items"},
        "score": {"type": "number", "minimum": 0, "maximum": 1, "description": "sigma(logit)"},
        "debug": {
            "type": "object",
            "required": ["logit", "tokens", "words"],
            "properties": {
                "logit": {"type": "number"},
                "tokens": {"type": "integer", "description": "tokens of the item, before truncation"},
                "words": {
                    "type": "object",
                    "description": "by text feature: the words of the text, each with its leading space",
                    "additionalProperties": {"type": "array", "items": _WORD},
                },
            },
            "description": "present if debug is true",
        },
    },
}

_RANKING: Json = {
    "type": "object",
    "required": ["model", "results", "usage"],
    "properties": {
        "model": {
            "type": "object",
            "required": ["name", "version"],
            "properties": {"name": {"type": "string"}, "version": {"type": "integer"}},
            "description": "the model that scored the request",
        },
        "results": {"type": "array", "description": "sorted by score, ties in the request's order", "items": _RESULT},
        "usage": _USAGE,
    },
}

_REQUEST_ID: Json = {"type": "string", "description": "X-Request-ID of the request, or a new one"}

RESPONSE: Json = {
    "type": "object",
    "required": ["request_id", *_RANKING["required"]],
    "properties": {"request_id": _REQUEST_ID, **_RANKING["properties"]},
}

PROBLEM: Json = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "request_id"],
    "properties": {
        "type": {"type": "string", "enum": [problem.uri for problem in PROBLEM_TYPES.values()]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "the value, the expectation, the remedy"},
        "pointer": {"type": "string", "description": "JSON pointer to the invalid value"},
        "request_id": {"type": "string"},
    },
}


_ENTRY_PROBLEM: Json = {
    "type": "object",
    "required": ["problem"],
    "properties": {"problem": PROBLEM | {"required": [name for name in PROBLEM["required"] if name != "request_id"]}},
}

BATCH_RESPONSE: Json = {
    "type": "object",
    "required": ["request_id", "answers", "usage"],
    "properties": {
        "request_id": _REQUEST_ID,
        "answers": {
            "type": "array",
            "description": "for each query, in order: its ranking or its problem",
            "items": {"oneOf": [_RANKING, _ENTRY_PROBLEM]},
        },
        "usage": _USAGE,
    },
}

RERANK_RESPONSE: Json = {
    "type": "object",
    "required": ["id", "model", "results", "usage"],
    "properties": {
        "id": _REQUEST_ID,
        "model": {"type": "string"},
        "results": {
            "type": "array",
            "description": "sorted by relevance_score, ties in the request's order",
            "items": {
                "type": "object",
                "required": ["index", "relevance_score"],
                "properties": {
                    "index": {"type": "integer", "description": "index in the request's documents"},
                    "relevance_score": {"type": "number", "minimum": 0, "maximum": 1, "description": "sigma(logit)"},
                    "document": {
                        "type": "object",
                        "required": ["text"],
                        "properties": {"text": {"type": "string"}},
                        "description": "present if return_documents is true",
                    },
                },
            },
        },
        "usage": {
            "type": "object",
            "required": ["total_tokens"],
            "properties": {"total_tokens": {"type": "integer"}},
        },
    },
}


def request_schema(spec: FeatureSpec, bare: Feature | None, limits: RequestLimits) -> Json:
    """Returns the JSON schema of a /rank body. It cannot express that ids are unique."""
    context, item = spec.at("context", spec.regular), spec.at("item", spec.regular)
    item_object = _object_of(item, limits.item_characters)
    item_object["properties"]["id"] = {
        "type": ["string", "null"],
        "minLength": 1,
        "maxLength": limits.id_characters,
        "pattern": _WITHOUT_NUL,
        "description": "unique in the request; default: the index as a string",
    }
    bare_item = {"type": "string", "pattern": _NOT_BLANK, "maxLength": limits.item_characters}
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
        "top_n": {
            "type": ["integer", "null"],
            "minimum": 1,
            "description": "number of results; default: all",
        },
        "return_titles": {"type": ["boolean", "null"], "description": "repeat each item's text in its result"},
        "model_version": {"type": ["integer", "null"], "minimum": 0, "description": "refuse any other version"},
        "debug": {"type": ["boolean", "null"], "description": "add each result's logit, tokens and words"},
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
        schema["pattern"] = _WITHOUT_NUL if feature.default is not None else _NOT_BLANK
    if feature.length > 1:
        schema = {"type": "array", "minItems": feature.length, "maxItems": feature.length, "items": schema}
    if feature.default is not None:
        return {"oneOf": [schema, {"type": "null"}], "default": feature.default}
    return schema


def batch_schema(one: Json, limits: RequestLimits) -> Json:
    """Returns the JSON schema of a /v1/rank/batch body. It cannot express the limit on items over all queries."""
    queries = {"type": "array", "minItems": 1, "maxItems": limits.queries, "items": one}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["queries"],
        "properties": {"queries": queries},
    }


def rerank_schema(one: Json, shape: RerankShape) -> Json:
    """Returns the JSON schema of a /v1/rerank body: the one of /rank with other names."""
    item, bare = one["properties"]["items"]["items"]["oneOf"]
    names = {name: schema for name, schema in item["properties"].items() if name not in ("id", shape.text)}
    required = ["text" if name == shape.text else name for name in item["required"]]
    document = item | {"properties": {"text": item["properties"][shape.text], **names}, "required": required}
    shared = {name: schema for name, schema in one["properties"].items() if name in shape.names}
    of_query = {"query": one["properties"][shape.query]}
    documents = one["properties"]["items"] | {"items": {"oneOf": [document, bare | {"description": "its text"}]}}
    return one | {
        "required": ["query", "documents"] + [name for name in one["required"] if name not in (shape.query, "items")],
        "properties": {
            **of_query,
            **shared,
            "documents": documents,
            "model": {"type": ["string", "null"], "description": "the served model's name"},
            "return_documents": {"type": ["boolean", "null"], "description": "repeat each document in its result"},
        },
    }
