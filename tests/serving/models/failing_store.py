"""`python -m tests.serving.models.failing_store`: a gateway whose tf.io.gfile fails when a file says so.

The file is named by the environment variable FAILING_STORE and holds one word, which is read when a look begins:
a number n: the n-th call of the look raises UnavailableError, once; the file is then removed
all: every call raises
exit: the next call raises SystemExit, which no handler of a failing store catches
hang: every read of a model's variables takes a minute
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from features.errors import exit_code_of
from serving.__main__ import main
from serving.exports.store import PIN

VARIABLE = "FAILING_STORE"
FUNCTIONS = ("exists", "listdir", "walk", "stat")


class FailingStore:
    """Replaces tf.io.gfile's functions, and counts the calls of a poll."""

    def __init__(self, orders: Path) -> None:
        self._orders, self._order, self._calls = orders, "", 0

    def before(self, function: str, path: str) -> None:
        if function == "exists" and path.endswith(PIN):  # the first call of a poll
            self._order, self._calls = self._orders.read_text() if self._orders.exists() else "", 0
        self._calls += 1
        if self._order == "exit":
            raise SystemExit
        if self._order == "hang" and "variables.data" in path and function == "read":
            time.sleep(60)
        if self._order == "all" or self._order == str(self._calls):
            if self._order != "all":
                self._orders.unlink()
                self._order = ""
            raise tf.errors.UnavailableError(None, None, f"503 at call {self._calls}, {function}")

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(path: str, *arguments: Any, **options: Any) -> Any:
            self.before(name, path)
            return function(path, *arguments, **options)

        return called

    def install(self) -> None:
        for name in FUNCTIONS:
            setattr(tf.io.gfile, name, self.wrap(name, getattr(tf.io.gfile, name)))
        store, plain = self, tf.io.gfile.GFile

        class File(plain):  # type: ignore[misc]
            def read(self, n: int = -1) -> Any:
                store.before("read", self.name)
                return super().read(n)

        tf.io.gfile.GFile = File


if __name__ == "__main__":
    FailingStore(Path(os.environ[VARIABLE])).install()
    sys.exit(exit_code_of(main))
