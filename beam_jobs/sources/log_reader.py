"""What a reader of logs is: how one kind of log becomes events, and how its events join. Pure: no Beam."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from beam_jobs.attribution import LoggedEvent, Request
from beam_jobs.logs import Event, Found


@dataclass(frozen=True, slots=True)
class LogReader:
    """One kind of log. Its functions stand at the top of a module, so that workers can load them by name."""

    read: Callable[[bytes], Iterable[Found]]  # a record, as JSON -> what is in it; all its events have one key
    key: Callable[[Event], str]  # events that must come together have the same: a request, or a user
    requests: Callable[[Sequence[LoggedEvent]], Iterable[Request]]  # all events of a key -> their requests
    position_base: int  # of the log's own positions, 0 or 1; events count from 0
