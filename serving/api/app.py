"""The routes. An endpoint translates between HTTP and the gateway; it never decides."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from serving import answers, metrics, open_inference
from serving.gateway import Gateway
from serving.keys import ApiKey, name_of
from serving.openapi import openapi_of
from serving.pages import ASSETS, Pages
from serving.problems import MEDIA_TYPE, Problem
from serving.record import Record
from serving.telemetry import RequestTelemetry

RANKING = {
    "/v1/rank": answers.rank,
    "/rank": answers.rank,
    "/v1/rank/batch": answers.batch,
    "/v1/rerank": answers.rerank,
}

NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False}
"""FastAPI's own, which would tell of each request a second time, with what its errors quote."""


def create_app(gateway: Gateway, tells_metrics: bool = True) -> ASGIApp:
    """What clients see. Ranking and what tells of the traffic need a key, where there are keys.

    tells_metrics: not at a port that several processes share, of which each has its own.
    """
    app = new_app(gateway)
    keys = gateway.settings.api_keys
    with_key = APIRouter(dependencies=[Depends(key_check(keys))] if keys else [])
    if tells_metrics:
        _add_metrics(with_key, gateway)
    _add_models(with_key, gateway)
    app.include_router(with_key)
    _add_health(app, gateway)
    _add_pages(app, gateway)
    return ByPath({path: _told(Ranking(path, shape, gateway), gateway) for path, shape in RANKING.items()}, app)


def new_app(gateway: Gateway) -> FastAPI:
    """An app without routes, whose errors are problems and whose requests are logged and counted."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, telemetry=NO_TELEMETRY)
    app.add_middleware(_told, gateway=gateway)
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(HTTPException, _on_http_exception)
    return app


def _told(app: ASGIApp, gateway: Gateway) -> ASGIApp:
    return RequestTelemetry(app, gateway.metrics, gateway.tracing)


class ByPath:
    """An ASGI app that hands requests for some paths to apps of their own, all others to one."""

    def __init__(self, apps: Mapping[str, ASGIApp], others: ASGIApp) -> None:
        self._apps, self._others = apps, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._apps.get(scope["path"], self._others) if scope["type"] == "http" else self._others
        await app(scope, receive, send)


class Ranking:
    """A ranking path, as an ASGI app: the way through FastAPI's middlewares and routes costs a small request more.

    A request that would be refused anyway is refused before anything reads it, which counts when there are many times
    more of them than can be answered.
    """

    def __init__(self, path: str, shape: answers.Shape, gateway: Gateway) -> None:
        self._route, self._shape, self._gateway = SimpleNamespace(path=path), shape, gateway
        self._check_key = key_check(gateway.settings.api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self._route  # for telemetry
        request = Request(scope, receive)
        try:
            response = await self._ranked(request)
        except Problem as problem:
            response = _answer(problem, request.state.record)
        await response(scope, receive, send)

    async def _ranked(self, request: Request) -> Response:
        if request.method != "POST":
            raise _wrong_method(request.method, {"Allow": "POST"})
        gateway = self._gateway
        if gateway.line.is_full:
            raise gateway.line.refusal()
        if gateway.settings.api_keys:
            await self._check_key(request)
        answered, after = await gateway.answer(self._shape, request, request.state.record)
        return Response(answered, media_type="application/json", background=after)


def key_check(keys: tuple[ApiKey, ...]) -> Any:
    """A dependency that refuses whoever has none of the keys."""

    async def check(request: Request) -> None:
        request.state.record.key = name_of(request.headers.get("authorization", ""), keys)

    return check


def _add_metrics(router: APIRouter, gateway: Gateway) -> None:
    @router.get("/metrics")
    async def text() -> Response:
        return Response(gateway.metrics.to_text(), headers={"Content-Type": metrics.MEDIA_TYPE})


def _add_models(router: APIRouter, gateway: Gateway) -> None:
    @router.get("/v2")
    async def server() -> Response:
        return JSONResponse(open_inference.SERVER)

    @router.get("/v2/models/{name}")
    @router.get("/v2/models/{name}/versions/{version}")
    async def model(name: str, version: str | None = None) -> Response:
        models = gateway.models
        return JSONResponse(open_inference.metadata(open_inference.model_of(models, name, version), models))

    @router.get("/v2/models/{name}/ready")
    @router.get("/v2/models/{name}/versions/{version}/ready")
    async def model_ready(name: str, version: str | None = None) -> Response:
        served = open_inference.model_of(await gateway.ready_models(), name, version)
        return JSONResponse({"name": served.name, "ready": True})


def _add_health(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/livez")
    async def livez() -> Response:
        return JSONResponse({"status": "alive"})

    @app.get("/readyz")
    async def readyz() -> Response:
        served = (await gateway.ready_models()).current
        return JSONResponse({"status": "ready", "model": {"name": served.name, "version": served.version}})

    @app.get("/v2/health/live")
    async def live() -> Response:
        return JSONResponse({"live": True})

    @app.get("/v2/health/ready")
    async def ready() -> Response:
        return JSONResponse({"ready": bool(await gateway.ready_models())})


def _add_pages(app: FastAPI, gateway: Gateway) -> None:
    pages = Pages(gateway.settings)

    @app.get("/")
    async def playground() -> Response:
        return pages.playground(gateway.models) if gateway.has_model else pages.loading()

    @app.get("/playground/{name}")
    async def asset(name: str) -> Response:
        if name not in ASSETS:
            raise HTTPException(404)
        return pages.asset(name)

    @app.get("/docs")
    async def docs() -> Response:
        return pages.docs(gateway.models.current) if gateway.has_model else pages.loading()

    @app.get("/openapi.json")
    async def openapi() -> Response:
        return JSONResponse(openapi_of(gateway.models.current, gateway.settings))

    @app.get("/problems/{slug}")
    async def problem(slug: str) -> Response:
        return pages.problem(slug)


async def _on_problem(request: Request, problem: Any) -> Response:
    return _answer(problem, request.state.record)


def _answer(problem: Problem, record: Record) -> Response:
    record.problems.append(problem.slug)
    body = problem.to_bytes(record.request_id)
    return Response(body, problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


async def _on_http_exception(request: Request, error: Any) -> Response:
    """Starlette's own refusals, which are the router's: no such path, or not with this method."""
    headers = dict(error.headers or {})
    if error.status_code == 405:
        return await _on_problem(request, _wrong_method(request.method, headers))
    slug = "not-found" if error.status_code == 404 else "invalid-request"
    return await _on_problem(request, Problem(slug, "Nothing is served at this path", headers=headers))


def _wrong_method(method: str, headers: dict[str, str]) -> Problem:
    return Problem("method-not-allowed", f"{method} is not served here", headers=headers)
