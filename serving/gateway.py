"""What the process serves at this moment: nothing yet, a model, or its last requests."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import anyio
import orjson

from features.spec import FeatureSpec
from serving.problems import Problem
from serving.schemas import RequestReader
from serving.settings import Settings

if TYPE_CHECKING:  # its import brings TensorFlow, which `load` brings when it is time
    from serving.ranking import RankedItem, Ranker


class Served:
    """A ready model: bodies in, answers out. `load` is the only maker."""

    def __init__(self, ranker: "Ranker", reader: RequestReader, warmed: int) -> None:
        self._ranker, self.reader, self.warmed = ranker, reader, warmed
        manifest = ranker.model.manifest
        self.name: str = manifest.name
        self.version: int = ranker.model.version
        self.spec: FeatureSpec = ranker.spec
        self.samples: tuple[dict[str, Any], ...] = manifest.warm_up

    def answer(self, body: bytes, request_id: str) -> tuple[bytes, dict[str, int]]:
        """A /rank body's answer as JSON, and its usage for the log. Errors: Problem."""
        ranking = self._ranker.rank(self.reader.read(body))
        usage = asdict(ranking.usage)
        answer = {
            "request_id": request_id,
            "model": {"name": self.name, "version": self.version},
            "results": [_result(item) for item in ranking.results],
            "usage": usage,
        }
        return orjson.dumps(answer), usage


def _result(item: "RankedItem") -> dict[str, Any]:
    result: dict[str, Any] = {**item.texts, "id": item.id, "index": item.index, "score": item.score}
    if item.debug is not None:
        result["debug"] = item.debug
    return result


def load(settings: Settings) -> Served:
    """Finds, verifies, loads and warms the model. Takes seconds. Errors: InputError."""
    # imported here, in the loading thread: TensorFlow takes seconds to import, and /livez answers meanwhile
    from serving import backends, model_store, ranking, warm_up

    model = model_store.verify(settings.export_dir, model_store.find_version(settings.export_dir))
    ranker = ranking.Ranker(model, backends.backend_of(settings.backend, model))
    reader = RequestReader(ranker.spec, settings.limits)
    return Served(ranker, reader, warm_up.warm_up(ranker, reader, settings.limits.items))


class Gateway:
    """The process's state. Written by the loading thread and by signals, read by every request."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.draining = False
        self.failure: BaseException | None = None  # why loading ended without a model
        self._served: Served | None = None
        self._in_flight = 0
        self._threads: anyio.CapacityLimiter | None = None

    def start_loading(self, on_ready: Callable[[Served], None], on_failure: Callable[[], None]) -> None:
        """Loads in a thread of its own; one of the two is called in it."""

        def run() -> None:
            try:
                served = load(self.settings)
            except BaseException as error:  # carried to the main thread, which raises it
                self.failure = error
                on_failure()
            else:
                self._served = served
                on_ready(served)

        threading.Thread(target=run, name="loading").start()

    @property
    def has_model(self) -> bool:
        return self._served is not None

    def served(self) -> Served:
        """The model to answer with, also while draining. Errors: Problem not-ready."""
        if self._served is None:
            raise Problem("not-ready", "The model is being loaded", headers={"Retry-After": "2"})
        return self._served

    @contextmanager
    def place_in_line(self) -> Iterator[None]:
        """Counts a request while it is in flight. Errors: Problem overloaded when the line is full."""
        if self._in_flight >= self.settings.waiting:
            told = f"{self._in_flight} requests are in flight, as many as this gateway takes"
            raise Problem("overloaded", told, headers={"Retry-After": "1"})
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def answer(self, served: Served, body: bytes, request_id: str) -> tuple[bytes, dict[str, int]]:
        """Served.answer in a worker thread, so that health and other requests are answered meanwhile."""
        if self._threads is None:  # a limiter belongs to the running loop
            self._threads = anyio.CapacityLimiter(self.settings.threads)
        return await anyio.to_thread.run_sync(served.answer, body, request_id, limiter=self._threads)


def raise_failure(gateway: Gateway) -> None:
    """Errors: what ended the loading, an InputError where the operator can mend it."""
    if gateway.failure is not None:
        raise gateway.failure
