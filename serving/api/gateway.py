"""What the process is at this moment: the model that serves, the requests in line, and whether it is about to end."""

import asyncio
from functools import partial

from starlette.background import BackgroundTask
from starlette.requests import Request

from serving.answers import Shape, answer
from serving.line import TIMEOUT_HEADER, Line, allowed_seconds, unless_left
from serving.metrics import Metrics
from serving.problems import Problem
from serving.record import Record
from serving.request_body import Bodies
from serving.served import Models
from serving.settings import Settings
from serving.shadow import Shadow
from serving.tracing import Tracing
from serving.versions import Versions


class Gateway:
    """The process's state."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.draining = False
        self.versions = Versions(settings)
        self.bodies = Bodies(settings.limits, settings.connections)
        self.line = Line(settings.queue)
        self.tracing = Tracing(settings.tracing)
        self.metrics = Metrics(self.versions, self.line, self.bodies, self.tracing)
        self.shadow = Shadow(settings, self.line)
        if settings.shadow.version is not None:
            self.metrics.register(self.shadow)
        self._checking: asyncio.Future[None] | None = None
        if settings.backend == "tf-serving":
            from serving.remote import connection_to  # brings gRPC

            self.metrics.register(connection_to(settings.tf_serving))

    @property
    def models(self) -> Models:
        """What answers from now on, also while draining. Errors: Problem not-ready."""
        if self.versions.models is None:
            raise Problem("not-ready", "The model is being loaded", headers={"Retry-After": "2"})
        return self.versions.models

    @property
    def has_model(self) -> bool:
        return self.versions.models is not None

    async def ready_models(self) -> Models:
        """What answers, if a load balancer may send requests. Errors: Problem not-ready; why its backend cannot score.

        However many ask, the backend is checked by one thread at a time.
        """
        if self.draining:
            raise Problem("not-ready", "The gateway is shutting down")
        models = self.models
        if self._checking is None or self._checking.done():
            self._checking = asyncio.ensure_future(asyncio.to_thread(models.current.ranker.check))
        await asyncio.shield(self._checking)
        return models

    async def answer(self, shape: Shape, request: Request, record: Record) -> tuple[bytes, BackgroundTask | None]:
        """The request's answer in this shape, as JSON, and what is to be done once it is sent.

        Errors: Problem, ClientDisconnect.
        """
        models = self.models
        record.allowed = allowed_seconds(request.headers.get(TIMEOUT_HEADER), self.settings.queue.request_seconds)
        deadline = asyncio.get_running_loop().time() + record.seconds_left
        body = await self.bodies.read(request, deadline, record)
        work = partial(answer, shape, body, models, record)
        answered = await unless_left(self.line.run(work, deadline, record), request.receive)
        return answered, self.shadow.after(shape, body, models, record)
