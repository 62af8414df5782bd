"""Takes a request's body off the wire within its limits, before anything parses it."""

import anyio
from starlette.requests import Request

from serving.problems import Problem
from serving.settings import RequestLimits


async def read_body(request: Request, limits: RequestLimits) -> bytes:
    """The body. Errors: Problem unsupported-media-type, body-too-large, body-timeout."""
    _check_media_type(request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limits.body_bytes:
        raise _too_large(f"{declared} bytes", limits)
    body = bytearray()
    with anyio.move_on_after(limits.body_seconds) as timer:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limits.body_bytes:
                raise _too_large(f"more than {limits.body_bytes} bytes", limits)
    if timer.cancelled_caught:
        told = f"The body did not arrive within {limits.body_seconds:g} seconds"
        raise Problem("body-timeout", told, headers={"Connection": "close"})
    return bytes(body)


def _too_large(found: str, limits: RequestLimits) -> Problem:
    told = f"The body has {found}, expected at most {limits.body_bytes}"
    return Problem("body-too-large", told, headers={"Connection": "close"})


def _check_media_type(request: Request) -> None:
    given = request.headers.get("content-type", "")
    media_type, _, parameters = given.partition(";")
    charset = parameters.replace('"', "").replace(" ", "").lower()
    if media_type.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        told = f"Content-Type is {given[:80]!r}, expected application/json"
        raise Problem("unsupported-media-type", told)
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise Problem("unsupported-media-type", f"Content-Encoding is {encoding[:80]!r}, expected none")
