"""Errors as RFC 9457 problem details: every `type` is a stable path that the gateway serves as a small page."""

from dataclasses import dataclass, field
from typing import Any

import orjson

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One kind of error. remedy: one sentence for the page at `/problems/<slug>`."""

    slug: str
    status: int
    title: str
    remedy: str

    @property
    def uri(self) -> str:
        return f"/problems/{self.slug}"


_ALL = (
    ProblemType("malformed-json", 400, "The body is not JSON",
                "Send one JSON object in UTF-8. NaN and Infinity are no JSON."),
    ProblemType("not-found", 404, "Nothing is served at this path", "See /docs for what is served."),
    ProblemType("method-not-allowed", 405, "The path does not know this method", "See the Allow header, and /docs."),
    ProblemType("body-timeout", 408, "The body took too long to arrive", "Send the body without pauses."),
    ProblemType("model-version-not-served", 409, "Another version of the model is served",
                "Leave model_version out, or ask for the version that /rank names in its answers."),
    ProblemType("body-too-large", 413, "The body is too large", "Send fewer items, or shorter texts."),
    ProblemType("unsupported-media-type", 415, "The body's media type is not supported",
                "Send Content-Type: application/json, in UTF-8, not compressed."),
    ProblemType("invalid-request", 422, "A value of the request is not valid",
                "`pointer` says where, `detail` what is expected there."),
    ProblemType("unknown-field", 422, "A field of the request is unknown",
                "Remove the field, or correct its name: /docs lists what the served model reads."),
    ProblemType("privileged-feature", 422, "The request carries a privileged feature",
                "What shoppers did after the results were shown cannot exist when a query arrives: remove it from the "
                "request, or mark it `role: regular` in the task file if it truly exists then, and train again."),
    ProblemType("duplicate-key", 422, "A JSON object names a key twice", "Name every key once."),
    ProblemType("duplicate-id", 422, "Two items have the same id",
                "Give every item an id of its own; an item without one has its index as its id."),
    ProblemType("internal-error", 500, "The gateway failed",
                "Report the request_id: the log has the place of the failure."),
    ProblemType("non-finite-score", 500, "The model gave a score that is not a number",
                "Nothing was ranked. Serve another version, and look at what this one was trained on."),
    ProblemType("not-ready", 503, "No model is ready yet", "Wait until /readyz answers 200."),
    ProblemType("overloaded", 503, "Too many requests are waiting", "Come again after Retry-After seconds."),
)  # fmt: skip

PROBLEM_TYPES = {problem.slug: problem for problem in _ALL}


@dataclass(slots=True, eq=False)
class Problem(Exception):
    """An error that is answered as problem+json.

    slug: a key of PROBLEM_TYPES. pointer: JSON pointer into the body, where one value is at fault.
    """

    slug: str
    detail: str
    pointer: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def type(self) -> ProblemType:
        return PROBLEM_TYPES[self.slug]

    @property
    def status(self) -> int:
        return self.type.status

    def to_json(self, request_id: str) -> dict[str, Any]:
        members = {"type": self.type.uri, "title": self.type.title, "status": self.status, "detail": self.detail}
        if self.pointer is not None:
            members["pointer"] = self.pointer
        return members | {"request_id": request_id}

    def to_bytes(self, request_id: str) -> bytes:
        # a request's text may come back in `detail`; orjson refuses lone surrogates, so they are replaced here
        members = self.to_json(request_id)
        safe = {k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for k, v in members.items()}
        return orjson.dumps(safe)


def pointer_to(*steps: str | int) -> str:
    """A JSON pointer (RFC 6901) as a URI fragment without percent-encoding: '#/items/3/title'."""
    return "#" + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
