"""The state of a gateway process: the serving model, the request queue, and whether it is draining."""

import asyncio
from functools import partial
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request

from serving.api.handlers import answer
from serving.api.request_body import BodyReader
from serving.api.state_metrics import StateCollector
from serving.models.loaded_model import Handler, Models
from serving.models.shadow import ShadowScorer
from serving.models.version_manager import VersionManager
from serving.observability.metrics import Metrics
from serving.observability.request_record import RequestRecord
from serving.observability.score_drift import ScoreCollector
from serving.observability.span_export import SpanExporter
from serving.problems import Problem
from serving.ranking.request_queue import TIMEOUT_HEADER, RequestQueue, cancel_on_disconnect, timeout_seconds
from serving.settings import Settings


class Gateway:
    """Owns the parts of a gateway process. The routes call it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.draining = False
        self.versions = VersionManager(settings)
        self.bodies = BodyReader(settings.limits, settings.connections)
        self.queue = RequestQueue(settings.queue)
        self.tracing = SpanExporter(settings.tracing)
        self.metrics = Metrics(ScoreCollector(self._score_histograms))
        self.metrics.register(StateCollector(self.versions, self.queue, self.bodies, self.tracing))
        self.shadow = ShadowScorer(settings, self.queue)
        if settings.shadow.version is not None:
            self.metrics.register(self.shadow)
        self._checking: asyncio.Future[None] | None = None
        if settings.backend == "tf-serving":
            from serving.backends.tf_serving_channel import connection_to  # imports gRPC

            self.metrics.register(connection_to(settings.tf_serving))

    @property
    def models(self) -> Models:
        """The loaded models, also while draining. Errors: Problem not-ready."""
        if self.versions.models is None:
            raise Problem("not-ready", "The model is being loaded", headers={"Retry-After": "2"})
        return self.versions.models

    def _score_histograms(self) -> dict[int, dict[str, Any]]:
        resident = self.versions.models.resident if self.versions.models else {}
        return {version: model.manifest.score_histogram for version, model in resident.items()}

    @property
    def has_model(self) -> bool:
        return self.versions.models is not None

    async def ready_models(self) -> Models:
        """Returns the loaded models if a load balancer may send requests.

        A failing store leaves the gateway ready, because the loaded models go on serving.
        Concurrent calls share one check of the backend.
        Errors: Problem not-ready, also if the version thread has ended; a Problem if the backend cannot score.
        """
        if self.draining:
            raise Problem("not-ready", "The gateway is shutting down")
        models = self.models
        if not self.versions.is_running:
            raise Problem("not-ready", "The thread that changes versions has ended: restart the gateway")
        if self._checking is None or self._checking.done():
            self._checking = asyncio.ensure_future(asyncio.to_thread(models.current.ranker.check))
        await asyncio.shield(self._checking)
        return models

    async def answer(
        self, handler: Handler, request: Request, record: RequestRecord
    ) -> tuple[bytes, BackgroundTask | None]:
        """Returns the response body, as JSON, and the background task to run once it is sent.

        Errors: Problem, ClientDisconnect.
        """
        models = self.models
        record.allowed = timeout_seconds(request.headers.get(TIMEOUT_HEADER), self.settings.queue.request_seconds)
        deadline = asyncio.get_running_loop().time() + record.seconds_left
        body = await self.bodies.read(request, deadline, record)
        work = partial(answer, handler, body, models, record)
        response = await cancel_on_disconnect(self.queue.run(work, deadline, record), request.receive)
        return response, self.shadow.background_task(handler, body, models, record)
