"""The HTML pages: playground, API reference, problem types. They load nothing from other hosts."""

import asyncio
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import orjson
from fastapi.responses import HTMLResponse, Response

from features.spec import Feature
from serving.api.json_schemas import PROBLEM
from serving.api.openapi import endpoints_of, openapi_of
from serving.models.loaded_model import LoadedModel, Models
from serving.problems import PROBLEM_TYPES, Problem
from serving.settings import Settings

# scripts and styles from this gateway only; no frames, plug-ins or form submissions
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

ASSETS = {  # file below playground/ -> media type
    "page.css": "text/css; charset=utf-8",
    "playground.js": "text/javascript; charset=utf-8",
    "ranking.js": "text/javascript; charset=utf-8",
    "request.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class RenderedPages:
    """Pages rendered from the models in memory: two of HTML, and the OpenAPI document."""

    playground: bytes
    docs: bytes
    openapi: bytes


class Pages:
    """The pages. Those that depend on the model are rendered in a thread, once for each set of versions in memory."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # autoescape: feature names, samples and model names come from untrusted files
        loader = jinja2.FileSystemLoader(_FOLDER / "playground")
        self._templates = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
        self._assets = {name: (_FOLDER / "playground" / name).read_bytes() for name in ASSETS}
        self._loading = self._html("loading.html")
        self._problems = {slug: self._html("problem.html", problem=PROBLEM_TYPES[slug]) for slug in PROBLEM_TYPES}
        # weak reference, so that the cached pages keep no version in memory
        self._current: weakref.ref[LoadedModel] | None = None
        self._resident: tuple[int, ...] = ()
        self._rendering: asyncio.Future[RenderedPages]

    def asset(self, name: str) -> Response:
        return Response(self._assets[name], media_type=ASSETS[name], headers=HEADERS)

    async def playground(self, models: Models) -> Response:
        return HTMLResponse((await self._rendered(models)).playground, headers=HEADERS)

    async def docs(self, models: Models) -> Response:
        return HTMLResponse((await self._rendered(models)).docs, headers=HEADERS)

    async def openapi(self, models: Models) -> Response:
        return Response((await self._rendered(models)).openapi, media_type="application/json")

    def problem(self, slug: str) -> Response:
        """Errors: Problem not-found."""
        if slug not in self._problems:
            raise Problem("not-found", "There is no problem type of this name")
        return HTMLResponse(self._problems[slug], headers=HEADERS)

    def loading(self) -> Response:
        return HTMLResponse(self._loading, 503, headers=HEADERS | {"Refresh": "2", "Retry-After": "2"})

    async def _rendered(self, models: Models) -> RenderedPages:
        resident = tuple(sorted(models.resident, reverse=True))
        if self._current is None or self._current() is not models.current or self._resident != resident:
            self._current, self._resident = weakref.ref(models.current), resident
            self._rendering = asyncio.ensure_future(asyncio.to_thread(self._render, models.current, resident))
        return await asyncio.shield(self._rendering)

    def _render(self, served: LoadedModel, resident: tuple[int, ...]) -> RenderedPages:
        document = orjson.dumps(openapi_of(served, self._settings))
        return RenderedPages(self._playground(served, resident), self._docs(served), document)

    def _playground(self, served: LoadedModel, resident: tuple[int, ...]) -> bytes:
        # the samples are data of the model, not to be shown without a key
        samples = () if self._settings.api_keys else served.samples
        context = sorted(served.spec.at("context", served.spec.regular), key=lambda feature: not feature.is_text)
        requests = samples or (endpoints_of(served, self._settings)[0].example,)
        return self._html(
            "index.html",
            served=served,
            versions=resident,
            fields=[_field(feature) for feature in context],
            samples=[_sample(request, context, served.reader.bare) for request in requests],
            bare=served.reader.bare.name if served.reader.bare else "",
            keys=bool(self._settings.api_keys),
        )

    def _docs(self, served: LoadedModel) -> bytes:
        endpoints = endpoints_of(served, self._settings)
        return self._html(
            "docs.html",
            served=served,
            endpoints=endpoints,
            examples={e.path: orjson.dumps(_short(e.example), option=orjson.OPT_INDENT_2).decode() for e in endpoints},
            problem=PROBLEM,
            problems=PROBLEM_TYPES.values(),
            limits=self._settings.limits,
            keys=bool(self._settings.api_keys),
        )

    def _html(self, name: str, **values: Any) -> bytes:
        page = self._templates.get_template(name).render(has_pages=self._settings.pages != "off", **values)
        return page.encode()


def _field(feature: Feature) -> dict[str, str]:
    """Describes a context feature as a form input of the playground; non-text values are entered as JSON."""
    kind = "text" if feature.type in ("text", "categorical") else "json"
    return {"name": feature.name, "kind": kind, "type": feature.type}


def _sample(request: dict[str, Any], context: list[Feature], bare: Feature | None) -> dict[str, Any]:
    """Formats a request for the playground's form. json: the same for the page's script."""
    written = {feature.name: _written(feature, request.get(feature.name)) for feature in context}
    lines = "\n".join(_line(item, bare) for item in request["items"])
    name = next((text for text in written.values() if text), "the first")
    return {
        "name": name,
        "context": written,
        "lines": lines,
        "json": orjson.dumps({"context": written, "lines": lines}).decode(),
    }


def _written(feature: Feature, value: Any) -> str:
    if value is None or _field(feature)["kind"] == "text":
        return str(value or "")
    return orjson.dumps(value).decode()


def _line(item: Any, bare: Feature | None) -> str:
    """Formats an item as a line of the playground: the bare text if the item has no other feature, else JSON."""
    if isinstance(item, str):
        return _one_line(item)
    values = {name: value for name, value in item.items() if name != "id"}
    if bare is not None and set(values) == {bare.name}:
        return _one_line(str(values[bare.name]))
    return orjson.dumps(values).decode()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _short(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the request with every list cut to three entries."""
    return {name: value[:3] if isinstance(value, list) else value for name, value in request.items()}
