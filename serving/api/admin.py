"""The admin routes, which select the serving version. They have their own port and always need a key."""

import asyncio
from concurrent.futures import Future
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import JSONResponse, Response

from features.errors import InputError
from serving.api.app import key_check, new_app
from serving.api.gateway import Gateway
from serving.exports.store_error import StoreError
from serving.problems import Problem


def create_admin_app(gateway: Gateway) -> FastAPI:
    app = new_app(gateway)
    keys = gateway.settings.api_keys + gateway.settings.admin_keys
    router = APIRouter(prefix="/admin", dependencies=[Depends(key_check(keys, "admin"))])
    versions = gateway.versions

    @router.get("/versions")
    async def state() -> Response:
        return JSONResponse(_state(gateway))

    @router.post("/versions/{version}/serve")
    async def serve(version: str) -> Response:
        if not version.isdecimal() or len(version) > 18:
            raise Problem("invalid-request", f"version is {version[:60]!r}, expected a whole number")
        return await _state_after(versions.serve(int(version)), gateway)

    @router.post("/rollback")
    async def rollback() -> Response:
        return await _state_after(versions.roll_back(), gateway)

    @router.post("/follow")
    async def follow() -> Response:
        return await _state_after(versions.follow(), gateway)

    app.include_router(router)
    return app


async def _state_after(future: "Future[None]", gateway: Gateway) -> Response:
    """Waits for a version change and returns the resulting state.

    Errors: Problem version-refused; then nothing has changed.
    """
    try:
        await asyncio.wrap_future(future)
    except (InputError, StoreError) as error:
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
