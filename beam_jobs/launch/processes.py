"""One function over many tasks in several processes."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


@contextmanager
def in_processes(function: Callable[[Task], Result], tasks: Sequence[Task], workers: int) -> Iterator[Iterator[Result]]:
    """Each task's result, in the order of the tasks; made by this process where there is one worker or task.

    When the block fails or is interrupted, work in progress is given up.
    Errors: what `function` raises; BrokenProcessPool when a process dies, as one does that takes too much memory.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        yield map(function, tasks)
        return
    others = multiprocessing.active_children()
    context = multiprocessing.get_context("spawn")  # a forked child would inherit whatever threads the caller has
    pool = ProcessPoolExecutor(workers, context, initializer=_end_with_parent)
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the children, which inherit it: we end them
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
    """Ends this process when the one that started it is killed; it would wait for tasks for ever."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
