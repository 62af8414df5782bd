"""The routes. An endpoint translates between HTTP and the gateway; it contains no logic of its own."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.api import handlers, open_inference
from serving.api.gateway import Gateway
from serving.api.middleware import PathDispatcher, RequestTelemetry
from serving.api.pages import ASSETS, Pages
from serving.api_keys import ApiKey, KeyRole, authenticate, bearer_secret, page_secret, require_role
from serving.models.loaded_model import Handler
from serving.observability.metrics import PROMETHEUS_MEDIA_TYPE
from serving.observability.request_record import RequestRecord
from serving.problems import MEDIA_TYPE, Problem
from serving.settings import Settings

RANKING_HANDLERS = {
    "/v1/rank": handlers.rank,
    "/rank": handlers.rank,
    "/v1/rank/batch": handlers.batch,
    "/v1/rerank": handlers.rerank,
}

_NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False}
"""FastAPI's own telemetry is off: it would report each request twice, and its errors may quote request text."""


def create_app(gateway: Gateway, with_metrics: bool = True) -> ASGIApp:
    """Creates the client app. If keys are set, ranking and metrics need a key with the right role.

    with_metrics: False at a port that several processes share, because each has its own metrics.
    """
    app = new_app(gateway)
    if with_metrics:
        _add_metrics(app, gateway)
    _add_models(app, gateway)
    _add_health(app, gateway)
    _add_pages(app, gateway)
    return PathDispatcher(
        {
            path: _with_telemetry(RankingEndpoint(path, handler, gateway), gateway)
            for path, handler in RANKING_HANDLERS.items()
        },
        app,
    )


