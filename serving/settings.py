"""What an operator may set about the gateway. The command line sets the first three; the rest have one home here."""

import os

from pydantic import Field

from features.task import Section


class RequestLimits(Section):
    """What one request may hold. A request beyond a limit is refused whole, never cut."""

    body_bytes: int = Field(default=8 << 20, ge=1024)  # bytes; 1,000 titles of 2,048 four-byte characters fit
    body_seconds: float = Field(default=30.0, gt=0)  # seconds in which a body must have arrived
    items: int = Field(default=1000, ge=1)  # items a request
    context_characters: int = Field(default=512, ge=1)  # characters (Unicode code points) of a query
    item_characters: int = Field(default=2048, ge=1)  # characters of a title
    id_characters: int = Field(default=256, ge=1)  # characters of an item's id


class Settings(Section):
    """One gateway process."""

    export_dir: str  # the directory of version directories; whatever tf.io.gfile opens
    host: str = "127.0.0.1"  # address to bind; other machines reach the gateway only when this says so
    port: int = Field(default=8000, ge=0, le=65535)  # TCP port; 0 takes a free one and prints it
    backend: str = "embedded"  # a key of serving.backends.BACKENDS
    threads: int = Field(default=os.cpu_count() or 1, ge=1)  # requests scored at the same time
    waiting: int = Field(default=64, ge=1)  # requests accepted at the same time; more are told to come again
    drain_seconds: float = Field(default=2.0, ge=0)  # after SIGTERM: seconds not ready, but still answering
    finish_seconds: int = Field(default=30, ge=1)  # then: seconds that requests in flight have to finish
    limits: RequestLimits = RequestLimits()
