"""Manages model versions: polls the export directory, loads new versions, switches to them and rolls back.

One thread does all of this, in sequence; requests only read `models`.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace

from features.errors import InputError
from serving.exports.private_directory import remove_stale_directories
from serving.exports.store_error import StoreError
from serving.models.loaded_model import LoadedModel, Models, load
from serving.models.version_polls import VersionPolls, VersionRefusal, select_version
from serving.observability.json_log import log, stack_locations
from serving.settings import Settings

_MAX_RETRY_SECONDS = 3600.0  # the longest wait before a refused version is retried
_Order = tuple[Callable[[], None], "Future[None]"]


class VersionManager:
    """The models in memory, and the thread that changes them. `models` is None until the first one is ready."""

    def __init__(self, settings: Settings) -> None:
        self.models: Models | None = None
        self.failure: BaseException | None = None  # why the thread ended before any model was ready
        self.held: int | None = None  # the version that an admin request holds
        self.refused: dict[int, VersionRefusal] = {}
        self.switches = self.refusals = 0  # successful switches and refused attempts
        self.polls = VersionPolls(settings.reloading.every_seconds)
        self._settings = settings
        self._orders: queue.Queue[_Order | None] = queue.Queue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    # --- called by other threads

    def start(self, on_ready: Callable[[LoadedModel], None], on_failure: Callable[[], None]) -> None:
        """Starts the thread. It calls on_ready with the first model, or on_failure if no version can be loaded."""
        self._thread = threading.Thread(target=self._run, args=(on_ready, on_failure), name="versions")
        self._thread.start()

    def stop(self) -> None:
        """Lets the thread end after its current work."""
        self._stopping.set()
        self._orders.put(None)

    def join(self, seconds: float) -> bool:
        """Waits for the thread to end. Returns whether it has; loading a version may take longer."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.is_running

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive. Without it no version is switched to."""
        return self._thread is not None and self._thread.is_alive()

    def serve(self, version: int) -> "Future[None]":
        """Serves this version until the next order. On an error (InputError, StoreError) nothing changes."""
        return self._order(lambda: self._serve(version))

    def roll_back(self) -> "Future[None]":
        """Serves the next lower version until the next order. The future's errors: see `serve`."""
        return self._order(self._roll_back)

    def follow(self) -> "Future[None]":
        """Follows the directory again: clears the held and the refused versions. The future's errors: see `serve`."""
        return self._order(self._follow)

    def _order(self, work: Callable[[], None]) -> "Future[None]":
        future: Future[None] = Future()
        self._orders.put((work, future))
        return future

    # --- runs in the thread

    def _run(self, on_ready: Callable[[LoadedModel], None], on_failure: Callable[[], None]) -> None:
        try:
            first = self._first()
            if first is None:
                return
            on_ready(first)
        except BaseException as error:  # the main thread raises it
            self.failure = error
            on_failure()
            return
        interval = self._settings.reloading.every_seconds
        next_poll = time.monotonic() + interval
        while True:
            try:
                order = self._orders.get(timeout=max(0.0, next_poll - time.monotonic()))
            except queue.Empty:
                self._poll()
                next_poll = time.monotonic() + interval
                continue
            if order is None:
                return
            _execute(*order)

    def _first(self) -> LoadedModel | None:
        """Loads the first model; retries while the store fails. Returns None if stopped meanwhile.

        Raises: InputError, of the highest version if none can be served.
        """
        for path in remove_stale_directories():
            log("stale-copy-removed", path=path)
        while not self._stopping.is_set():
            try:
                self._update_current()
            except StoreError as error:
                if not error.transient:
                    raise InputError(f"{error}. Give the gateway the right to read its --export-dir") from None
                self.polls.count_failure(str(error))
                self._stopping.wait(self._settings.reloading.every_seconds)
                continue
            if self.models is not None:
                self.polls.count_success()
                return self.models.current
            refusal = self.refused[max(self.refused)]
            if not any(refusal.transient for refusal in self.refused.values()):
                raise InputError(refusal.reason)
            self.polls.count_failure(refusal.reason)
            self._stopping.wait(self._settings.reloading.every_seconds)
        return None

    def _poll(self) -> None:
        """Polls the export directory. Never raises: errors are logged, and the current model keeps serving.

        A failure of the store is logged each time, an invalid directory once until the reason changes.
        """
        try:
            self._update_current()
            self._update_shadow()
        except InputError as error:
            self.polls.count_failure(str(error), once=True)
        except StoreError as error:
            self.polls.count_failure(str(error))
        except Exception as error:
            self.polls.count_failure(f"{type(error).__name__} at {stack_locations(error)}")
        else:
            self.polls.count_success()

    def _update_current(self) -> None:
        """Switches to the version to serve. Raises: InputError for an invalid directory or pin; StoreError."""
        from serving.exports import store as model_store  # brings TensorFlow

        folder = self._settings.export_dir
        target = self.held if self.held is not None else model_store.pinned_version(folder)
        complete = model_store.complete_versions(folder)
        named = {target, self._settings.shadow.version, *complete}
        self.refused = {version: refusal for version, refusal in self.refused.items() if version in named}
        while (version := self._next(complete, target)) not in (None, self.models and self.models.current.version):
            if self._try_version(version, self._switch, requested=target is not None):
                return

    def _update_shadow(self) -> None:
        """Loads the shadow version, unless it is the current one. Raises: see `_update_current`."""
        from serving.exports import store as model_store

        target = self._settings.shadow.version
        if target is None or self.models is None:
            return
        complete = model_store.complete_versions(self._settings.export_dir)
        shadow = self.models.shadow and self.models.shadow.version
        while (version := self._next(complete, None if target == "newest" else target)) not in (None, shadow):
            if version == self.models.current.version:
                self.models = replace(self.models, shadow=None)
                return
            if self._try_version(version, self._set_shadow, requested=False):
                return

    def _next(self, complete: Iterable[int], target: int | None) -> int | None:
        """Returns the version to load now, or None."""
        waiting = {v for v, refusal in self.refused.items() if time.monotonic() < refusal.retry_at}
        version = select_version(complete, waiting, target)
        return None if version in waiting else version

    def _try_version(self, version: int, use: Callable[[LoadedModel], None], requested: bool) -> bool:
        """Loads the version and passes it to `use`. Returns False if it is refused, until its next retry.

        Raises: StoreError for a transient failure while another version serves; the next poll retries. Before the first
        model is ready, the next lower version is tried instead.
        requested: an operator requested it, so it may refuse requests that the current version accepts.
        """
        try:
            served = self._load_unless_resident(version, requested)
        except InputError as error:
            self._refuse(version, str(error))
            return False
        except StoreError as error:
            if error.transient and self.models is not None:
                raise
            self._refuse(version, str(error), error.transient)
            return False
        self.refused.pop(version, None)
        use(served)
        return True

    def _load_unless_resident(self, version: int, requested: bool) -> LoadedModel:
        """Returns the model from memory, or loads it. Raises: InputError for an invalid version; StoreError."""
        models = self.models
        if models is not None and models.shadow is not None and models.shadow.version == version:
            return models.shadow
        if models is not None and version in models.resident:
            return models.resident[version]
        try:
            return load(self._settings, version, None if requested or models is None else models.current.spec)
        except (InputError, StoreError):
            raise
        except Exception as error:  # a bug, or out of memory
            raise InputError(f"version {version}: {type(error).__name__} at {stack_locations(error)}") from error

    def _switch(self, served: LoadedModel) -> None:
        resident = {v: model for v, model in self.models.resident.items() if v != served.version} if self.models else {}
        latest = list((resident | {served.version: served}).items())[-self._settings.reloading.resident :]
        shadow = self.models.shadow if self.models else None
        self.models = Models(served, dict(latest), None if served is shadow else shadow)
        self.switches += 1
        log("serving", model=served.name, version=served.version, warm_up_requests=served.warmed)

    def _set_shadow(self, shadow: LoadedModel) -> None:
        if self.models is not None:
            self.models = replace(self.models, shadow=shadow)
        log("shadow", model=shadow.name, version=shadow.version)

    def _refuse(self, version: int, reason: str, transient: bool = False) -> None:
        times = self.refused[version].times + 1 if version in self.refused else 1
        reloading = self._settings.reloading
        wait = min(reloading.again_seconds * 2 ** (times - 1), _MAX_RETRY_SECONDS)
        if transient:
            wait = reloading.every_seconds  # until the next poll
        self.refused[version] = VersionRefusal(reason, times, time.monotonic() + wait, transient)
        self.refusals += 1
        log("version-refused", logging.ERROR, version=version, reason=reason, again_in_seconds=wait)

    def _serve(self, version: int) -> None:
        """Loads the version, then holds and serves it. An error changes nothing. Raises: InputError, StoreError."""
        try:
            served = self._load_unless_resident(version, requested=True)
        except InputError as error:
            self.refusals += 1
            log("order-refused", logging.ERROR, version=version, reason=str(error))
            raise
        self.held = version
        self.refused.pop(version, None)
        if self.models is None or served is not self.models.current:
            self._switch(served)

    def _roll_back(self) -> None:
        from serving.exports import store as model_store

        complete = model_store.complete_versions(self._settings.export_dir)
        serving = self.models.current.version if self.models else 0
        lower = [version for version in complete if version < serving]
        if not lower:
            raise InputError(
                f"no version below {serving} is in {self._settings.export_dir}: there is none to go back to"
            )
        self._serve(lower[-1])

    def _follow(self) -> None:
        """Clears the held and refused versions; restores them on an error. Raises: InputError, StoreError."""
        held, refused = self.held, self.refused
        self.held, self.refused = None, {}
        try:
            self._update_current()
        except BaseException:
            self.held, self.refused = held, refused
            raise


def _execute(work: Callable[[], None], answer: "Future[None]") -> None:
    """Executes an order, unless its future was cancelled."""
    if not answer.set_running_or_notify_cancel():
        return
    try:
        work()
    except Exception as error:  # the future carries it to the caller
        answer.set_exception(error)
    else:
        answer.set_result(None)