def new_app(gateway: Gateway) -> FastAPI:
    """Creates an app without routes that answers errors as problems and logs and counts its requests."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, telemetry=_NO_TELEMETRY)
    app.add_middleware(_with_telemetry, gateway=gateway)
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(HTTPException, _on_http_exception)
    return app


def _with_telemetry(app: ASGIApp, gateway: Gateway) -> ASGIApp:
    return RequestTelemetry(app, gateway.metrics, gateway.tracing)


class RankingEndpoint:
    """A ranking path as a plain ASGI app: cheaper for small requests than FastAPI's middlewares and routing.

    Refuses a request before its body is read where possible, so that refusals stay cheap under overload.
    """

    def __init__(self, path: str, handler: Handler, gateway: Gateway) -> None:
        self._route, self._handler, self._gateway = SimpleNamespace(path=path), handler, gateway
        self._check_key = key_check(gateway.settings.api_keys, "rank")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self._route  # read by RequestTelemetry
        request = Request(scope, receive)
        try:
            response = await self._rank(request)
        except Problem as problem:
            response = _problem_response(problem, request.state.record)
        await response(scope, receive, send)

    async def _rank(self, request: Request) -> Response:
        if request.method != "POST":
            raise _wrong_method(request.method, {"Allow": "POST"})
        gateway = self._gateway
        if gateway.queue.is_full:
            raise gateway.queue.refusal()
        if gateway.settings.api_keys:
            await self._check_key(request)
        body, background = await gateway.answer(self._handler, request, request.state.record)
        return Response(body, media_type="application/json", background=background)


def key_check(keys: Sequence[ApiKey], role: KeyRole, of_page: bool = False) -> Any:
    """Returns a dependency that refuses requests without a known key that has the role.

    of_page: also accepts the key as the password of Basic authentication, which browsers prompt for.
    """
    read_secret = page_secret if of_page else bearer_secret
    challenge = 'Basic realm="PrivRank", charset="UTF-8"' if of_page else "Bearer"

    async def check(request: Request) -> None:
        entries = authenticate(read_secret(request.headers.get("authorization", "")), keys, challenge)
        request.state.record.key = entries[0].name
        require_role(role, entries)

    return check


def _needs(role: KeyRole, settings: Settings) -> list[Any]:
    """Returns the dependencies of a route that needs this role; empty if no keys are set."""
    return [Depends(key_check(settings.api_keys, role))] if settings.api_keys else []


def _add_metrics(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/metrics", dependencies=_needs("metrics", gateway.settings))
    async def text() -> Response:
        return Response(gateway.metrics.to_text(), headers={"Content-Type": PROMETHEUS_MEDIA_TYPE})


def _add_models(app: FastAPI, gateway: Gateway) -> None:
    router = APIRouter(dependencies=_needs("rank", gateway.settings))

    @router.get("/v2")
    async def server() -> Response:
        return JSONResponse(open_inference.SERVER)

    @router.get("/v2/models/{name}")
    @router.get("/v2/models/{name}/versions/{version}")
    async def model(name: str, version: str | None = None) -> Response:
        models = gateway.models
        return JSONResponse(open_inference.metadata(open_inference.find_model(models, name, version), models))

    @router.get("/v2/models/{name}/ready")
    @router.get("/v2/models/{name}/versions/{version}/ready")
    async def model_ready(name: str, version: str | None = None) -> Response:
        served = open_inference.find_model(await gateway.ready_models(), name, version)
        return JSONResponse({"name": served.name, "ready": True})

    app.include_router(router)


def _add_health(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/livez")
    async def livez() -> Response:
        return JSONResponse({"status": "alive"})

    @app.get("/readyz")
    async def readyz() -> Response:
        served = (await gateway.ready_models()).current
        body: dict[str, Any] = {"status": "ready", "model": {"name": served.name, "version": served.version}}
        if (warning := gateway.versions.polls.warning) is not None:
            body["warning"] = warning
        return JSONResponse(body)

    @app.get("/v2/health/live")
    async def live() -> Response:
        return JSONResponse({"live": True})

    @app.get("/v2/health/ready")
    async def ready() -> Response:
        return JSONResponse({"ready": bool(await gateway.ready_models())})


def _add_pages(app: FastAPI, gateway: Gateway) -> None:
    pages = Pages(gateway.settings)
    if gateway.settings.pages != "off":
        app.include_router(_rendered_pages(pages, gateway))

    @app.get("/playground/{name}")
    async def asset(name: str) -> Response:
        if name not in ASSETS:
            raise HTTPException(404)
        return pages.asset(name)

    @app.get("/problems/{slug}")
    async def problem(slug: str) -> Response:
        return pages.problem(slug)


def _rendered_pages(pages: Pages, gateway: Gateway) -> APIRouter:
    """Routes of the pages that are rendered from the loaded model's features."""
    check = Depends(key_check(gateway.settings.api_keys, "rank", of_page=True))
    router = APIRouter(dependencies=[check] if gateway.settings.pages == "key" else [])

    @router.get("/")
    async def playground() -> Response:
        return await pages.playground(gateway.models) if gateway.has_model else pages.loading()

    @router.get("/docs")
    async def docs() -> Response:
        return await pages.docs(gateway.models) if gateway.has_model else pages.loading()

    @router.get("/openapi.json")
    async def openapi() -> Response:
        return await pages.openapi(gateway.models)

    return router


async def _on_problem(request: Request, problem: Any) -> Response:
    return _problem_response(problem, request.state.record)


def _problem_response(problem: Problem, record: RequestRecord) -> Response:
    record.problems.append(problem.slug)
    body = problem.to_bytes(record.request_id)
    return Response(body, problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


async def _on_http_exception(request: Request, error: Any) -> Response:
    """Answers the router's errors, unknown path or wrong method, as problems."""
    headers = dict(error.headers or {})
    if error.status_code == 405:
        return await _on_problem(request, _wrong_method(request.method, headers))
    slug = "not-found" if error.status_code == 404 else "invalid-request"
    return await _on_problem(request, Problem(slug, "Nothing is served at this path", headers=headers))


def _wrong_method(method: str, headers: dict[str, str]) -> Problem:
    return Problem("method-not-allowed", f"{method} is not served here", headers=headers)
