"""The pages for people: the playground, the reference, the problem types. Nothing on them comes from elsewhere."""

from pathlib import Path
from typing import Any

import jinja2
import orjson
from fastapi.responses import HTMLResponse, Response

from features.spec import Feature
from serving.json_schemas import PROBLEM
from serving.openapi import endpoints_of
from serving.problems import PROBLEM_TYPES, Problem
from serving.served import Models, Served
from serving.settings import Settings

# script and style from this gateway's own files only; no frame, no plug-in, no form that leaves the page
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
_HERE = Path(__file__).parent


class Pages:
    """The pages, their templates and files read once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # autoescape: feature names, samples and model names come from files that we did not write
        loader = jinja2.FileSystemLoader(_HERE / "playground")
        self._templates = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
        self._assets = {name: (_HERE / "playground" / name).read_bytes() for name in ASSETS}

    def asset(self, name: str) -> Response:
        return Response(self._assets[name], media_type=ASSETS[name], headers=HEADERS)

    def playground(self, models: Models) -> Response:
        served = models.current
        # the samples are the model's data, which is shown to nobody without a key
        samples = () if self._settings.api_keys else served.samples
        context = sorted(served.spec.at("context", served.spec.regular), key=lambda feature: not feature.is_text)
        requests = samples or (endpoints_of(served, self._settings)[0].example,)
        return self._page(
            "index.html",
            served=served,
            versions=sorted(models.resident, reverse=True),
            fields=[_field(feature) for feature in context],
            samples=[_sample(request, context, served.reader.bare) for request in requests],
            bare=served.reader.bare.name if served.reader.bare else "",
            keys=bool(self._settings.api_keys),
        )

    def docs(self, served: Served) -> Response:
        endpoints = endpoints_of(served, self._settings)
        return self._page(
            "docs.html",
            served=served,
            endpoints=endpoints,
            examples={e.path: orjson.dumps(_short(e.example), option=orjson.OPT_INDENT_2).decode() for e in endpoints},
            problem=PROBLEM,
            problems=PROBLEM_TYPES.values(),
            limits=self._settings.limits,
            keys=bool(self._settings.api_keys),
        )

    def problem(self, slug: str) -> Response:
        """Errors: Problem not-found."""
        if slug not in PROBLEM_TYPES:
            raise Problem("not-found", "There is no problem type of this name")
        return self._page("problem.html", problem=PROBLEM_TYPES[slug])

    def loading(self) -> Response:
        return self._page("loading.html", status=503, headers={"Refresh": "2", "Retry-After": "2"})

    def _page(self, name: str, status: int = 200, headers: dict[str, str] | None = None, **values: Any) -> Response:
        html = self._templates.get_template(name).render(**values)
        return HTMLResponse(html, status, headers=HEADERS | (headers or {}))


def _field(feature: Feature) -> dict[str, str]:
    """A context feature as an input of the playground's form; what is no text is written as JSON."""
    kind = "text" if feature.type in ("text", "categorical") else "json"
    return {"name": feature.name, "kind": kind, "type": feature.type}


def _sample(request: dict[str, Any], context: list[Feature], bare: Feature | None) -> dict[str, Any]:
    """A request as the form holds it. json: the same for the page's script."""
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
    """An item as the playground's line: its text alone, where a bare text says it all."""
    if isinstance(item, str):
        return _one_line(item)
    values = {name: value for name, value in item.items() if name != "id"}
    if bare is not None and set(values) == {bare.name}:
        return _one_line(str(values[bare.name]))
    return orjson.dumps(values).decode()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _short(request: dict[str, Any]) -> dict[str, Any]:
    """A request with three entries of a list at most."""
    return {name: value[:3] if isinstance(value, list) else value for name, value in request.items()}
