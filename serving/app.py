"""The routes. An endpoint translates between HTTP and the gateway; it never decides."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from serving.gateway import Gateway
from serving.openapi import example_request, openapi_of
from serving.pages import ASSETS, Pages
from serving.problems import MEDIA_TYPE, Problem
from serving.request_body import read_body
from serving.telemetry import RequestTelemetry


def create_app(gateway: Gateway) -> FastAPI:
    """The gateway's HTTP face."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(RequestTelemetry)
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(HTTPException, _on_http_exception)
    _add_ranking(app, gateway)
    _add_health(app, gateway)
    _add_pages(app, gateway)
    return app


def _add_ranking(app: FastAPI, gateway: Gateway) -> None:
    async def rank(request: Request) -> Response:
        served = gateway.served()
        with gateway.place_in_line():
            body = await read_body(request, gateway.settings.limits)
            answer, usage = await gateway.answer(served, body, request.state.request_id)
        request.state.logged.update(usage, version=served.version)
        return Response(answer, media_type="application/json")

    app.add_api_route("/v1/rank", rank, methods=["POST"])
    app.add_api_route("/rank", rank, methods=["POST"])


def _add_health(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/livez")
    async def livez() -> Response:
        return JSONResponse({"status": "alive"})

    @app.get("/readyz")
    async def readyz() -> Response:
        if gateway.draining:
            raise Problem("not-ready", "The gateway is shutting down")
        served = gateway.served()
        return JSONResponse({"status": "ready", "model": {"name": served.name, "version": served.version}})


def _add_pages(app: FastAPI, gateway: Gateway) -> None:
    pages = Pages()

    @app.get("/")
    async def playground() -> Response:
        return pages.playground(gateway.served()) if gateway.has_model else pages.loading()

    @app.get("/playground/{name}")
    async def asset(name: str) -> Response:
        if name not in ASSETS:
            raise HTTPException(404)
        return pages.asset(name)

    @app.get("/docs")
    async def docs() -> Response:
        return pages.docs(gateway.served(), gateway.settings.limits) if gateway.has_model else pages.loading()

    @app.get("/openapi.json")
    async def openapi() -> Response:
        served, limits = gateway.served(), gateway.settings.limits
        example = example_request(served.samples, served.spec)
        return JSONResponse(openapi_of(served.spec, served.reader.bare, limits, example))

    @app.get("/problems/{slug}")
    async def problem(slug: str) -> Response:
        return pages.problem(slug)


async def _on_problem(request: Request, problem: Any) -> Response:
    request.state.logged["problem"] = problem.slug
    body = problem.to_bytes(request.state.request_id)
    return Response(body, problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


async def _on_http_exception(request: Request, error: Any) -> Response:
    """Starlette's own refusals, which are the router's: no such path, or not with this method."""
    slug = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-request")
    detail = (
        f"{request.method} is not served here" if slug == "method-not-allowed" else "Nothing is served at this path"
    )
    return await _on_problem(request, Problem(slug, detail, headers=dict(error.headers or {})))
