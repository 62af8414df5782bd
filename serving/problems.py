"""Errors as RFC 9457 problem details. Every `type` is a stable path, served by the gateway as a page."""

from dataclasses import dataclass, field, replace
from typing import Any

import orjson

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One kind of error. remedy: advice to the client, shown on the page `/problems/<slug>`.

    again: whether a retry of the same request may succeed.
    """

    slug: str
    status: int
    title: str
    remedy: str
    again: bool = False

    @property
    def uri(self) -> str:
        return f"/problems/{self.slug}"


_ALL = (
    ProblemType("malformed-json", 400, "The body is not JSON",
                "Send one JSON object in UTF-8. NaN and Infinity are no JSON."),
    ProblemType("unauthorized", 401, "No known API key",
                "Send the header `Authorization: Bearer <key>`, with a key that the gateway's operator gave you."),
    ProblemType("forbidden", 403, "The API key does not allow this",
                "Use a key that has the role which `detail` names, or ask the gateway's operator for it."),
    ProblemType("not-found", 404, "Nothing is served at this path", "See /docs for what is served."),
    ProblemType("model-not-served", 404, "No model of this name is served",
                "Ask for the model that /rank names in its answers, or leave its name out where that may be."),
    ProblemType("method-not-allowed", 405, "The path does not know this method", "See the Allow header, and /docs."),
    ProblemType("body-timeout", 408, "The body took too long to arrive", "Send the body without pauses.", again=True),
    ProblemType("head-timeout", 408, "The request line and headers took too long to arrive",
                "Send the head at once; close a connection that is not used.", again=True),
    ProblemType("model-version-not-served", 409, "This version of the model is not served",
                "Leave model_version out, or ask for a version that is in memory: the one that /rank names in its "
                "answers, or the one that served before it."),
    ProblemType("version-refused", 409, "The version cannot be served",
                "`detail` says why; what served before goes on serving. Export the model again, or serve another."),
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
    ProblemType("duplicate-id", 422, "Two items have the same id",
                "Give every item an id of its own; an item without one has its index as its id."),
    ProblemType("head-too-large", 431, "The request line and headers are too large",
                "Send fewer or shorter headers; the query and the items belong in the body."),
    ProblemType("internal-error", 500, "The gateway failed",
                "Report the request_id: the log has the place of the failure."),
    ProblemType("model-failed", 500, "The model failed on this request",
                "Nothing was ranked. Report the request_id: the log has the place of the failure."),
    ProblemType("non-finite-score", 500, "The model gave a score that is not a number",
                "Nothing was ranked. Report the request_id: another version of the model may not have the fault."),
    ProblemType("remote-failed", 502, "The model server gave no usable answer",
                "Nothing was ranked. Report the request_id; another try may reach a server that is right.", again=True),
    ProblemType("remote-unavailable", 503, "The model server cannot be reached",
                "Come again after Retry-After seconds, and later each time.", again=True),
    ProblemType("not-ready", 503, "No model is ready yet", "Wait until /readyz answers 200.", again=True),
    ProblemType("overloaded", 503, "Too many requests are waiting",
                "Come again after Retry-After seconds, and later each time.", again=True),
    ProblemType("deadline-exceeded", 504, "The answer was not ready in time",
                "Come again when fewer requests wait, send fewer items, or allow more in X-Request-Timeout-Ms.",
                again=True),
)  # fmt: skip

PROBLEM_TYPES = {problem.slug: problem for problem in _ALL}


@dataclass(slots=True, eq=False)
class Problem(Exception):
    """An error that is answered as application/problem+json.

    slug: a key of PROBLEM_TYPES. pointer: JSON pointer to the invalid value in the body, if there is one.
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

    def below(self, *steps: str | int) -> "Problem":
        """Returns the problem of a nested body, with its pointer prefixed by `steps`."""
        return replace(self, pointer=pointer_to(*steps) + (self.pointer or "#")[1:])

    def to_json(self) -> dict[str, Any]:
        members = {"type": self.type.uri, "title": self.type.title, "status": self.status, "detail": self.detail}
        if self.pointer is not None:
            members["pointer"] = self.pointer
        # `detail` may quote the request; orjson rejects lone surrogates, so they are replaced
        return {k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for k, v in members.items()}

    def to_bytes(self, request_id: str) -> bytes:
        return orjson.dumps(self.to_json() | {"request_id": request_id})


def pointer_to(*steps: str | int) -> str:
    """Returns a JSON pointer (RFC 6901) as a URI fragment without percent-encoding: '#/items/3/title'."""
    return "#" + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
