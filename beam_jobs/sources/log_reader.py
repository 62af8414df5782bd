"""The interface of a log reader: how a log format is parsed into events and joined to requests. Pure: no Beam."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from beam_jobs.joins.attribution import LoggedEvent, Request
from beam_jobs.sources.native_log import Event, ReadResult


@dataclass(frozen=True, slots=True)
class LogReader:
    """One log format. Its functions must be module-level, so that workers can unpickle them by name."""

    read: Callable[[bytes], Iterable[ReadResult]]  # a JSON record -> its events; all have the same key
    key: Callable[[Event], str]  # grouping key: the request or the user
    requests: Callable[[Sequence[LoggedEvent]], Iterable[Request]]  # all events of a key -> requests
    position_base: int  # of the log's own positions, 0 or 1; events count from 0
