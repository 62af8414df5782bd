"""Which version is served: found in the export directory, loaded beside the old one, switched to, and back again.

One thread does all of it, one thing after another; requests only ever read `models`.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from features.errors import InputError
from serving.log import log, places_of
from serving.served import Models, Served, load
from serving.settings import Settings

LONGEST_WAIT = 3600.0  # seconds until a refused version is tried again, at most
Order = tuple[Callable[[], None], "Future[None]"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a version does not serve, and when it is tried again: its copy may still have been under way."""

    reason: str
    times: int
    again_at: float  # time.monotonic()


def wanted(complete: Iterable[int], refused: Collection[int], asked: int | None) -> int | None:
    """The version to take: the one asked for, else the highest that is not refused."""
    if asked is not None:
        return asked
    return max((version for version in complete if version not in refused), default=None)


class Versions:
    """The versions in memory, and the thread that changes them. `models` is None until the first one is ready."""

    def __init__(self, settings: Settings) -> None:
        self.models: Models | None = None
        self.failure: BaseException | None = None  # why the thread ended without a model
        self.held: int | None = None  # the version that the administration asked for
        self.refused: dict[int, Refusal] = {}
        self.switches = self.refusals = 0  # versions switched to, and attempts that were refused
        self._settings = settings
        self._orders: queue.Queue[Order | None] = queue.Queue()
        self._complaint = ""  # the last one logged

    # --- for other threads

    def start(self, on_ready: Callable[[Served], None], on_failure: Callable[[], None]) -> None:
        """Starts the thread. In it, one of the two is called when the first version is loaded, or none can be."""
        threading.Thread(target=self._run, args=(on_ready, on_failure), name="versions").start()

    def stop(self) -> None:
        """The thread ends after what it is at."""
        self._orders.put(None)

    def serve(self, version: int) -> "Future[None]":
        """Serves this version until told otherwise. The future's error: InputError; what served serves on."""
        return self._order(lambda: self._hold(version))

    def roll_back(self) -> "Future[None]":
        """Serves the next lower version until told otherwise. The future's error: InputError; what served serves on."""
        return self._order(self._roll_back)

    def follow(self) -> "Future[None]":
        """Forgets what was asked and what was refused, and looks at the directory. The future's error: InputError."""
        return self._order(self._follow)

    def _order(self, work: Callable[[], None]) -> "Future[None]":
        future: Future[None] = Future()
        self._orders.put((work, future))
        return future

    # --- in the thread

    def _run(self, on_ready: Callable[[Served], None], on_failure: Callable[[], None]) -> None:
        try:
            on_ready(self._first())
        except BaseException as error:  # carried to the main thread, which raises it
            self.failure = error
            on_failure()
            return
        while True:
            try:
                order = self._orders.get(timeout=self._settings.reloading.every_seconds)
            except queue.Empty:
                self._look()
                continue
            if order is None:
                return
            _obey(*order)

    def _first(self) -> Served:
        """Errors: InputError, the highest version's where none can be served."""
        self._settle()
        if self.models is None:
            raise InputError(self.refused[max(self.refused)].reason)
        return self.models.current

    def _look(self) -> None:
        """A look that nobody ordered. What is wrong is logged once, and what serves goes on."""
        try:
            self._settle()
            self._settle_shadow()
            self._complaint = ""
        except InputError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log("look-failed", logging.ERROR, reason=self._complaint)

    def _settle(self) -> None:
        """Serves what should be served. Errors: InputError where the directory or its pin cannot be read."""
        from serving import model_store  # brings TensorFlow

        folder = self._settings.export_dir
        asked = self.held if self.held is not None else model_store.pinned_version(folder)
        complete = model_store.complete_versions(folder)
        named = {asked, self._settings.shadow.version, *complete}
        self.refused = {version: refusal for version, refusal in self.refused.items() if version in named}
        while (version := self._wanted(complete, asked)) not in (None, self.models and self.models.current.version):
            if self._try(version, self._switch, on_purpose=asked is not None):
                return

    def _settle_shadow(self) -> None:
        """Takes the version that is to be tried in the shadow, if it is not the one that serves. Errors: InputError."""
        from serving import model_store

        asked = self._settings.shadow.version
        if asked is None or self.models is None:
            return
        complete = model_store.complete_versions(self._settings.export_dir)
        shadow = self.models.shadow and self.models.shadow.version
        while (version := self._wanted(complete, None if asked == "newest" else asked)) not in (None, shadow):
            if version == self.models.current.version:
                self.models = replace(self.models, shadow=None)
                return
            if self._try(version, self._cast, on_purpose=False):
                return

    def _wanted(self, complete: Iterable[int], asked: int | None) -> int | None:
        """The version to take now, or None."""
        waiting = {v for v, refusal in self.refused.items() if time.monotonic() < refusal.again_at}
        version = wanted(complete, waiting, asked)
        return None if version in waiting else version

    def _try(self, version: int, take: Callable[[Served], None], on_purpose: bool) -> bool:
        """Whether the version was loaded and taken. Otherwise it is refused, for a while.

        on_purpose: somebody asked for it, so its requests may differ from those of the version before.
        """
        try:
            served = self._loaded(version, on_purpose)
            self.refused.pop(version, None)
            take(served)
            return True
        except InputError as error:
            self._refuse(version, str(error))
        except Exception as error:  # a fault of ours, or memory: what serves goes on serving
            if self.models is None:
                raise
            self._refuse(version, f"version {version}: {type(error).__name__} at {places_of(error)}")
        return False

    def _loaded(self, version: int, on_purpose: bool) -> Served:
        models = self.models
        if models is None:
            return load(self._settings, version)
        if models.shadow is not None and models.shadow.version == version:
            return models.shadow
        if version in models.resident:
            return models.resident[version]
        return load(self._settings, version, None if on_purpose else models.current.spec)

    def _switch(self, served: Served) -> None:
        resident = {v: model for v, model in self.models.resident.items() if v != served.version} if self.models else {}
        latest = list((resident | {served.version: served}).items())[-self._settings.reloading.resident :]
        shadow = self.models.shadow if self.models else None
        self.models = Models(served, dict(latest), None if served is shadow else shadow)
        self.switches += 1
        log("serving", model=served.name, version=served.version, warm_up_requests=served.warmed)

    def _cast(self, shadow: Served) -> None:
        if self.models is not None:
            self.models = replace(self.models, shadow=shadow)
        log("shadow", model=shadow.name, version=shadow.version)

    def _refuse(self, version: int, reason: str) -> None:
        times = self.refused[version].times + 1 if version in self.refused else 1
        wait = min(self._settings.reloading.again_seconds * 2 ** (times - 1), LONGEST_WAIT)
        self.refused[version] = Refusal(reason, times, time.monotonic() + wait)
        self.refusals += 1
        log("version-refused", logging.ERROR, version=version, reason=reason, again_in_seconds=wait)

    def _hold(self, version: int) -> None:
        before = self.held
        self.held = version
        self.refused.pop(version, None)
        self._settle()
        if version in self.refused:
            self.held = before
            raise InputError(self.refused[version].reason)

    def _roll_back(self) -> None:
        from serving import model_store

        complete = model_store.complete_versions(self._settings.export_dir)
        serving = self.models.current.version if self.models else 0
        lower = [version for version in complete if version < serving]
        if not lower:
            raise InputError(
                f"no version below {serving} is in {self._settings.export_dir}: there is none to go back to"
            )
        self._hold(lower[-1])

    def _follow(self) -> None:
        self.held = None
        self.refused.clear()
        self._settle()


def _obey(work: Callable[[], None], answer: "Future[None]") -> None:
    try:
        work()
    except Exception as error:  # whoever ordered it is told
        answer.set_exception(error)
    else:
        answer.set_result(None)
