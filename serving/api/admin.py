"""The administration's routes: which version serves. They have a port of their own, and always need a key."""

import asyncio
from concurrent.futures import Future
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import JSONResponse, Response

from features.errors import InputError
from serving.app import key_check, new_app
from serving.gateway import Gateway
from serving.problems import Problem


def create_admin_app(gateway: Gateway) -> FastAPI:
    app = new_app(gateway)
    router = APIRouter(prefix="/admin", dependencies=[Depends(key_check(gateway.settings.admin.keys))])
    versions = gateway.versions

    @router.get("/versions")
    async def state() -> Response:
        return JSONResponse(_state(gateway))

    @router.post("/versions/{version}/serve")
    async def serve(version: str) -> Response:
        if not version.isdecimal() or len(version) > 18:
            raise Problem("invalid-request", f"version is {version[:60]!r}, expected a whole number")
        return await _done(versions.serve(int(version)), gateway)

    @router.post("/rollback")
    async def rollback() -> Response:
        return await _done(versions.roll_back(), gateway)

    @router.post("/follow")
    async def follow() -> Response:
        return await _done(versions.follow(), gateway)

    app.include_router(router)
    return app


async def _done(order: "Future[None]", gateway: Gateway) -> Response:
    """Waits until the order is carried out, and tells what serves then. Errors: Problem version-refused."""
    try:
        await asyncio.wrap_future(order)
    except InputError as error:
        raise Problem("version-refused", str(error)) from None
    return JSONResponse(_state(gateway))


def _state(gateway: Gateway) -> dict[str, Any]:
    versions, models = gateway.versions, gateway.models
    return {
        "model": {"name": models.current.name, "version": models.current.version},
        "resident": sorted(models.resident),
        "shadow": models.shadow.version if models.shadow else None,
        "held": versions.held,
        "refused": {str(v): refusal.reason for v, refusal in sorted(versions.refused.items())},
    }
