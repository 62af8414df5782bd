"""The routes. An endpoint translates between HTTP and the gateway; it never decides."""

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


def create_app(gateway: Gateway, tells_metrics: bool = True) -> FastAPI:
    """What clients see. Ranking and what tells of the traffic need a key, where there are keys.

    tells_metrics: not at a port that several processes share, of which each has its own.
    """
    app = new_app(gateway)
    keys = gateway.settings.api_keys
    with_key = APIRouter(dependencies=[Depends(key_check(keys))] if keys else [])
    for path, shape in RANKING.items():
        _add_ranking(app, path, shape, gateway)
    if tells_metrics:
        _add_metrics(with_key, gateway)
    _add_models(with_key, gateway)
    app.include_router(with_key)
    _add_health(app, gateway)
    _add_pages(app, gateway)
    return app


def new_app(gateway: Gateway) -> FastAPI:
    """An app without routes, whose errors are problems and whose requests are logged and counted."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, telemetry=NO_TELEMETRY)
    app.add_middleware(RefuseWhenFull, gateway=gateway)
    app.add_middleware(RequestTelemetry, metrics=gateway.metrics, tracing=gateway.tracing)
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(HTTPException, _on_http_exception)
    return app


class RefuseWhenFull:
    """ASGI middleware: answers 503 before the router looks at a ranking request that would be refused anyway.

    So it costs half, which counts when there are many times more requests than can be answered. It also names ranking's
    routes for telemetry, which only FastAPI's own do for themselves.
    """

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app, self._line = app, gateway.line

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in RANKING:
            scope["route"] = SimpleNamespace(path=scope["path"])
            if self._line.is_full:
                app = _answer(self._line.refusal(), scope["state"]["record"])
        await app(scope, receive, send)


def key_check(keys: tuple[ApiKey, ...]) -> Any:
    """A dependency that refuses whoever has none of the keys."""

    async def check(request: Request) -> None:
        request.state.record.key = name_of(request.headers.get("authorization", ""), keys)

    return check


def _add_ranking(app: FastAPI, path: str, shape: answers.Shape, gateway: Gateway) -> None:
    """Starlette's own route: FastAPI's, which looks for dependencies, takes a tenth more of a small request's CPU."""
    keys = gateway.settings.api_keys
    check_key = key_check(keys)

    async def ranking(request: Request) -> Response:
        if keys:
            await check_key(request)
        answered, after = await gateway.answer(shape, request, request.state.record)
        return Response(answered, media_type="application/json", background=after)

    app.add_route(path, ranking, methods=["POST"])


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
    slug = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-request")
    detail = (
        f"{request.method} is not served here" if slug == "method-not-allowed" else "Nothing is served at this path"
    )
    return await _on_problem(request, Problem(slug, detail, headers=dict(error.headers or {})))
