"""Registry of log formats, by the name in `dataset.reader`. A new format is a module and a line here."""

from collections.abc import Sequence

from beam_jobs.joins.attribution import LoggedEvent, Request
from beam_jobs.sources.ga4_log import GA4
from beam_jobs.sources.log_reader import LogReader
from beam_jobs.sources.native_log import Event, ReadResult, read_event
from beam_jobs.sources.ubi_log import UBI


def read_native(line: bytes) -> tuple[ReadResult]:
    return (read_event(line),)


def request_of(event: Event) -> str:
    return event.request_id


def one_request(logged: Sequence[LoggedEvent]) -> tuple[Request]:
    return (Request(logged),)


NATIVE = LogReader(read=read_native, key=request_of, requests=one_request, position_base=0)

READERS = {"native": NATIVE, "ubi": UBI, "ga4": GA4}
