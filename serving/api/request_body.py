"""Receives request bodies within limits of size, time and concurrency."""

import asyncio

from starlette.requests import Request

from serving.observability.request_record import RequestRecord
from serving.problems import Problem
from serving.ranking.request_queue import deadline_exceeded
from serving.settings import Connections, RequestLimits

_CLOSE_CONNECTION = {"Connection": "close"}  # because the rest of the body is not read


class BodyReader:
    """Reads bodies within the limits. arriving: number of bodies that are being received."""

    def __init__(self, limits: RequestLimits, connections: Connections) -> None:
        self._limits, self._connections = limits, connections
        self.arriving = 0

    async def read(self, request: Request, deadline: float, record: RequestRecord) -> bytes:
        """Returns the body. deadline: the request's deadline, in event loop time.

        Errors: Problem unsupported-media-type, overloaded, body-too-large, body-timeout, deadline-exceeded;
        ClientDisconnect.
        """
        _check_media_type(request)
        if self.arriving >= self._connections.bodies:
            detail = f"{self.arriving} bodies are arriving, as many as this gateway takes"
            raise Problem("overloaded", detail, headers={"Retry-After": "1"})
        self.arriving += 1
        try:
            with record.stage("receive"):
                return await self._read_in_time(request, deadline, record)
        finally:
            self.arriving -= 1

    async def _read_in_time(self, request: Request, deadline: float, record: RequestRecord) -> bytes:
        longest = self._connections.body_seconds
        slowest = asyncio.get_running_loop().time() + longest
        try:
            async with asyncio.timeout_at(min(slowest, deadline)):
                return await self._read(request)
        except TimeoutError:
            if deadline < slowest:
                raise deadline_exceeded(record, _CLOSE_CONNECTION) from None
            detail = f"The body did not arrive within {longest:g} seconds"
            raise Problem("body-timeout", detail, headers=_CLOSE_CONNECTION) from None

    async def _read(self, request: Request) -> bytes:
        largest = self._limits.body_bytes
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > largest:
            raise _too_large(f"{declared} bytes", largest)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > largest:
                raise _too_large(f"more than {largest} bytes", largest)
        return bytes(body)


def _too_large(size: str, largest: int) -> Problem:
    detail = f"The body has {size}, expected at most {largest}"
    return Problem("body-too-large", detail, headers=_CLOSE_CONNECTION)


def _check_media_type(request: Request) -> None:
    given = request.headers.get("content-type", "")
    media_type, _, parameters = given.partition(";")
    charset = parameters.replace('"', "").replace(" ", "").lower()
    if media_type.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        detail = f"Content-Type is {given[:80]!r}, expected application/json"
        raise Problem("unsupported-media-type", detail)
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise Problem("unsupported-media-type", f"Content-Encoding is {encoding[:80]!r}, expected none")
