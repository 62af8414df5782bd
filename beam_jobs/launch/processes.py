"""Maps a function over tasks in a process pool."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


@contextmanager
def map_in_processes(
    function: Callable[[_Task], _Result], tasks: Sequence[_Task], workers: int
) -> Iterator[Iterator[_Result]]:
    """Yields an iterator over the results, in the order of the tasks. One worker or task runs in this process.

    When the block fails or is interrupted, running tasks are terminated.
    Errors: what `function` raises; BrokenProcessPool when a process dies, for example out of memory.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        yield map(function, tasks)
        return
    others = multiprocessing.active_children()
    context = multiprocessing.get_context("spawn")  # a forked child could deadlock on locks of the caller's threads
    pool = ProcessPoolExecutor(workers, context, initializer=_end_with_parent)
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # children inherit it; this process terminates them
    try:
        results = pool.map(function, tasks)
    finally:
        signal.signal(signal.SIGINT, interrupted)
    try:
        yield results
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Exits this process when its parent is killed; otherwise it would wait for tasks forever."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
